// SPDX-License-Identifier: Apache-2.0
#include "attention/cache.h"

#include <algorithm>

#include "attention/linear_attention.h"
#include "tensor/format.h"
#include "tensor/ops/index.h"

namespace heed {
namespace {

void copy_row(const Tensor& to, Index i, const Tensor& from, Index j, Index length) {
  std::copy_n(from.data<std::int64_t>() + j * from.size(1), length, to.mutable_data<std::int64_t>() + i * to.size(1));
}

}  // namespace

void KeyValueCache::reserve(Index rows, Index length) {
  const Index before = keys_.size(0), capacity = keys_.size(2);
  if (rows <= before && length <= capacity) return;
  KeyValueCache larger(std::max(rows, before), {keys_.size(1), keys_.size(3)}, {values_.size(1), values_.size(3)},
                       length <= capacity ? capacity : std::max(length, 2 * capacity), keys_.dtype(), 0, in_rows_);
  copy_into(larger.keys_(Slice{0, before}, all, Slice{0, length_}), keys_(all, all, Slice{0, length_}));
  copy_into(larger.values_(Slice{0, before}, all, Slice{0, length_}), values_(all, all, Slice{0, length_}));
  if (places_.defined()) {
    larger.places_ = empty({rows_, larger.keys_.size(2)}, DType::i64);
    for (Index i = 0; i < rows_; ++i) copy_row(larger.places_, i, places_, i, length_);
  }
  larger.sums_ = sums_;
  larger.rows_ = rows_;
  larger.length_ = length_;
  *this = std::move(larger);
}

void KeyValueCache::append(const Tensor& keys, const Tensor& values) {
  check<Error>(keys_.defined(), "cache: it is empty (default constructed); cache(rows, capacity) of an attention makes one");
  const Index n = keys.rank() == 4 ? keys.size(2) : 0, end = length_ + n;
  const Shape expected{rows_, keys_.size(1), n, keys_.size(3)}, of_values{rows_, values_.size(1), n, values_.size(3)};
  check<ShapeError>(keys.shape() == expected && values.shape() == of_values,
                    "cache: keys need [{}, {}, n, {}], values [{}, {}, n, {}]: keys {}, values {}", rows_, keys_.size(1), keys_.size(3),
                    rows_, values_.size(1), values_.size(3), keys.shape(), values.shape());
  check<DTypeError>(keys.dtype() == keys_.dtype() && values.dtype() == keys_.dtype(), "cache: dtypes differ: keys {}, values {}, cache {}",
                    keys.dtype(), values.dtype(), keys_.dtype());
  reserve(rows_, end);
  copy_into(keys_(Slice{0, rows_}, all, Slice{length_, end}), keys);
  copy_into(values_(Slice{0, rows_}, all, Slice{length_, end}), values);
  if (places_.defined())
    for (Index i = 0; i < rows_; ++i) std::fill_n(places_.mutable_data<std::int64_t>() + i * places_.size(1) + length_, end - length_, i);
  const Index turned_before = turned();
  length_ = end;
  turn_keys_(stored_keys(), turned_before, turned());
}

void KeyValueCache::truncate(Index length) {
  check<IndexError>(length >= 0 && length <= length_, "cache: length {} is not in [0, {}]", length, length_);
  if (length == length_) return;
  const Index turned_before = turned();
  const Tensor stored = stored_keys();
  length_ = length;
  turn_keys_back_(stored, turned(), turned_before);
  if (!sums_.defined()) return;
  fill_(sums_, 0);
  const Tensor k = with_heads(keys(), sums_.size(1)), v = with_heads(values(), sums_.size(1));
  causal_linear_context_next(k, k, v, sums_);
}

void KeyValueCache::reorder(std::span<const Index> rows) {
  const Index count = Index(rows.size());
  for (const Index from : rows) check<IndexError>(from >= 0 && from < rows_, "cache: row {} is not in [0, {})", from, rows_);
  bool in_place = !places_.defined() && count <= rows_;
  for (Index i = 0; i < count && in_place; ++i) in_place = rows[std::size_t(i)] == i;
  if (!in_place) {
    reserve(count, length_);
    const Tensor before = places_;
    places_ = empty({count, keys_.size(2)}, DType::i64);
    for (Index i = 0; i < count; ++i) {
      const Index from = rows[std::size_t(i)];
      if (before.defined()) copy_row(places_, i, before, from, length_);
      else std::fill_n(places_.mutable_data<std::int64_t>() + i * places_.size(1), length_, from);
    }
  }
  if (sums_.defined() && !in_place) sums_ = index_select(sums_, 0, tensor(std::vector<std::int64_t>(rows.begin(), rows.end()), {count}));
  else if (sums_.defined()) sums_ = sums_(Slice{0, count});
  rows_ = count;
}

}  // namespace heed
