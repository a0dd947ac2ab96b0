// SPDX-License-Identifier: Apache-2.0
// The properties that every differentiable function has: one test case a property, over all samples.
#include "tests/op_table.h"

#include <doctest/doctest.h>

#include <map>
#include <set>

#include "autograd/ops.h"
#include "autograd/tape.h"
#include "tensor/file.h"
#include "tensor/ops/binary.h"
#include "tensor/ops/random.h"
#include "tensor/ops/view.h"
#include "tensor/safetensors.h"
#include "tensor/test_hooks.h"
#include "tests/close.h"
#include "tests/every_target.h"
#include "tests/temporary_folder.h"
#include "tests/thrown.h"

using namespace heed;

namespace {

constexpr Index kSizes[] = {0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 67};
constexpr Index kLarge = 20011;   // several chunks
constexpr double kEps64 = 0x1p-52, kEps32 = 0x1p-23;

struct Result {
  Tensor y;
  std::vector<Tensor> gradients;   // undefined where not wanted
};

// y = f(inputs) and the gradients of Σ w y, w fixed random weights, by the tape.
Result run(const DifferentiableFunction& f, const std::vector<Tensor>& inputs, unsigned wanted = ~0u) {
  std::vector<Variable> x;
  for (std::size_t i = 0; i < inputs.size(); ++i) x.push_back(wanted >> i & 1 ? variable(inputs[i]) : constant(inputs[i]));
  Tape tape(evaluating);
  const Variable y = f(x);
  if (y.wants_gradient()) {
    const Tensor dy = to(uniform(Key(77), y.shape(), 0.5, 1.5), y.dtype());
    tape.backward({&y, 1}, {&dy, 1});
  }
  Result result{y.value(), {}};
  for (std::size_t i = 0; i < x.size(); ++i) result.gradients.push_back(wanted >> i & 1 ? x[i].grad() : Tensor());
  return result;
}

std::vector<Tensor> converted(std::vector<Tensor> inputs, DType dtype) {
  for (Tensor& x : inputs) x = to(x, dtype);
  return inputs;
}

double largest(const Tensor& x) { return std::max(1.0, largest_of(doubles(x))); }

// |x - y| in units of ε max(1, |y|max)
double distance(const Tensor& x, const Tensor& y, double eps) {
  return x.shape() != y.shape() ? INFINITY : worst_absolute(x, y) / (eps * largest(y));
}

bool same_bits(const Result& a, const Result& b) {
  bool same = equal_bits(a.y, b.y);
  for (std::size_t i = 0; i < a.gradients.size(); ++i)
    if (a.gradients[i].defined() && b.gradients[i].defined()) same = same && equal_bits(a.gradients[i], b.gradients[i]);
  return same;
}

std::string thrown_on_variables(const Sample& sample, const std::vector<Tensor>& inputs) {
  return thrown([&] {
    std::vector<Variable> x;
    for (const Tensor& input : inputs) x.push_back(constant(input));
    sample.f(x);
  });
}
std::string thrown_on_tensors(const Sample& sample, const std::vector<Tensor>& inputs) {
  return thrown([&] { sample.tensor(inputs); });
}

// Does the sample take this size? If not it must say so alike on both sides.
bool takes(const Sample& sample, const std::vector<Tensor>& inputs) {
  const std::string text = thrown_on_variables(sample, inputs);
  if (sample.tensor) CHECK(text == thrown_on_tensors(sample, inputs));
  return text == "nothing thrown";
}

bool varies(const Sample& sample) {
  for (const auto& input : sample.inputs)
    for (Index size : input.shape)
      if (size == Sample::kAny) return true;
  return false;
}

template <class F> void for_samples(F&& f) {
  for (const Sample& sample : samples()) {
    CAPTURE(sample.name);
    f(sample);
  }
}
template <class F> void for_sizes(const Sample& sample, F&& f) {
  for (Index size : kSizes) {
    CAPTURE(size);
    const auto inputs = sample_inputs(sample, size);
    if (takes(sample, inputs)) f(inputs);
    if (!varies(sample)) return;
  }
}

double ulp_of(const Sample& sample) {
  const Row* row = row_of(sample);
  return row ? row->ulp : 0;
}

// The same numbers in memory that is not contiguous: inside a larger tensor of NaN, backwards, or with its axes stored in reverse.
std::vector<Tensor> other_layouts(const Tensor& x) {
  std::vector<Tensor> out;
  Shape padded = x.shape();
  for (int axis = 0; axis < x.rank(); ++axis) padded[axis] += 3;
  Tensor inside = full(padded, NAN, x.dtype());
  for (int axis = 0; axis < x.rank(); ++axis) inside = slice(inside, axis, 1, 1 + x.size(axis));
  copy_into(inside, x);
  out.push_back(inside);
  if (x.rank() == 0) return out;
  std::vector<int> backwards;
  for (int axis = x.rank() - 1; axis >= 0; --axis) backwards.push_back(axis);
  const Dims dims(backwards);
  out.push_back(permute(permute(x, dims).clone(), dims));
  out.push_back(flip(flip(x, dims).clone(), dims));
  return out;
}

}  // namespace

