// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "attest/linalg/kernels/gemm.h"

/// How `gemm` cuts a product; of interest to gemm.cpp alone.
namespace attest::linalg_detail {

constexpr std::int64_t round_up(std::int64_t count, std::int64_t step) {
  return (count + step - 1) / step * step;
}

/// How a product is cut. Bits do not depend on it: each element of C is a sum of blocks of K in
/// their order, each block one sum in the order of k, wherever the cuts of M and N are.
struct Plan {
  bool thin = false;            // few rows: B is read where it lies
  std::int64_t depth = 0;       // of a block of K
  std::int64_t group = 0;       // of K that is packed together, a multiple of depth
  std::int64_t cols = 0;        // of N that are worked on together
  std::int64_t rows = 0;        // of M, likewise: so many of A are packed for all workers
  std::int64_t row_panels = 0;  // of A between two looks at what follows the sum
  std::int64_t col_panels = 0;  // most panels of B in a piece, which packs its own
  std::int64_t pieces_wanted = 1;
};

/// What a plan depends on.
struct PlannedCall {
  std::int64_t M = 0;
  std::int64_t N = 0;
  std::int64_t K = 0;
  int threads = 1;
  bool through_scratch = false;  // sums are not kept in C
  bool b_by_columns = false;     // the numbers of a column of B lie beside each other
};

[[nodiscard]] Plan make_plan(const kernels::GemmKernels& k, const PlannedCall& call) noexcept;

/// Into how many parts rows and columns of A and B are cut for the workers.
struct Cuts {
  std::int64_t rows = 1;
  std::int64_t cols = 1;
};
[[nodiscard]] Cuts cuts_of(const Plan& plan, std::int64_t row_panels, std::int64_t col_panels,
                           int threads) noexcept;

}  // namespace attest::linalg_detail
