// SPDX-License-Identifier: Apache-2.0
#include "tensor/packed.h"

#include <mutex>

#include "tensor/gemm.h"
#include "tensor/gemm_bfloat16.h"
#include "tensor/parallel.h"

namespace heed {
namespace {
thread_local PackedWeights* used = nullptr;
}

PackedWeights::Use::Use(PackedWeights& weights) : previous_(used) { used = &weights; }
PackedWeights::Use::~Use() { used = previous_; }

PackedWeights* PackedWeights::current() { return used; }

void PackedWeights::forget_unused() {
  Map<const std::byte*, int> others;   // who hold a storage besides the entries, which may be parts of one
  for (const auto& [key, entry] : entries_) {
    const Storage& storage = entry.weight.storage();
    --others.try_emplace(storage.data(), storage.references()).first->second;
  }
  std::erase_if(entries_, [&](const auto& item) { return others.at(item.second.weight.storage().data()) == 0; });
}

PackedWeight PackedWeights::operator()(const Tensor& weight) {
  return visit_float(weight.dtype(), "packed weights", [&]<class T>() -> PackedWeight {
    const T* w = weight.data<T>();
    const Index n = weight.size(0), k = weight.size(1), b_column = weight.strides()[0], b_k = weight.strides()[1];
    const auto key = std::tuple(static_cast<const void*>(w), n, k, b_column, b_k);
    {
      const std::shared_lock lock(mutex_);
      const auto at = entries_.find(key);
      if (at != entries_.end() && at->second.version == weight.version() && (at->second.panels || at->second.low_precision))
        return at->second.packed();
    }
    const std::unique_lock lock(mutex_);
    const Alone alone;   // a thread inside a region may wait for this lock
    const auto [at, first] = entries_.try_emplace(key, Entry{weight, weight.version(), {}, {}});
    Entry& entry = at->second;
    if (first) forget_unused();
    const bool written = entry.version != weight.version();
    if (written) entry = {weight, weight.version(), {}, {}};
    if (precision_ != Precision::float32) {
      if (!entry.low_precision) entry.low_precision = std::make_unique<const LowPrecisionWeight>(weight, precision_);
    } else if (!first && !written && !entry.panels && product_precision() == Precision::float32) {   // others read no panels
      entry.panels = pack(k, n, w, b_k, b_column);
    }
    return entry.packed();
  });
}

}  // namespace heed
