// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

/// What a forward kernel is told: pointers, strides and sizes only.
///
/// A kernel computes up to 64 rows (a row is one query of one query head) against one key/value
/// head. Row r lies in lane r mod W of register r div W, so everything about a row happens in one
/// lane: no row's bits depend on its mates, and nothing is ever summed across lanes.
namespace attest::kernels {

inline constexpr int block_rows = 64;
inline constexpr int block_keys = 128;

/// How numbers lie in memory.
enum class Storage { f32, f64, bf16, f16 };

/// A matrix in memory: address of its first row, and strides in elements.
struct Matrix {
  const void* data = nullptr;
  std::int64_t row = 0;     // from one row to the next
  std::int64_t column = 0;  // from one column to the next
};

/// Which random bits belong to a row (attest/base/dropout.h).
struct DropoutPlace {
  std::uint32_t b = 0;
  std::uint32_t h = 0;
  std::uint32_t i = 0;
};

/// What is done to scores between the two products; each part absent by default.
///
/// With softcap, bias or ALiBi the products are scaled when these are applied. Otherwise they stay as
/// they are, the exponential's argument alone is scaled, and what rounds is a difference of two scores
/// instead of each of them:
///     weight = 2^(exponent·(score − peak)),  log_sum_exp = peak_factor·peak + log Σ weights
template <class T>
struct Modifiers {
  T scale = 1;                             ///< of the dot product
  T query_factor = 1;                      ///< what queries carry into the dot product
  T exponent = T(1.44269504088896340736);  ///< log2 e, or |scale|·log2 e
  T peak_factor = 1;                       ///< 1, or |scale|
  T softcap = 0;                           ///< 0: none
  T capped_scale = 1;                      ///< scale / softcap
  const T* alibi_slope = nullptr;          ///< [rows]
  const std::int64_t* position = nullptr;  ///< [rows], among the keys
  const void* const* bias = nullptr;       ///< [rows], each the bias of that row for key 0
  std::int64_t bias_step = 0;              ///< from key to key
  Storage bias_storage = Storage::f32;
  const bool* const* visible = nullptr;  ///< [rows], each the mask of that row for key 0
  std::int64_t visible_step = 0;
  const std::int64_t* query_id = nullptr;  ///< [rows]; a row sees keys of its own id
  const std::int64_t* key_id = nullptr;    ///< [S]
  const DropoutPlace* dropout = nullptr;   ///< [rows]
  std::uint64_t seed = 0;
  std::uint32_t dropout_threshold = 0;
  T dropout_scale = 1;       ///< 1 / (1 − rate)
  bool value_guard = false;  ///< keys may be hidden other than by range
};

/// One block of rows against one key/value head.
template <class T>
struct ForwardBlock {
  int rows = 0;  ///< ≤ block_rows
  int D = 0;
  int E = 0;
  Storage storage = Storage::f32;
  const void* const* query = nullptr;  ///< [rows]
  std::int64_t query_step = 1;         ///< from one d to the next
  void* const* output = nullptr;       ///< [rows]; absent: partial results are wanted
  std::int64_t output_step = 1;
  T* log_sum_exp = nullptr;                 ///< [rows], natural; absent: not wanted
  Matrix key;                               // [S, D]
  Matrix value;                             // [S, E]
  const std::int64_t* first_key = nullptr;  ///< [rows], the visible range of each
  const std::int64_t* last_key = nullptr;   ///< [rows], one past it
  const T* sink = nullptr;                  ///< [rows]
  bool nan_if_empty = false;                ///< else 0
  Modifiers<T> modify;
  T* scratch = nullptr;  ///< forward_scratch(D, E) numbers, 64-byte aligned
};

/// How many numbers of scratch a block needs; some products pad D and E to multiples of 32.
constexpr std::int64_t forward_scratch(std::int64_t D, std::int64_t E) {
  const std::int64_t d = (D + 31) / 32 * 32;
  const std::int64_t e = (E + 31) / 32 * 32;
  return block_rows * (d + e + block_keys + 2) + block_keys * (d + 2 * e);
}

/// Few rows against part of the keys, as decoding has them: numbers of a row lie in one register, so a
/// single query uses all lanes. Results of several parts are merged by the caller.
template <class T>
struct DecodeBlock {
  const ForwardBlock<T>* rows = nullptr;  ///< at most decode_rows; its outputs are not used
  std::int64_t begin = 0;                 ///< the part of the keys
  std::int64_t end = 0;
  T* peak = nullptr;    ///< [rows], a score; −∞ if no key was seen
  T* sum = nullptr;     ///< [rows]
  T* output = nullptr;  ///< [rows, decode_row(E)], not yet divided by the sum
};

inline constexpr int decode_rows = 8;
inline constexpr int decode_keys = 64;

/// Columns padded to whole registers of the widest set.
template <class T>
constexpr std::int64_t padded(std::int64_t columns) {
  constexpr std::int64_t widest = 64 / static_cast<std::int64_t>(sizeof(T));
  return (columns + widest - 1) / widest * widest;
}

/// Numbers of a query or an output in decoding: whole registers of 16-bit numbers, too.
constexpr std::int64_t decode_row(std::int64_t columns) { return (columns + 31) / 32 * 32; }

template <class T>
using DecodeKernel = void (*)(const DecodeBlock<T>&);

template <class T>
constexpr std::int64_t decode_scratch(std::int64_t D, std::int64_t E) {
  return decode_rows * (decode_row(D) + decode_row(E) + 2 * decode_keys) + decode_keys * (D + E);
}

/// Rows that saw no key, as bits.
template <class T>
using ForwardKernel = std::uint64_t (*)(const ForwardBlock<T>&);

/// The kernels of one instruction set.
struct ForwardTable {
  ForwardKernel<float> f32 = nullptr;
  ForwardKernel<double> f64 = nullptr;
  ForwardKernel<float> bf16 = nullptr;  ///< of bf16 storage alone; f32 takes it too, and widens
};

struct DecodeTable {
  DecodeKernel<float> f32 = nullptr;
  DecodeKernel<double> f64 = nullptr;
  DecodeKernel<float> bf16 = nullptr;  ///< as in ForwardTable
};

namespace portable {
ForwardTable forward_table();
DecodeTable decode_table();
}  // namespace portable
namespace avx2 {
ForwardTable forward_table();
DecodeTable decode_table();
}  // namespace avx2
namespace avx512 {
ForwardTable forward_table();
DecodeTable decode_table();
}  // namespace avx512
namespace avx512bf16 {
ForwardKernel<float> forward_bf16();
DecodeKernel<float> decode_bf16();
}  // namespace avx512bf16
namespace amx {
ForwardKernel<float> forward_bf16();
}  // namespace amx

}  // namespace attest::kernels
