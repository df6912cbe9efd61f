// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "attest/attention/kernels/forward.h"
#include "attest/base/attention_call.h"
#include "attest/base/dtype.h"
#include "attest/base/result.h"

/// One attention call without its C++ types: what the drivers of all kernels read. Not public.
namespace attest::engine {

struct Shape {
  std::int64_t B = 0;  // batch
  std::int64_t H = 0;  // query heads
  std::int64_t G = 0;  // key/value heads
  std::int64_t T = 0;  // queries
  std::int64_t S = 0;  // keys
  std::int64_t D = 0;  // query/key width
  std::int64_t E = 0;  // value width

  [[nodiscard]] std::int64_t heads_per_group() const { return G == 0 ? 0 : H / G; }
  /// Rows that read one key/value head: row r is query r div (H/G) of the (r mod (H/G))-th head.
  [[nodiscard]] std::int64_t rows() const { return T * heads_per_group(); }
  /// There is no query at all, so no result but an empty one.
  [[nodiscard]] bool no_query() const { return B == 0 || rows() == 0; }
  /// A forward call of fewer multiply-adds than that, were everything visible.
  [[nodiscard]] bool takes_fewer(double multiply_adds) const {
    const auto pairs = static_cast<double>(B) * static_cast<double>(H) * static_cast<double>(T) *
                       static_cast<double>(S);  // beyond 2^63 for views that repeat their elements
    return pairs * static_cast<double>(D + E) < multiply_adds;
  }
  /// Blocks of rows that read one key/value head.
  [[nodiscard]] std::int64_t blocks() const {
    return (rows() + kernels::block_rows - 1) / kernels::block_rows;
  }
};

/// A tensor of four axes whose number type is a value.
struct Tensor4 {
  const void* data = nullptr;
  kernels::Storage storage = kernels::Storage::f32;
  std::array<std::int64_t, 4> strides{};
};

template <class T>
inline constexpr kernels::Storage storage_of = kernels::Storage::f32;
template <>
inline constexpr kernels::Storage storage_of<double> = kernels::Storage::f64;
template <>
inline constexpr kernels::Storage storage_of<BFloat16> = kernels::Storage::bf16;
template <>
inline constexpr kernels::Storage storage_of<Half> = kernels::Storage::f16;

[[nodiscard]] std::int64_t size_of(kernels::Storage storage);
[[nodiscard]] const void* at(const Tensor4& tensor, std::int64_t a, std::int64_t b, std::int64_t c);

template <class T>
[[nodiscard]] Tensor4 erase(View<const T, 4> view) {
  return {view.data, storage_of<T>, view.strides};
}

/// The call. Bias and visible are broadcast: their strides fit [B, H, T, S].
struct Call {
  Shape shape;
  Tensor4 query, key, value, bias;
  View<const bool, 4> visible{};
  const Mask* mask = nullptr;
  double scale = 1;
  double softcap = 0;  // 0: none
  const std::vector<double>* alibi_slopes = nullptr;
  const std::vector<double>* sink = nullptr;
  Dropout dropout{};
  EmptyRow empty_row = EmptyRow::error;
};

/// Where one row of a call stands, and which range of keys the rules of position leave it.
struct RowRange {
  std::int64_t position = 0;  ///< of the query, as an index of the keys (ALiBi)
  std::int64_t first = 0;
  std::int64_t last = 0;  ///< one past the last; ≤ first if there is none
};

/// Evaluates the mask's rules of position, once for each query.
class Ranges {
 public:
  explicit Ranges(const Call& call);
  [[nodiscard]] RowRange of(std::int64_t b, std::int64_t i) const;
  /// Whether ids must still be compared, key by key, inside a row's range.
  [[nodiscard]] bool ids_scattered() const { return ids_scattered_; }
  [[nodiscard]] std::int64_t query_id(std::int64_t b, std::int64_t i) const;
  [[nodiscard]] const std::int64_t* key_ids(std::int64_t b) const;

 private:
  void find_id_ranges();

  const Mask& mask_;
  Shape shape_;
  bool ids_scattered_ = false;
  bool ids_shared_ = false;             // by all batches
  std::vector<std::int64_t> id_first_;  // [B or 1][T], where ids are given
  std::vector<std::int64_t> id_last_;
};

/// Whether a row may see any key, key by key: for rows whose scores all came out as −∞, be it
/// because every key is hidden or because numbers left their range.
[[nodiscard]] bool sees_a_key(const Call& call, const Ranges& ranges, std::int64_t b,
                              std::int64_t h, std::int64_t i);

/// Everything that a call must satisfy before any arithmetic, checked once.
template <class T, class Bias>
[[nodiscard]] Result<Call> checked_call(const AttentionInputs<T>& inputs,
                                        const AttentionOptions<Bias>& options);

}  // namespace attest::engine
