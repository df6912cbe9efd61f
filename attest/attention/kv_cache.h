// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "attest/base/dtype.h"
#include "attest/base/result.h"
#include "attest/base/tensor.h"
#include "attest/base/view.h"

namespace attest {

/// What becomes of a cache that is full.
enum class Growth {
  fixed,     ///< an append that does not fit is an error; the memory never moves
  doubling,  ///< the capacity doubles as often as is needed, and what is filled is copied
};

/// The extents of a cache, said once.
struct KvCacheShape {
  std::int64_t B = 1;         ///< batch
  std::int64_t G = 1;         ///< key/value heads
  std::int64_t capacity = 0;  ///< keys that it can hold
  std::int64_t D = 1;         ///< key width
  std::int64_t E = 1;         ///< value width
};

/// The keys and values that decoding has seen, side by side in memory that is filled from the left.
///
///     cache.append(key, value);                                     // [B, G, n, D], [B, G, n, E]
///     attention(query, cache.key(), cache.value(), {.mask = Mask::causal_at(cache.offset())});
///
/// Shapes        memory [B, G, capacity, D] and [B, G, capacity, E]. `key()` and `value()` are
///               views of the filled part [B, G, length, ·], whose strides are those of the whole:
///               they go into `attention` as they are, and nothing is copied.
/// Mask picture  `offset()` is the place of the first key of the latest append, which is where its
///               queries stand: Mask::causal_at(offset()) and Mask::causal_bottom_right() say the
///               same for as many queries as keys were appended.
/// Edge cases    n may be 0: then only offset() moves, to length(). What is appended may be a part
///               of this cache. A failed append changes nothing.
/// Determinism   numbers are moved, never changed. With Reproducible::per_row, decoding from a
///               cache gives the bits of one call with all queries.
/// Fails         (try_append, try_make) shape-mismatch, bad-option for a negative extent or count,
///               too-large, cache-full. The others throw these as ShapeError and ValueError.
/// Cost          append: B·G·n rows moved. Views stay good until the next append that grows.
/// See also      attention · merge_attention (for caches in pieces) · onnx_attention.
template <class T>
class KvCache {
 public:
  explicit KvCache(const KvCacheShape& shape, Growth growth = Growth::fixed)
      : KvCache(try_make(shape, growth).value()) {}
  [[nodiscard]] static Result<KvCache> try_make(const KvCacheShape& shape,
                                                Growth growth = Growth::fixed);

  void append(View<const T, 4> key, View<const T, 4> value) { try_append(key, value).value(); }
  [[nodiscard]] Result<void> try_append(View<const T, 4> key, View<const T, 4> value);

  /// Forgets all keys from `length` on, as for a branch that was not taken. The memory is kept.
  void truncate(std::int64_t length) { try_truncate(length).value(); }
  [[nodiscard]] Result<void> try_truncate(std::int64_t length);
  void clear() noexcept { length_ = offset_ = 0; }

  [[nodiscard]] View<const T, 4> key() const { return filled(key_); }      // [B, G, length, D]
  [[nodiscard]] View<const T, 4> value() const { return filled(value_); }  // [B, G, length, E]

  [[nodiscard]] std::int64_t length() const noexcept { return length_; }
  [[nodiscard]] std::int64_t capacity() const noexcept { return key_.extent(2); }
  [[nodiscard]] std::int64_t offset() const noexcept { return offset_; }

 private:
  KvCache(Tensor<T> key, Tensor<T> value, Growth growth);

  [[nodiscard]] Result<void> check(View<const T, 4> key, View<const T, 4> value) const;
  [[nodiscard]] View<const T, 4> filled(const Tensor<T>& whole) const {
    View<const T, 4> view = whole.template view<4>();
    view.extents[2] = length_;
    return view;
  }

  Tensor<T> key_;    // [B, G, capacity, D]
  Tensor<T> value_;  // [B, G, capacity, E]
  Growth growth_ = Growth::fixed;
  std::int64_t length_ = 0;
  std::int64_t offset_ = 0;
};

}  // namespace attest
