// SPDX-License-Identifier: Apache-2.0
#include "models/alignment_metrics.h"

#include <cmath>
#include <set>

#include "tensor/format.h"

namespace heed {

AlignmentScore alignment_score(std::span<const std::vector<Link>> links, std::span<const Alignment> gold) {
  check<Error>(links.size() == gold.size(), "alignment score: numbers of sentences differ: links {}, gold {}", links.size(),
               gold.size());
  Index a = 0, s = 0, a_and_s = 0, a_and_p = 0, surely_linked = 0, accurate = 0;
  for (std::size_t i = 0; i < links.size(); ++i) {
    const std::set<Link> made(links[i].begin(), links[i].end()), sure(gold[i].sure.begin(), gold[i].sure.end()),
        unsure(gold[i].possible.begin(), gold[i].possible.end());
    std::set<Index> linked, right;   // target words
    for (const Link& link : sure) linked.insert(link.target);
    a += Index(made.size());
    s += Index(sure.size());
    for (const Link& link : made) {
      const bool in_s = sure.contains(link), in_p = in_s || unsure.contains(link);
      a_and_s += in_s;
      a_and_p += in_p;
      if (in_p && linked.contains(link.target)) right.insert(link.target);
    }
    surely_linked += Index(linked.size());
    accurate += Index(right.size());
  }
  AlignmentScore score;
  if (a + s > 0) score.error_rate = 1 - double(a_and_s + a_and_p) / double(a + s);
  if (a > 0) score.precision = double(a_and_p) / double(a);
  if (s > 0) score.recall = double(a_and_s) / double(s);
  if (surely_linked > 0) score.accuracy = double(accurate) / double(surely_linked);
  return score;
}

namespace {

struct Rows {
  Rows(std::string_view op, const Tensor& x) {
    check<ShapeError>(x.rank() == 2, "{}: weights need 2 dimensions: weights {}", op, x.shape());
    rows = x.size(0);
    columns = x.size(1);
    visit_float(x.dtype(), op, [&]<class T>() {
      const std::vector<T> values = x.to_vector<T>();
      weights.assign(values.begin(), values.end());
    });
  }
  double operator()(Index t, Index j) const { return weights[std::size_t(t * columns + j)]; }
  Index rows, columns;
  std::vector<double> weights;
};

std::vector<Link> largest(const Rows& x) {
  std::vector<Link> links;
  for (Index t = 0; t < x.rows; ++t) {
    Index best = -1;
    for (Index j = 0; j < x.columns; ++j) {
      if (x(t, j) > (best < 0 ? 0 : x(t, best))) best = j;
    }
    if (best >= 0) links.push_back({best, t});
  }
  return links;
}

}  // namespace

std::vector<Link> attention_links(const Tensor& weights) { return largest(Rows("attention links", weights)); }

std::vector<double> coverage(const Tensor& weights) {
  const Rows x("coverage", weights);
  std::vector<double> sums(std::size_t(x.columns));
  for (Index t = 0; t < x.rows; ++t) {
    for (Index j = 0; j < x.columns; ++j) sums[std::size_t(j)] += x(t, j);
  }
  return sums;
}

AttentionNumbers attention_numbers(std::span<const Tensor> sentences) {
  double entropy = 0;
  Index rows = 0, columns = 0, steps = 0, forward = 0, repeated = 0, seen = 0;
  for (const Tensor& weights : sentences) {
    const Rows x("attention numbers", weights);
    for (Index t = 0; t < x.rows; ++t) {
      double sum = 0;
      for (Index j = 0; j < x.columns; ++j) {
        if (x(t, j) != 0) entropy -= x(t, j) * std::log(x(t, j));
        sum += x(t, j);
      }
      if (sum > 1.001) entropy = NAN;
    }
    const std::vector<Link> links = largest(x);
    std::set<Index> looked_at;
    for (std::size_t i = 0; i < links.size(); ++i) {
      repeated += !looked_at.insert(links[i].source).second;
      if (i > 0 && links[i - 1].target + 1 == links[i].target) {
        ++steps;
        forward += links[i].source >= links[i - 1].source;
      }
    }
    rows += x.rows;
    columns += x.columns;
    seen += Index(looked_at.size());
  }
  AttentionNumbers numbers;
  if (rows > 0) numbers.row_entropy = entropy / double(rows);
  if (rows > 0) numbers.repeated = double(repeated) / double(rows);
  if (columns > 0) numbers.dropped = double(columns - seen) / double(columns);
  if (steps > 0) numbers.monotone_share = double(forward) / double(steps);
  return numbers;
}

}  // namespace heed
