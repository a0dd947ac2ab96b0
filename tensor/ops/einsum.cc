// SPDX-License-Identifier: Apache-2.0
#include "tensor/ops/einsum.h"

#include <algorithm>
#include <array>
#include <string>

#include "tensor/format.h"
#include "tensor/ops/binary.h"
#include "tensor/ops/einsum_run.h"
#include "tensor/ops/matmul.h"
#include "tensor/ops/reduce.h"
#include "tensor/ops/view.h"

namespace heed {
namespace {

// Axes are named by characters: letters, and '0'..'7' for those of an ellipsis, '7' the last.
using Labels = std::string;

bool has(const Labels& labels, char label) { return labels.find(label) != Labels::npos; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

class Planner {
 public:
  Planner(std::string_view spec, std::span<const Shape> shapes) : spec_(spec), shapes_(shapes) {}

  std::vector<EinsumStep> plan() {
    parse();
    sizes();
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      take(i);
      if (i > 0) join(later(i + 1));
    }
    sum_out(output_, 0);
    arrange(output_, 0);
    return std::move(steps_);
  }

 private:
  std::string spec() const { return fmt::format("spec {}", quote(spec_)); }

  // Letters of one operand; axes: how many its ellipsis stands for.
  Labels labels(std::string_view text, Index axes) const {
    Labels labels;
    bool ellipsis = false;
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (text[i] == ' ') continue;
      if (text.substr(i, 3) == "..." && !ellipsis) {
        for (Index axis = 0; axis < axes; ++axis) labels += char('0' + kMaxRank - axes + axis);
        ellipsis = true;
        i += 2;
        continue;
      }
      check<Error>(is_letter(text[i]), "einsum: names of axes are letters, and one \"...\": {} at {} in {}",
                   quote(text.substr(i, 1)), i, spec());
      labels += text[i];
    }
    return labels;
  }

  void parse() {
    const std::size_t arrow = spec_.find("->");
    std::string_view left = spec_.substr(0, arrow);
    Index widest = 0;
    for (std::size_t i = 0;; ++i) {
      const std::size_t comma = left.find(',');
      const std::string_view text = left.substr(0, comma);
      check<Error>(i < shapes_.size(), "einsum: more operands in the spec than given: {}, {} operands", spec(), shapes_.size());
      const Shape& shape = shapes_[i];
      const Index named = std::count_if(text.begin(), text.end(), is_letter);
      const Index axes = text.find("...") == text.npos ? 0 : shape.rank() - named;
      inputs_.push_back(labels(text, std::max<Index>(axes, 0)));
      check<ShapeError>(axes >= 0 && Index(inputs_[i].size()) == shape.rank(),
                        "einsum: operand {} has {} axes, its part of the spec {} names {}: operand {}", i, shape.rank(),
                        quote(text), named, shape);
      widest = std::max(widest, axes);
      if (comma == left.npos) break;
      left.remove_prefix(comma + 1);
    }
    check<Error>(inputs_.size() == shapes_.size(), "einsum: fewer operands in the spec than given: {}, {} operands", spec(),
                 shapes_.size());
    if (arrow != spec_.npos) {
      output_ = labels(spec_.substr(arrow + 2), widest);
    } else {
      Labels every;
      for (const Labels& input : inputs_) every += input;
      std::sort(every.begin(), every.end());
      for (char label : every)
        if ((!is_letter(label) && !has(output_, label)) || std::count(every.begin(), every.end(), label) == 1) output_ += label;
    }
    for (char label : output_) {
      check<Error>(std::count(output_.begin(), output_.end(), label) == 1, "einsum: '{}' occurs twice in the result: {}", label,
                   spec());
      check<Error>(std::any_of(inputs_.begin(), inputs_.end(), [&](const Labels& input) { return has(input, label); }),
                   "einsum: '{}' is in the result but in no operand: {}", label, spec());
    }
  }

  void sizes() {
    sizes_.fill(1);
    for (std::size_t i = 0; i < inputs_.size(); ++i)
      for (int axis = 0; axis < shapes_[i].rank(); ++axis) {
        Index& size = sizes_[std::size_t(inputs_[i][std::size_t(axis)])];
        const Index here = shapes_[i][axis];
        // of the same letter in this operand
        const auto first = std::size_t(inputs_[i].find(inputs_[i][std::size_t(axis)]));
        if ((size != 1 && here != 1 && size != here) || shapes_[i][int(first)] != here) {
          std::string operands;
          for (const Shape& shape : shapes_) operands += (operands.empty() ? "" : ", ") + to_string(shape);
          fail<ShapeError>("einsum: sizes of '{}' differ: {} and {}: operands {}: {}", inputs_[i][std::size_t(axis)],
                           shapes_[i][int(first)] != here ? shapes_[i][int(first)] : size, here, operands, spec());
        }
        if (size == 1) size = here;
      }
  }

  Index size(char label) const { return sizes_[std::size_t(label)]; }
  Index size(const Labels& labels) const {
    Index n = 1;
    for (char label : labels) n *= size(label);
    return n;
  }

