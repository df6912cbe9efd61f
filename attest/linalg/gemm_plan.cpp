// SPDX-License-Identifier: MIT
#include "attest/linalg/gemm_plan.h"

#include <algorithm>

namespace attest::linalg_detail {
namespace {

constexpr std::int64_t shared_bytes = 6 << 20;     // of packed A, in the last-level cache
constexpr std::int64_t private_bytes = 512 << 10;  // of packed B, in the second-level cache
constexpr std::int64_t most_rows = 3072;           // one packing of B serves all of these
constexpr std::int64_t rows_through_scratch = 1024;
constexpr std::int64_t cols_through_scratch = 1536;
constexpr std::int64_t thin_rows = 8;            // beyond, packing pays if B lies by rows
constexpr std::int64_t thin_group = 4096;        // of K: A stays in the second-level cache
constexpr std::int64_t thin_columns = 1 << 16;   // through scratch
constexpr std::int64_t finish_bytes = 96 << 10;  // of sums, still in the second-level cache

/// `whole` cut into parts of at most `most`, as equal as multiples of `step` can be.
std::int64_t equal_parts(std::int64_t whole, std::int64_t most, std::int64_t step) {
  const std::int64_t parts = (whole + most - 1) / most;
  return round_up((whole + parts - 1) / parts, step);
}

Plan thin_plan(const kernels::GemmKernels& k, const PlannedCall& call) noexcept {
  const std::int64_t width = round_up(call.N, k.col_width);
  return {.thin = true,
          .depth = k.depth_block,
          .group = std::min(round_up(std::max<std::int64_t>(call.K, 1), k.depth_block), thin_group),
          .cols = call.through_scratch ? std::min(width, thin_columns) : width,
          .rows = call.M,
          .row_panels = 1,
          .col_panels = width / k.col_width,
          .pieces_wanted = 4 * std::int64_t{call.threads}};
}

}  // namespace

Plan make_plan(const kernels::GemmKernels& k, const PlannedCall& call) noexcept {
  const std::int64_t few = call.b_by_columns ? kernels::gemm_thin_rows : thin_rows;
  if (k.thin != nullptr && call.M <= few) return thin_plan(k, call);
  Plan plan;
  plan.depth = k.depth_block;
  plan.rows =
      equal_parts(call.M, call.through_scratch ? rows_through_scratch : most_rows, k.row_width);
  const std::int64_t fitting = shared_bytes / (plan.rows * k.packed_bytes);
  plan.group = std::min(round_up(std::max<std::int64_t>(call.K, 1), plan.depth),
                        std::max<std::int64_t>(fitting / plan.depth, 1) * plan.depth);
  plan.cols = call.through_scratch ? equal_parts(call.N, cols_through_scratch, k.col_width)
                                   : round_up(call.N, k.col_width);
  const std::int64_t panel_bytes = plan.depth * k.packed_bytes;
  plan.col_panels = std::max<std::int64_t>(private_bytes / (panel_bytes * k.col_width), 1);
  const std::int64_t sum_bytes = 4 * k.col_width * plan.col_panels;
  plan.row_panels = std::max<std::int64_t>(finish_bytes / (sum_bytes * k.row_width), 1);
  plan.pieces_wanted = call.threads == 1 ? 1 : 4 * static_cast<std::int64_t>(call.threads);
  return plan;
}

Cuts cuts_of(const Plan& plan, std::int64_t row_panels, std::int64_t col_panels,
             int threads) noexcept {
  // Columns first: a worker's own packing of B is then shared by all rows.
  Cuts cuts{.cols = (col_panels + plan.col_panels - 1) / plan.col_panels};
  const std::int64_t narrowest = std::max<std::int64_t>(col_panels / 2, 1);
  cuts.cols = std::max(cuts.cols, std::min(plan.pieces_wanted, narrowest));
  cuts.cols = std::min(round_up(cuts.cols, threads), col_panels);
  if (cuts.cols < threads) {
    cuts.rows = std::min(row_panels, (plan.pieces_wanted + cuts.cols - 1) / cuts.cols);
  }
  return cuts;
}

}  // namespace attest::linalg_detail
