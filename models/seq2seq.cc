// SPDX-License-Identifier: Apache-2.0
#include "models/seq2seq.h"

#include <algorithm>

#include "tensor/format.h"

namespace heed {

Sequences pad_sequences(std::span<const std::span<const std::int32_t>> rows, std::int32_t pad) {
  Index longest = 0;
  for (const auto& row : rows) longest = std::max(longest, Index(row.size()));
  const Index B = Index(rows.size());
  Sequences out{empty({B, longest}, DType::i32), empty({B}, DType::i32)};
  auto* ids = out.ids.mutable_data<std::int32_t>();
  auto* lengths = out.lengths.mutable_data<std::int32_t>();
  for (Index b = 0; b < B; ++b) {
    const auto& row = rows[std::size_t(b)];
    std::fill(std::copy(row.begin(), row.end(), ids + b * longest), ids + (b + 1) * longest, pad);
    lengths[b] = std::int32_t(row.size());
  }
  return out;
}

Sequences pad_sequences(std::span<const std::vector<std::int32_t>> rows, std::int32_t pad) {
  return pad_sequences(List<std::span<const std::int32_t>>(rows.begin(), rows.end()), pad);
}

Variable Loss::mean() const { return tokens > 0 ? sum * (1.0 / double(tokens)) : sum * 0.0; }

}  // namespace heed