TEST_CASE("op table: every differentiable function has a sample and a row, every row a sample") {
  const std::string text = read_file(HEED_SOURCE_DIR "/autograd/ops.h");
  std::set<std::string> functions, sampled, with_definition;
  for (std::size_t at = 0, end; at < text.size(); at = end + 1) {   // lines  [inline] Type name(
    end = std::min(text.find('\n', at), text.size());
    std::string line = text.substr(at, end - at);
    if (line.starts_with("inline ")) line = line.substr(7);
    const std::size_t open = line.find('('), space = line.rfind(' ', open);
    if (line.empty() || !std::isalpha(line[0]) || open == std::string::npos || space == std::string::npos || line.starts_with("struct"))
      continue;
    functions.insert(line.substr(space + 1, open - space - 1));
  }
  CHECK(functions.size() > 60);
  for (const Sample& sample : samples()) {
    sampled.insert(sample.function());
    if (const Row* row = row_of(sample); row && row->definition) with_definition.insert(sample.function());
    CHECK_MESSAGE(functions.contains(sample.function()), sample.name << " is not declared in autograd/ops.h");
    CHECK_MESSAGE(row_of(sample) != nullptr, sample.name << " has no row in tests/ops");
  }
  for (const std::string& name : functions) {
    if (!name.ends_with("_by_definition")) CHECK_MESSAGE(sampled.contains(name), name << " has no sample in autograd/ops/");
    else CHECK_MESSAGE(with_definition.contains(name.substr(0, name.rfind("_by_"))), name << " is the .definition of no row");
  }
  for (const Row& row : all_rows()) {
    bool used = false;
    for (const Sample& sample : samples()) used = used || row_of(sample) == &row;
    CHECK_MESSAGE(used, "row " << row.name << " belongs to no sample");
  }
}

TEST_CASE("op table: value = reference, f64 and f32, all sizes, every target") {
  for_samples([](const Sample& sample) {
    const Row* row = row_of(sample);
    if (!row || !row->reference) return;
    for_sizes(sample, [&](const std::vector<Tensor>& inputs) {
      reference::Arrays arrays;
      for (const Tensor& x : inputs) arrays.push_back({x.shape(), doubles(x)});
      const reference::Array want = row->reference(arrays);
      const double scale = std::max(1.0, largest_of(want.values));
      for_every_target([&] {
        for (DType dtype : {DType::f64, DType::f32}) {
          std::vector<Variable> x;
          for (const Tensor& input : converted(inputs, dtype)) x.push_back(constant(input));
          const Tensor y = sample.f(x).value();
          REQUIRE(y.shape() == want.shape);
          CHECK(worst_absolute(y, want.values) <= row->ulp * scale * (dtype == DType::f64 ? kEps64 : kEps32));
          if (sample.tensor) CHECK(equal_bits(sample.tensor(converted(inputs, dtype)), y));
        }
      });
    });
  });
}

TEST_CASE("op table: gradient = central differences in f64, every target") {
  for_samples([](const Sample& sample) {
    for_every_target([&] {
      const GradientReport report = check_gradient(sample.f, sample_inputs(sample));
      CHECK_MESSAGE(report.holds(), sample.name << ": " << report.worst);
    });
    if (!varies(sample)) return;
    const GradientReport directions = check_gradient(sample.f, sample_inputs(sample, 211));
    CHECK_MESSAGE(directions.holds(2e-6), sample.name << ": " << directions.worst);
  });
}

TEST_CASE("op table: f32 near f64 in value and gradient, all sizes, every target") {
  for_samples([](const Sample& sample) {
    for_sizes(sample, [&](const std::vector<Tensor>& inputs) {
      const Result want = run(sample.f, inputs);
      for_every_target([&] {
        const Result got = run(sample.f, converted(inputs, DType::f32)), twin = run(sample.f, inputs);
        CHECK(got.y.dtype() == DType::f32);
        CHECK(distance(got.y, want.y, kEps32) <= ulp_of(sample));
        CHECK(distance(twin.y, want.y, kEps64) <= 2 * ulp_of(sample));
        for (std::size_t i = 0; i < inputs.size(); ++i) {
          CHECK(distance(got.gradients[i], want.gradients[i], kEps32) <= 4 * ulp_of(sample));
          CHECK(distance(twin.gradients[i], want.gradients[i], kEps64) <= 8 * ulp_of(sample));
        }
      });
    });
  });
}

