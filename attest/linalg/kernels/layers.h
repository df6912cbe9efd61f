// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

/// What the layers (softmax, norms, activations, rotary positions) and their kernels tell each other.
/// Data alone: nothing here is compiled differently for any instruction set.
///
/// Every kernel comes once per storage type, in the order f64, f32, f16, bf16. Arithmetic is double
/// for f64 and float for the others, called T below. Strides count elements; a row's numbers lie
/// beside each other.
namespace attest::kernels {

inline constexpr int storage_types = 4;

struct RowsIn {
  const void* data = nullptr;
  std::int64_t stride = 0;  // from row to row
};
struct RowsOut {
  void* data = nullptr;
  std::int64_t stride = 0;
};

/// Rows of numbers to rows of numbers. An output may be the same memory as an input, row by row.
struct RowJob {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  RowsIn in[3] = {};
  RowsOut out[2] = {};
  int choice = 0;  // of the activation, in the order of attest::Activation
};
using RowKernel = void (*)(const RowJob&) noexcept;

struct SoftmaxTable {
  RowKernel softmax[storage_types];               // in: x; out: y
  RowKernel log_softmax[storage_types];           // in: x; out: y
  RowKernel softmax_backward[storage_types];      // in: y, d_y; out: d_x
  RowKernel log_softmax_backward[storage_types];  // in: y, d_y; out: d_x
};

struct ActivationTable {
  RowKernel forward[storage_types];         // in: x; out: y
  RowKernel backward[storage_types];        // in: x, d_y; out: d_x
  RowKernel gated[storage_types];           // in: gate, up; out: y
  RowKernel gated_backward[storage_types];  // in: gate, up, d_y; out: d_gate, d_up
};

/// Rows to normalised rows.
struct NormJob {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  RowsIn x{};
  RowsOut y{};
  const void* gain = nullptr;  // [cols] or nothing
  const void* bias = nullptr;
  double epsilon = 0;
  bool centred = true;   // false: deviations are measured from zero
  void* mean = nullptr;  // T [rows], or nothing
  std::int64_t mean_stride = 0;
  void* inverse = nullptr;  // T [rows], or nothing: 1/√(variance + ε)
  std::int64_t inverse_stride = 0;
};

struct NormBackwardJob {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  RowsIn x{};
  RowsIn d_y{};
  RowsOut d_x{};  // may be nothing
  const void* gain = nullptr;
  bool centred = true;
  const void* mean = nullptr;  // T [rows]
  std::int64_t mean_stride = 0;
  const void* inverse = nullptr;
  std::int64_t inverse_stride = 0;
  void* d_gain = nullptr;  // T [cols], added to; both or neither
  void* d_bias = nullptr;
};

/// to[c] = Σ over the parts, in their order, of part[c]; parts are `cols` numbers of T long.
struct NormSumJob {
  std::int64_t parts = 0;
  std::int64_t part_stride = 0;
  std::int64_t cols = 0;
  const void* from = nullptr;
  void* to = nullptr;
};

struct NormTable {
  void (*forward[storage_types])(const NormJob&) noexcept;
  void (*backward[storage_types])(const NormBackwardJob&) noexcept;
  void (*sum_f64)(const NormSumJob&) noexcept;
  void (*sum_f32)(const NormSumJob&) noexcept;
};

/// Rows of all heads at consecutive places t, each turned by the table's row t.
///
///     half          y[i] = x[i]·cos[i] − x[i+pairs]·sin[i],  y[i+pairs] = x[i+pairs]·cos[i] + x[i]·sin[i]
///     interleaved   the same for 2i and 2i+1; the tables then hold each cosine twice, and −sin, sin
struct RopeJob {
  std::int64_t heads = 0;
  std::int64_t places = 0;
  std::int64_t width = 0;  // numbers in a row; those from 2·pairs on are copied
  std::int64_t pairs = 0;
  bool interleaved = false;
  const void* x = nullptr;
  std::int64_t x_head = 0;  // strides
  std::int64_t x_place = 0;
  void* y = nullptr;  // may be x, with the same strides
  std::int64_t y_head = 0;
  std::int64_t y_place = 0;
  const void* cos = nullptr;  // T [places, pairs], or [places, 2·pairs] if interleaved
  const void* sin = nullptr;
};

struct RopeTable {
  void (*turn[storage_types])(const RopeJob&) noexcept;
};

namespace portable {
[[nodiscard]] SoftmaxTable softmax_table() noexcept;
[[nodiscard]] NormTable norm_table() noexcept;
[[nodiscard]] ActivationTable activation_table() noexcept;
[[nodiscard]] RopeTable rope_table() noexcept;
}  // namespace portable
namespace avx2 {
[[nodiscard]] SoftmaxTable softmax_table() noexcept;
[[nodiscard]] NormTable norm_table() noexcept;
[[nodiscard]] ActivationTable activation_table() noexcept;
[[nodiscard]] RopeTable rope_table() noexcept;
}  // namespace avx2
namespace avx512 {
[[nodiscard]] SoftmaxTable softmax_table() noexcept;
[[nodiscard]] NormTable norm_table() noexcept;
[[nodiscard]] ActivationTable activation_table() noexcept;
[[nodiscard]] RopeTable rope_table() noexcept;
}  // namespace avx512

}  // namespace attest::kernels
