// SPDX-License-Identifier: Apache-2.0
#include "models/alignment_metrics.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

using namespace heed;

namespace {

bool close(double a, double b) { return std::abs(a - b) <= 1e-12 * std::max(1.0, std::abs(b)); }

}  // namespace

TEST_CASE("links as text") {
  const std::vector<Link> links{{0, 0}, {1, 2}, {12, 1}};
  CHECK(parse_links("0-0 1-2  12-1 ") == links);
  CHECK(to_string(links) == "0-0 1-2 12-1");
  CHECK(to_string(links, '?') == "0?0 1?2 12?1");
  CHECK(parse_links(to_string(links, '?'), '?') == links);
  CHECK(parse_links("").empty());
  for (const char* wrong : {"1", "1-", "-1", "1-2-3", "1?2", "a-b", "1--2", "1-2x", "99999999999999999999-1", "+1-2"}) {
    CHECK_THROWS_AS(parse_links(wrong), Error);
  }
  CHECK_THROWS_WITH_AS(parse_links("0-0 1:2"),
                       "alignment: a link is written i-j, source and target word counted from 0: \"1:2\"", Error);
}

TEST_CASE("alignment error rate") {
  // |A| = 4, |S| = 3, |A∩S| = 2, |A∩P| = 3
  const std::vector<std::vector<Link>> links{{{0, 0}, {1, 2}, {1, 2}, {2, 1}}, {{0, 1}}};
  const std::vector<Alignment> gold{{{{0, 0}, {1, 2}}, {{2, 1}}}, {{{1, 1}}, {}}};
  const AlignmentScore score = alignment_score(links, gold);
  CHECK(close(score.error_rate, 1 - 5.0 / 7));
  CHECK(score.precision == 0.75);
  CHECK(close(score.recall, 2.0 / 3));
  CHECK(close(score.accuracy, 2.0 / 3));  // target words 0 and 2 of the first sentence and 1 of the second are surely linked
  const std::vector<Alignment> three{{{{0, 0}, {1, 1}, {2, 2}}, {}}};          // a word without a link is no right one
  CHECK(close(alignment_score(std::vector<std::vector<Link>>{{{0, 0}}}, three).accuracy, 1.0 / 3));
  CHECK(alignment_score(std::vector<std::vector<Link>>(1), three).accuracy == 0);
  // a surely linked target word whose link found is a possible one
  CHECK(alignment_score(std::vector<std::vector<Link>>{{{1, 0}}}, std::vector<Alignment>{{{{0, 0}}, {{1, 0}}}}).accuracy == 1);
  const std::vector<std::vector<Link>> diagonal{{{0, 0}, {1, 1}}};
  CHECK(alignment_score(diagonal, std::vector<Alignment>{{{{0, 0}, {1, 1}}, {}}}).error_rate == 0);
  CHECK(alignment_score({}, {}).error_rate == 0);
  CHECK_THROWS_AS(alignment_score(links, std::vector<Alignment>(1)), Error);
}

TEST_CASE("links, coverage and numbers from attention") {
  const Tensor weights = tensor({{0.5, 0.25, 0.25, 0}, {0, 0.25, 0.5, 0.25}, {0.25, 0.25, 0.25, 0.25}});
  const Tensor words = weights(all, Slice{0, 3});  // without eos: a strided view
  CHECK(attention_links(words) == std::vector<Link>{{0, 0}, {2, 1}, {0, 2}});
  CHECK(coverage(words) == std::vector<double>{0.75, 0.75, 1});
  const AttentionNumbers numbers = attention_numbers(std::vector{weights});
  CHECK(close(numbers.row_entropy, (1.5 + 1.5 + 2) * std::log(2.0) / 3));
  CHECK(numbers.monotone_share == 0.5);  // 0, 2, 0
  CHECK(close(numbers.repeated, 1.0 / 3));
  CHECK(numbers.dropped == 0.5);
  const AttentionNumbers sharp = attention_numbers(std::vector{eye(3, DType::f64), eye(1)});
  CHECK(sharp.row_entropy == 0);
  CHECK(std::isnan(attention_numbers(std::vector{weights, full({1, 2}, 0.75)}).row_entropy));
  CHECK(std::isnan(attention_numbers(std::vector{weights, tensor({{1.5, -0.5}})}).row_entropy));
  CHECK(sharp.monotone_share == 1);
  CHECK(sharp.repeated == 0);
  CHECK(sharp.dropped == 0);
  CHECK(attention_links(full({1, 2}, std::numeric_limits<double>::quiet_NaN())).empty());
  CHECK(attention_links(zeros({0, 3})).empty());
  // Rows that look at nothing, as beyond a window, or at eos alone
  const Tensor nothing = tensor({{0, 1, 0}, {0, 0, 0}, {1, 0, 0}});
  CHECK(attention_links(nothing) == std::vector<Link>{{1, 0}, {0, 2}});
  CHECK(attention_numbers(std::vector{nothing}).repeated == 0);
  CHECK_THROWS_WITH_AS(attention_links(zeros({3})), "attention links: weights need 2 dimensions: weights [3]", ShapeError);
  CHECK_THROWS_AS(coverage(zeros({1, 1}, DType::i32)), DTypeError);
}

TEST_CASE("numbers from attention: who stays does not move back; across a row that looks at nothing there is no step") {
  CHECK(attention_numbers(std::vector{tensor({{0, 1}, {0, 1}, {1, 0}})}).monotone_share == 0.5);       // 1, 1, 0
  CHECK(attention_numbers(std::vector{tensor({{0, 1}, {0, 0}, {1, 0}})}).monotone_share == 1);         // 1, -, 0
}