TEST_CASE("op table: threads 1, 2 and 3 give the same bits, and so do two runs, and chunks in any order") {
  for_samples([](const Sample& sample) {
    const auto inputs = sample_inputs(sample, kLarge, DType::f32);
    const Result want = run(sample.f, inputs);
    for_threads([&] { CHECK(same_bits(run(sample.f, inputs), want)); });
    for (std::uint64_t seed : {1, 1000}) {
      shuffle_chunks(seed);
      CHECK(same_bits(run(sample.f, inputs), want));
      shuffle_chunks(0);
    }
  });
}

TEST_CASE("op table: the memory layout of the inputs changes nothing, and the inputs are untouched") {
  for_samples([](const Sample& sample) {
    for (Index size : {7, 16, 40})
      for (DType dtype : {DType::f32, DType::f64}) {
        CAPTURE(size);
        const auto inputs = sample_inputs(sample, size, dtype);
        const Result want = run(sample.f, inputs);
        for (std::size_t i = 0; i < inputs.size(); ++i)
          for (const Tensor& other : other_layouts(inputs[i])) {
            auto changed = inputs;
            changed[i] = other;
            CHECK(same_bits(run(sample.f, changed), want));
            CHECK(equal_bits(other, inputs[i]));
          }
        const auto again = sample_inputs(sample, size, dtype);
        for (std::size_t i = 0; i < inputs.size(); ++i) CHECK(equal_bits(inputs[i], again[i]));
      }
  });
}

TEST_CASE("op table: an expanded input = its copy") {
  for_samples([](const Sample& sample) {
    const auto inputs = sample_inputs(sample);
    for (std::size_t i = 0; i < inputs.size(); ++i)
      for (int axis = 0; axis < inputs[i].rank(); ++axis) {
        if (inputs[i].size(axis) == 0) continue;
        auto changed = inputs, copied = inputs;
        changed[i] = expand(slice(inputs[i], axis, 0, 1), inputs[i].shape());
        copied[i] = changed[i].clone();
        CHECK(same_bits(run(sample.f, changed), run(sample.f, copied)));
      }
  });
}

TEST_CASE("op table: wrong inputs throw, Tensor and Variable alike, with both shapes in the text") {
  for_samples([](const Sample& sample) {
    if (!sample.tensor) return;
    const auto inputs = sample_inputs(sample);
    std::vector<std::vector<Tensor>> odd;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const Tensor& x = inputs[i];
      const auto with = [&](Tensor other) {
        odd.push_back(inputs);
        odd.back()[i] = std::move(other);
      };
      with(to(x, DType::i64));
      with(to(x, DType::bf16));
      with(unsqueeze(x, 0));
      with(Tensor());
      if (x.rank() > 0) {
        with(x[0]);
        with(concat(std::vector<Tensor>{x, x}, -1));
        with(concat(std::vector<Tensor>{x, x}, 0));
        with(slice(x, -1, 0, 0));
      }
      if (inputs.size() > 1) {
        auto mixed = inputs;
        mixed[i] = to(x, DType::f32);
        const std::string text = thrown_on_tensors(sample, mixed);
        CHECK_MESSAGE(text.starts_with("DTypeError: "), text);
        CHECK_MESSAGE((text.find("f32") != std::string::npos && text.find("f64") != std::string::npos), text);
        odd.push_back(mixed);
      }
    }
    for (const auto& some : odd) CHECK(thrown_on_tensors(sample, some) == thrown_on_variables(sample, some));
  });
  for (const Row& row : all_rows())
    for (const Sample& sample : samples()) {
      if (row_of(sample) != &row || !sample.tensor) continue;
      for (const Row::Wrong& wrong : row.wrong) {
        CAPTURE(row.name);
        std::vector<Tensor> inputs;
        for (const Shape& shape : wrong.inputs) inputs.push_back(zeros(shape, DType::f64));
        const std::string text = thrown_on_tensors(sample, inputs);
        CHECK_MESSAGE(text != "nothing thrown", "accepted");
        CHECK(text == thrown_on_variables(sample, inputs));
        for (std::size_t i = 0; i < std::min<std::size_t>(2, inputs.size()); ++i)
          CHECK_MESSAGE(text.find(to_string(inputs[i].shape())) != std::string::npos, text);
        for (const std::string& words : wrong.says) CHECK_MESSAGE(text.find(words) != std::string::npos, text);
      }
    }
}

