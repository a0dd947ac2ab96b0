// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <exception>
#include <span>

#include "tensor/list.h"
#include "tensor/ops/attention.h"

namespace heed {

// Keys and values of the positions decoded so far, in memory taken once for `capacity` positions; beyond those it grows by a copy. Nothing
// else in it moves: a row that continues another reads its past where that was written. Keys are turned once, 16 at a time,
// as the kernel of attention reads them.
class KeyValueCache {
 public:
  KeyValueCache() = default;
  KeyValueCache(KeyValueCache&&) = default;                                // a copy would write where this one does
  KeyValueCache& operator=(KeyValueCache&&) = default;
  struct Heads { Index number, width; };
  // summed: the heads that sums are kept for; in_rows: keys are never turned, for an attention that multiplies them as they are
  KeyValueCache(Index rows, Heads keys, Heads values, Index capacity, DType dtype, Index summed = 0, bool in_rows = false)
      : in_rows_(in_rows),
        sums_(summed ? zeros({rows, summed, keys.width, values.width + 1}, dtype) : Tensor()),
        keys_(empty({rows, keys.number, capacity, keys.width}, dtype)),
        values_(empty({rows, values.number, capacity, values.width}, dtype)),
        rows_(rows) {}

  Index length() const { return length_; }
  Index rows() const { return rows_; }
  Tensor keys() const { return rows_of(keys_in_rows(written(keys_), turned())); }   // [R, H, length, d/H], values likewise
  Tensor values() const { return rows_of(written(values_)); }

  // What AttentionOptions reads instead: position s of row r stands at [places[r, s], :, s]; places is undefined where that is r itself.
  // [P, H, length, d/H], the first turned() as turn_keys_ leaves them
  Tensor stored_keys() const { return written(keys_); }
  Tensor stored_values() const { return written(values_); }
  Index turned() const { return in_rows_ ? 0 : length_ / kTurnedKeys * kTurnedKeys; }
  Tensor places() const { return places_.defined() ? places_(all, Slice{0, length_}) : Tensor(); }   // [R, length] i64

  // What linear attention reads: Σ_j k_jᵀ [v_j, 1] of each head, which causal_linear_context_next moves on   [R, H, dk, dv + 1], or undefined
  const Tensor& sums() const { return sums_; }

  // Appends the keys and values of n new positions, [R, H, n, d/H] each. ShapeError, DTypeError: others, and the cache stays as it is.
  void append(const Tensor& keys, const Tensor& values);
  // Forgets the positions from `length` on; the sums become those of the ones that stay. IndexError beyond the end
  void truncate(Index length);
  // Row i continues what row rows[i] held; rows that none continues are dropped. IndexError where there is no such row.
  void reorder(std::span<const Index> rows);

 private:
  Tensor written(const Tensor& x) const { return x(places_.defined() ? all : Slice{0, rows_}, all, Slice{0, length_}); }
  Tensor rows_of(const Tensor& written) const { return places_.defined() ? gather_places(written, places()) : written; }
  void reserve(Index rows, Index length);
  bool in_rows_ = false;
  Tensor sums_, keys_, values_;
  Tensor places_;            // [R, capacity]
  Index rows_ = 0, length_ = 0;
};

// Left by an exception, its caches forget what was appended since it was made.
class Appending {
 public:
  explicit Appending(std::span<KeyValueCache> caches) : caches_(caches) {
    for (const KeyValueCache& cache : caches) before_.push_back(cache.length());
  }
  explicit Appending(KeyValueCache& cache) : Appending(std::span(&cache, 1)) {}
  Appending(const Appending&) = delete;
  ~Appending() {
    if (std::uncaught_exceptions() == thrown_) return;
    for (std::size_t k = 0; k < caches_.size(); ++k) caches_[k].truncate(before_[k]);
  }

 private:
  std::span<KeyValueCache> caches_;
  List<Index> before_;
  int thrown_ = std::uncaught_exceptions();
};

}  // namespace heed
