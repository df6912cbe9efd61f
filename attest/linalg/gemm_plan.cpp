// SPDX-License-Identifier: MIT
#include "attest/linalg/gemm_plan.h"

#include <algorithm>

namespace attest::linalg_detail {
namespace {

constexpr std::int64_t thin_rows = 8;              // up to here B is not worth packing for all
constexpr std::int64_t shared_bytes = 4 << 20;     // of packed B, in the last-level cache
constexpr std::int64_t private_bytes = 240 << 10;  // of packed A, in the second-level cache
constexpr std::int64_t thin_bytes = 512 << 10;     // of packed B, if each piece packs its own
constexpr std::int64_t blocks_together = 8;        // of K
constexpr std::int64_t rows_through_scratch = 2048;
constexpr std::int64_t cols_through_scratch = 512;

}  // namespace

Plan make_plan(const kernels::GemmKernels& k, const PlannedCall& call) noexcept {
  Plan plan;
  plan.thin = call.M <= thin_rows;
  plan.depth = k.depth_block;
  plan.group = std::min(round_up(std::max<std::int64_t>(call.K, 1), plan.depth),
                        blocks_together * plan.depth);
  const std::int64_t width = round_up(std::max<std::int64_t>(call.N, 1), k.col_width);
  const std::int64_t fitting = shared_bytes / (plan.group * k.packed_bytes);
  plan.cols = std::min(width, std::max<std::int64_t>(fitting / k.col_width, 1) * k.col_width);
  if (call.through_scratch) {
    plan.cols = std::min(plan.cols, cols_through_scratch);
  } else if (plan.thin) {
    plan.cols = width;
  }
  plan.rows = call.through_scratch ? rows_through_scratch : std::max<std::int64_t>(call.M, 1);
  const std::int64_t panel_bytes = plan.depth * k.packed_bytes;
  plan.row_panels = std::max<std::int64_t>(private_bytes / (panel_bytes * k.row_width), 2);
  plan.col_panels = plan.cols / k.col_width;
  if (plan.thin) {
    // Long runs of memory: whole columns where they lie so, else as much of a row as there is room.
    const std::int64_t room = thin_bytes / (panel_bytes * k.col_width);
    plan.col_panels = call.b_by_columns ? 2 : std::max<std::int64_t>(room, 1);
  }
  plan.pieces_wanted = call.threads == 1 ? 1 : 4 * static_cast<std::int64_t>(call.threads);
  return plan;
}

}  // namespace attest::linalg_detail
