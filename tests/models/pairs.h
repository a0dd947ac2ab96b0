// SPDX-License-Identifier: Apache-2.0
// Small random sentence pairs for tests of models.
#pragma once
#include <vector>

#include "models/batch.h"
#include "tensor/random.h"

namespace heed::test {

inline constexpr std::int32_t kPad = 0, kStart = 2, kEnd = 3;
inline constexpr Index kVocabulary = 13;
using Rows = std::vector<std::vector<std::int32_t>>;

// `count` sentences of 1 .. longest words, then eos.
inline Rows random_rows(Key key, int count, int longest) {
  Random random(key);
  Rows rows;
  for (int i = 0; i < count; ++i) {
    std::vector<std::int32_t> row(std::size_t(random.below(longest) + 1));
    for (auto& id : row) id = std::int32_t(4 + random.below(kVocabulary - 4));
    row.push_back(kEnd);
    rows.push_back(row);
  }
  return rows;
}

inline Batch batch_of(const Rows& source, const Rows& target) {
  std::vector<Example> pairs;
  for (std::size_t i = 0; i < source.size(); ++i) pairs.push_back({.source = source[i], .target = target[i]});
  return make_batch(pairs, kPad, kStart);
}

// The same batch with `extra` more padding on both sides.
inline Batch padded(const Batch& b, Index extra) {
  const auto wider = [&](const Tensor& ids) {
    Tensor out = full({ids.size(0), ids.size(1) + extra}, kPad, DType::i32);
    copy_into(out(all, Slice{0, ids.size(1)}), ids);
    return out;
  };
  Batch out = b;
  out.source.ids = wider(b.source.ids);
  out.inputs = wider(b.inputs);
  out.targets = wider(b.targets);
  return out;
}

}  // namespace heed::test