  // Labels that are needed after operand `from` - 1 was joined.
  Labels later(std::size_t from) const {
    Labels labels = output_;
    for (; from < inputs_.size(); ++from) labels += inputs_[from];
    return labels;
  }

  void add(EinsumStep::Kind kind, int depth, std::vector<Index> values) { steps_.push_back({kind, depth, std::move(values)}); }
  Labels& at(int depth) { return stack_[stack_.size() - 1 - std::size_t(depth)]; }

  void take(std::size_t i) {
    add(EinsumStep::take, 0, {Index(i)});
    stack_.push_back(inputs_[i]);
    std::vector<Index> full;
    for (char label : inputs_[i]) full.push_back(size(label));
    if (!std::equal(full.begin(), full.end(), shapes_[i].begin())) add(EinsumStep::expand, 0, full);
    Labels& labels = stack_.back();
    for (std::size_t a = 0; a < labels.size(); ++a)
      for (std::size_t b; (b = labels.find(labels[a], a + 1)) != Labels::npos;) {
        // both to the end, of size [n n], of which every (n + 1)th
        const char label = labels[a];
        Labels order = labels;
        order.erase(b, 1).erase(a, 1);
        std::vector<Index> dims, flat;
        for (std::size_t axis = 0; axis < labels.size(); ++axis)
          if (axis != a && axis != b) dims.push_back(Index(axis)), flat.push_back(size(labels[axis]));
        dims.push_back(Index(a)), dims.push_back(Index(b));
        flat.push_back(size(label) * size(label));
        add(EinsumStep::permute, 0, dims);
        add(EinsumStep::reshape, 0, flat);
        add(EinsumStep::diagonal, 0, {size(label)});
        labels = order + label;
        a = Labels::npos;  // positions moved: start again
        break;
      }
  }

  // Sums the axes that are not in `keep`.
  void sum_out(const Labels& keep, int depth) {
    std::vector<Index> dims;
    Labels left;
    for (std::size_t axis = 0; axis < at(depth).size(); ++axis)
      if (has(keep, at(depth)[axis])) left += at(depth)[axis];
      else dims.push_back(Index(axis));
    if (!dims.empty()) add(EinsumStep::sum, depth, dims);
    at(depth) = left;
  }

  void arrange(const Labels& order, int depth) {
    if (at(depth) == order) return;
    std::vector<Index> dims;
    for (char label : order) dims.push_back(Index(at(depth).find(label)));
    add(EinsumStep::permute, depth, dims);
    at(depth) = order;
  }

  // The last two operands a and b become one, of the labels in `keep`:  [batch, left, summed] x [batch, summed, right]
  void join(const Labels& keep) {
    sum_out(keep + at(0), 1);
    sum_out(keep + at(1), 0);
    Labels batch, left, right, summed;
    for (char label : at(1)) (!has(at(0), label) ? left : has(keep, label) ? batch : summed) += label;
    for (char label : at(0))
      if (!has(at(1), label)) right += label;
    check<ShapeError>(batch.size() + left.size() + right.size() <= kMaxRank, "einsum: more than {} axes between two steps: {}",
                      kMaxRank, spec());
    arrange(batch + left + summed, 1);
    if (left.empty() && right.empty() && !summed.empty()) {   // dot products: one pass and a sum
      arrange(at(1), 0);
      add(EinsumStep::multiply, 0, {});
      stack_.pop_back();
      return sum_out(keep, 0);
    }
    std::vector<Index> a, b, c;
    if (summed.empty()) {
      arrange(batch + right, 0);
      for (char label : batch) a.push_back(size(label)), b.push_back(size(label));
      for (char label : left) a.push_back(size(label)), b.push_back(1);
      for (char label : right) a.push_back(1), b.push_back(size(label));
    } else {
      arrange(batch + summed + right, 0);
      // the axes of the batch stay apart where there is room: joining them might copy
      if (batch.size() + 2 <= kMaxRank)
        for (char label : batch) a.push_back(size(label));
      else a.push_back(size(batch));
      b = a;
      a.push_back(size(left)), a.push_back(size(summed));
      b.push_back(size(summed)), b.push_back(size(right));
    }
    add(EinsumStep::reshape, 1, a);
    add(EinsumStep::reshape, 0, b);
    add(summed.empty() ? EinsumStep::multiply : EinsumStep::matmul, 0, {});
    stack_.pop_back();
    stack_.back() = batch + left + right;
    for (char label : stack_.back()) c.push_back(size(label));
    if (!summed.empty()) add(EinsumStep::reshape, 0, c);
  }

  std::string_view spec_;
  std::span<const Shape> shapes_;
  std::vector<Labels> inputs_, stack_;
  Labels output_;
  std::array<Index, 128> sizes_{};
  std::vector<EinsumStep> steps_;
};

}  // namespace

std::vector<EinsumStep> einsum_steps(std::string_view spec, std::span<const Shape> shapes) {
  return Planner(spec, shapes).plan();
}

Tensor einsum(std::string_view spec, const std::vector<Tensor>& operands) { return run_einsum<Tensor>(spec, operands); }

}  // namespace heed
