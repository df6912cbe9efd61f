// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

/// What the matrix product's driver (attest/linalg/gemm.cpp) and its kernels tell each other. Data
/// alone: nothing here is compiled differently for any instruction set.
namespace attest::kernels {

/// Copies a matrix into panels: `width` lines beside each other, all their numbers of one depth
/// together. A line is a row of A or a column of B. Lines beyond `lines` in the last panel, and
/// depths up to the next multiple of the kernel's step, are zeros.
struct GemmPack {
  const void* from = nullptr;
  std::int64_t line_stride = 0;   // in elements
  std::int64_t depth_stride = 0;  // in elements
  std::int64_t lines = 0;
  std::int64_t depth = 0;
  void* to = nullptr;  // nothing beyond the last panel is written
};

/// C = A·B or C + A·B for packed A and B; C has columns beside each other.
struct GemmBlock {
  const void* a = nullptr;
  const void* b = nullptr;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t depth = 0;
  void* c = nullptr;
  std::int64_t c_stride = 0;  // from row to row, in elements
  bool add = false;
};

/// C = A·B or C + A·B for few rows, summed as `GemmBlock`s would be; B is read where it lies.
struct GemmThin {
  const void* a = nullptr;  // as `pack_thin` makes it
  const void* b = nullptr;
  std::int64_t b_depth_stride = 0;  // in elements
  std::int64_t b_col_stride = 0;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t depth = 0;  // any: blocks are cut by the kernel
  void* c = nullptr;
  std::int64_t c_stride = 0;
  bool add = false;
  void* room = nullptr;  // `gemm_thin_room` bytes, aligned to 64
};

/// Most rows of a `GemmThin`, and what it needs of memory.
inline constexpr std::int64_t gemm_thin_rows = 16;
inline constexpr std::int64_t gemm_thin_room = 48 << 10;

/// The kernels for one number type.
struct GemmKernels {
  std::int64_t row_width = 0;     // rows of A in a panel
  std::int64_t col_width = 0;     // columns of B in a panel
  std::int64_t depth_step = 1;    // packed depths are padded to a multiple of this
  std::int64_t depth_block = 0;   // K is summed in blocks of this length, a multiple of depth_step
  std::int64_t packed_bytes = 0;  // of one packed number
  void (*pack_a)(const GemmPack&) noexcept = nullptr;
  void (*pack_b)(const GemmPack&) noexcept = nullptr;
  void (*multiply)(const GemmBlock&) noexcept = nullptr;
  void (*pack_thin)(const GemmPack&) noexcept = nullptr;  // line by line, nothing between
  void (*thin)(const GemmThin&) noexcept = nullptr;  // or nothing: then few rows are packed too
};

/// What follows the last addition, as numbers: 0 nothing, then as attest::Activation, one higher.
enum class GemmActivation : int { none, relu, gelu_erf, gelu_tanh, silu };

/// Bias and activation, in place, of rows of sums.
struct GemmFinish {
  void* c = nullptr;
  std::int64_t c_stride = 0;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  const void* bias = nullptr;  // [cols], beside each other, or nothing
  GemmActivation activation = GemmActivation::none;
};

/// Rounds `count` floats to 16 bits, to nearest even; NaN stays NaN.
using RoundTo16 = void (*)(const float* from, std::uint16_t* to, std::int64_t count) noexcept;

/// All of one instruction set.
struct GemmTable {
  GemmKernels f32;
  GemmKernels f64;
  GemmKernels f16;   // sums in f32
  GemmKernels bf16;  // sums in f32
  void (*finish_f32)(const GemmFinish&) noexcept = nullptr;
  void (*finish_f64)(const GemmFinish&) noexcept = nullptr;
  RoundTo16 round_to_f16 = nullptr;
  RoundTo16 round_to_bf16 = nullptr;
};

namespace portable {
[[nodiscard]] GemmTable gemm_table() noexcept;
}
namespace avx2 {
[[nodiscard]] GemmTable gemm_table() noexcept;
}
namespace avx512 {
[[nodiscard]] GemmTable gemm_table() noexcept;
}
// Only the row for bfloat16 is theirs; the others are avx512's.
namespace avx512bf16 {
[[nodiscard]] GemmKernels gemm_bf16() noexcept;
}
namespace amx {
[[nodiscard]] GemmKernels gemm_bf16() noexcept;
}

}  // namespace attest::kernels
