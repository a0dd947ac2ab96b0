// SPDX-License-Identifier: Apache-2.0
#include "attention/cache.h"

#include <algorithm>

namespace heed {

void KeyValueCache::reserve(Index length) {
  if (length <= keys_.size(2)) return;
  KeyValueCache larger(rows(), keys_.size(1), std::max(length, 2 * keys_.size(2)), keys_.size(3), keys_.dtype());
  larger.length_ = length_;
  copy_into(larger.keys(), keys());
  copy_into(larger.values(), values());
  *this = std::move(larger);
}

void KeyValueCache::append(const Tensor& keys, const Tensor& values) {
  const Index end = length_ + keys.size(2);
  reserve(end);
  copy_into(keys_(all, all, Slice{length_, end}), keys);
  copy_into(values_(all, all, Slice{length_, end}), values);
  length_ = end;
}

void KeyValueCache::reorder(std::span<const Index> rows) {
  const Index count = Index(rows.size());
  // Copying in place is right when no row is read after it was overwritten; else the sources are kept aside first.
  bool in_place = count <= this->rows();
  for (Index i = 0; i < count && in_place; ++i)
    in_place = rows[std::size_t(i)] == i || rows[std::size_t(i)] >= count || rows[std::size_t(rows[std::size_t(i)])] == rows[std::size_t(i)];
  const Tensor key_source = in_place ? keys() : keys().clone(), value_source = in_place ? values() : values().clone();
  if (count > this->rows()) {
    const Index length = length_;
    *this = KeyValueCache(count, keys_.size(1), keys_.size(2), keys_.size(3), keys_.dtype());
    length_ = length;
    in_place = false;
  }
  for (Index i = 0; i < count; ++i) {
    const Index from = rows[std::size_t(i)];
    if (from == i && in_place) continue;
    copy_into(keys()[i], key_source[from]);
    copy_into(values()[i], value_source[from]);
  }
  if (count < this->rows()) {
    keys_ = keys_(Slice{0, count});
    values_ = values_(Slice{0, count});
  }
}

}  // namespace heed