TEST_CASE("op table: the gradient of some inputs = their part of the whole") {
  for_samples([](const Sample& sample) {
    const auto inputs = sample_inputs(sample, 17);
    const Result whole = run(sample.f, inputs);
    for (unsigned wanted = 1; wanted + 1 < 1u << inputs.size(); ++wanted) CHECK(same_bits(run(sample.f, inputs, wanted), whole));
  });
}

TEST_CASE("op table: a gradient adds to what is there") {
  for_samples([](const Sample& sample) {
    const auto inputs = sample_inputs(sample);
    std::vector<Variable> x;
    for (const Tensor& input : inputs) x.push_back(variable(input));
    for (int pass = 0; pass < 2; ++pass) {
      Tape tape(evaluating);
      const Variable y = sample.f(x);
      const Tensor dy = to(uniform(Key(77), y.shape(), 0.5, 1.5), y.dtype());
      if (y.wants_gradient()) tape.backward({&y, 1}, {&dy, 1});
    }
    const Result once = run(sample.f, inputs);
    for (std::size_t i = 0; i < x.size(); ++i)
      CHECK(distance(x[i].grad(), add(once.gradients[i], once.gradients[i]), kEps64) <= 8 * ulp_of(sample));
  });
}

TEST_CASE("op table: fused = definition in value and gradient, f64 and f32") {
  for_samples([](const Sample& sample) {
    const Row* row = row_of(sample);
    if (!row || !row->definition) return;
    for_sizes(sample, [&](const std::vector<Tensor>& inputs) {
      for (DType dtype : {DType::f64, DType::f32}) {
        const double eps = dtype == DType::f64 ? kEps64 : kEps32;
        const Result fused = run(sample.f, converted(inputs, dtype)), slow = run(row->definition, converted(inputs, dtype));
        CHECK(distance(fused.y, slow.y, eps) <= 2 * row->ulp);
        for (std::size_t i = 0; i < inputs.size(); ++i) CHECK(distance(fused.gradients[i], slow.gradients[i], eps) <= 8 * row->ulp);
      }
    });
  });
}

TEST_CASE("op table: without a tape, or on constants, nothing is recorded") {
  for_samples([](const Sample& sample) {
    const auto inputs = sample_inputs(sample);
    std::vector<Variable> leaves, constants;
    for (const Tensor& input : inputs) leaves.push_back(variable(input)), constants.push_back(constant(input));
    if (sample.function() != "dropout") CHECK_FALSE(sample.f(leaves).wants_gradient());   // dropout gives x itself
    Tape tape(evaluating);
    CHECK_FALSE(sample.f(constants).wants_gradient());
    CHECK(tape.size() == 0);
  });
}

TEST_CASE("op table: a NaN in an input reaches the output, on every target") {
  for_samples([](const Sample& sample) {
    // these may leave an element out
    if (sample.function() == "topk" || sample.function() == "masked_fill" || sample.name == "gather") return;
    for (DType dtype : {DType::f32, DType::f64})
      for (std::size_t i = 0; i < sample.inputs.size(); ++i) {
        auto inputs = sample_inputs(sample, 19, dtype);
        CAPTURE(i);
        inputs[i] = full(inputs[i].shape(), NAN, dtype);
        for_every_target([&] {
          std::vector<Variable> x;
          for (const Tensor& input : inputs) x.push_back(constant(input));
          const auto values = doubles(sample.f(x).value());
          CHECK(std::any_of(values.begin(), values.end(), [](double v) { return std::isnan(v); }));
        });
      }
  });
}

TEST_CASE("op table: results print, and are the same when saved and loaded") {
  std::map<std::string, Tensor> results;
  for_samples([&](const Sample& sample) {
    for (DType dtype : {DType::f32, DType::f64}) {
      std::vector<Variable> x;
      for (const Tensor& input : sample_inputs(sample, 7, dtype)) x.push_back(constant(input));
      const Tensor y = sample.f(x).value();
      CHECK_FALSE(to_string(y).empty());
      results[sample.name + (dtype == DType::f32 ? " f32" : " f64")] = y;
    }
  });
  const TemporaryFolder folder;
  write_safetensors(folder / "results", results);
  const SafetensorsFile read = read_safetensors(folder / "results");
  CHECK(read.tensors.size() == results.size());
  for (const auto& result : results) CHECK_MESSAGE(equal_bits(read.at(result.first), result.second), result.first);
}
