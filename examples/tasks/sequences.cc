// SPDX-License-Identifier: Apache-2.0
// Sequences of symbols: the sources of copy, reverse and sort.
#include <algorithm>
#include <set>

#include "examples/tasks/generate.h"
#include "tensor/format.h"

namespace heed {
namespace {

constexpr Index kMost = Index{1} << 60;

// min(symbols^length, 2⁶⁰)
Index sequences_of_length(Index symbols, Index length) {
  Index n = 1;
  for (Index i = 0; i < length && symbols > 1 && n < kMost; ++i) n = n > kMost / symbols ? kMost : n * symbols;
  return n;
}

}  // namespace

Index count_sequences(Index symbols, Index shortest, Index longest) {
  Index n = 0;
  for (Index length = shortest; length <= longest && n < kMost; ++length)
    n = std::min(kMost, n + sequences_of_length(symbols, length));
  return n;
}

std::vector<TaskPair> make_sequences(Rearrange rearrange, Index symbols, Index shortest, Index longest, Random random,
                                     Index count) {
  struct Length { Index length, left; };   // left: distinct sources not made yet
  std::vector<Length> lengths;
  for (Index length = shortest; length <= longest; ++length) lengths.push_back({length, sequences_of_length(symbols, length)});
  std::set<std::vector<Index>> seen;
  std::vector<TaskPair> pairs;
  while (Index(pairs.size()) < count) {
    const auto at = lengths.begin() + random.below(Index(lengths.size()));
    std::vector<Index> source(std::size_t(at->length));
    for (Index& symbol : source) symbol = 1 + random.below(symbols);
    if (!seen.insert(source).second) continue;
    if (--at->left == 0) lengths.erase(at);
    const Rearranged y = rearrange(source);
    TaskPair pair{fmt::format("{}", fmt::join(source, " ")), fmt::format("{}", fmt::join(y.target, " ")), {}};
    for (std::size_t i = 0; i < source.size(); ++i) pair.alignment.sure.push_back({y.from[i], Index(i)});
    pairs.push_back(std::move(pair));
  }
  return pairs;
}

}  // namespace heed
