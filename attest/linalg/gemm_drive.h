// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <thread>

#include "attest/base/threads.h"
#include "attest/base/view.h"
#include "attest/linalg/flush.h"
#include "attest/linalg/gemm_memory.h"
#include "attest/linalg/gemm_plan.h"
#include "attest/linalg/gemm_sums.h"
#include "attest/linalg/kernels/gemm.h"

/// The walk over a matrix product: who packs and multiplies what, and when. For gemm.cpp alone.
namespace attest::linalg_detail {

/// What is worked on between two waits of all workers for each other.
struct Part {
  Range rows, cols, depths;
};

template <class Out, class In, class Sum>
class Driver {
 public:
  Driver(const Product<Out, In, Sum>& product, const Chosen& chosen, ThreadPool& pool)
      : product_(product),
        k_(chosen.kernels),
        pool_(pool),
        sums_(product, chosen),
        plan_(make_plan(k_,
                        {.M = product.c.extent(0),
                         .N = product.c.extent(1),
                         .K = product.a.extent(1),
                         .threads = pool.threads(),
                         .through_scratch = sums_.through_scratch(),
                         .b_by_columns = product.b.strides[0] == 1 && product.b.strides[1] != 1})),
        places_(pool.threads()) {}

  void run() {
    const PlainArithmetic mode;
    const std::int64_t M = product_.c.extent(0);
    const std::int64_t N = product_.c.extent(1);
    const std::int64_t K = product_.a.extent(1);
    reserve();
    for (std::int64_t i = 0; i < M; i += plan_.rows) {
      for (std::int64_t j = 0; j < N; j += plan_.cols) {
        for (std::int64_t k = 0; k == 0 || k < K; k += plan_.group) {
          const Part before = part_;
          part_ = {{i, std::min(i + plan_.rows, M)},
                   {j, std::min(j + plan_.cols, N)},
                   {k, std::min(k + plan_.group, K)}};
          sums_.begin_part(part_.rows.begin, part_.cols.begin);
          a_is_packed_ = before.rows == part_.rows && before.depths == part_.depths;
          plan_.thin ? run_thin() : run_part();
        }
      }
    }
  }

 private:
  /// One allocation: packed A, sums that cannot be kept in C, and what each worker needs.
  void reserve() {
    constexpr std::int64_t slack = 64;
    const std::int64_t M = product_.c.extent(0);
    const std::int64_t rows = round_up(std::min(M, plan_.rows), k_.row_width);
    const std::int64_t a_bytes = round_up(rows * plan_.group * k_.packed_bytes + slack, 64);
    const std::int64_t sums_bytes = sums_.bytes(std::min(plan_.rows, M), plan_.cols);
    place_bytes_ = plan_.thin ? kernels::gemm_thin_room
                              : std::min(plan_.col_panels, plan_.cols / k_.col_width) *
                                        k_.col_width * plan_.depth * k_.packed_bytes +
                                    slack;
    std::byte* const memory = scratch(static_cast<std::size_t>(a_bytes + round_up(sums_bytes, 64) +
                                                               place_bytes_ * pool_.threads()));
    packed_a_ = memory;
    sums_.keep_in(memory + a_bytes, plan_.cols);
    places_begin_ = memory + a_bytes + round_up(sums_bytes, 64);
  }

  // ---- many rows ----

  /// Pieces that pack A come first; those that multiply wait for the last of them.
  void run_part() {
    const std::int64_t row_panels = (length(part_.rows) + k_.row_width - 1) / k_.row_width;
    const std::int64_t col_panels = (length(part_.cols) + k_.col_width - 1) / k_.col_width;
    const Cuts cuts = cuts_of(plan_, row_panels, col_panels, pool_.threads());
    const std::int64_t pack_cuts =
        std::min(row_panels, std::max(plan_.pieces_wanted, row_panels / 16));
    const std::int64_t packs = a_is_packed_ ? 0 : depth_blocks() * pack_cuts;
    std::atomic<std::int64_t> packed = 0;
    pool_.run(packs + cuts.rows * cuts.cols, [&](std::int64_t piece) {
      const PlainArithmetic mode;
      if (piece < packs) {
        pack_shared(piece / pack_cuts, partition(row_panels, pack_cuts, piece % pack_cuts));
        packed.fetch_add(1, std::memory_order_release);
        return;
      }
      while (packed.load(std::memory_order_acquire) < packs) std::this_thread::yield();
      const std::int64_t number = piece - packs;
      multiply(partition(row_panels, cuts.rows, number / cuts.cols),
               partition(col_panels, cuts.cols, number % cuts.cols));
    });
  }

  [[nodiscard]] std::int64_t depth_blocks() const {
    return std::max<std::int64_t>((length(part_.depths) + plan_.depth - 1) / plan_.depth, 1);
  }
  [[nodiscard]] Range depths_of(std::int64_t block) const {
    const std::int64_t begin = part_.depths.begin + block * plan_.depth;
    return {begin, std::min(begin + plan_.depth, part_.depths.end)};
  }

  /// Panels of this part as rows (columns) of the whole, the last one cut off.
  static Range lines_of(Range panels, std::int64_t width, Range within) {
    return {within.begin + panels.begin * width,
            std::min(within.begin + panels.end * width, within.end)};
  }

  /// Where the packed panel of A lies: block by block, and in each block panel by panel.
  [[nodiscard]] std::byte* place_in_a(std::int64_t block, std::int64_t panel) const {
    const std::int64_t rows = round_up(length(part_.rows), k_.row_width);
    const std::int64_t padded = round_up(length(depths_of(block)), k_.depth_step);
    return packed_a_ +
           (block * plan_.depth * rows + panel * k_.row_width * padded) * k_.packed_bytes;
  }

  void pack_shared(std::int64_t block, Range panels) const {
    const Range rows = lines_of(panels, k_.row_width, part_.rows);
    const Range depths = depths_of(block);
    const auto& a = product_.a;
    k_.pack_a({.from = at(a, rows.begin, depths.begin),
               .line_stride = a.strides[0],
               .depth_stride = a.strides[1],
               .lines = length(rows),
               .depth = length(depths),
               .to = place_in_a(block, panels.begin)});
  }

  void multiply(Range row_panels, Range col_panels) {
    const std::size_t place = places_.take();
    std::byte* const own_b = places_begin_ + static_cast<std::int64_t>(place) * place_bytes_;
    const Range cols = lines_of(col_panels, k_.col_width, part_.cols);
    const auto& b = product_.b;
    const std::int64_t blocks = depth_blocks();
    for (std::int64_t block = 0; block < blocks; ++block) {
      const Range depths = depths_of(block);
      k_.pack_b({.from = at(b, depths.begin, cols.begin),
                 .line_stride = b.strides[1],
                 .depth_stride = b.strides[0],
                 .lines = length(cols),
                 .depth = length(depths),
                 .to = own_b});
      const bool first = depths.begin == 0;
      const bool last = depths.end == product_.a.extent(1);
      const bool around = (first && sums_.fetches()) || (last && sums_.finishes());
      const std::int64_t step = around ? plan_.row_panels : row_panels.end - row_panels.begin;
      for (std::int64_t panel = row_panels.begin; panel < row_panels.end; panel += step) {
        const Range rows =
            lines_of({panel, std::min(panel + step, row_panels.end)}, k_.row_width, part_.rows);
        if (first && sums_.fetches()) sums_.fetch(rows, cols);
        k_.multiply({.a = place_in_a(block, panel),
                     .b = own_b,
                     .rows = length(rows),
                     .cols = length(cols),
                     .depth = length(depths),
                     .c = sums_.at(rows.begin, cols.begin),
                     .c_stride = sums_.stride(),
                     .add = !first || product_.accumulate});
        if (last && sums_.finishes()) sums_.finish(rows, cols);
      }
    }
    places_.give_back(place);
  }

  // ---- few rows ----

  void run_thin() {
    const Range depths = part_.depths;
    const std::int64_t panels = (length(part_.cols) + k_.col_width - 1) / k_.col_width;
    const auto& a = product_.a;
    k_.pack_thin({.from = at(a, part_.rows.begin, depths.begin),
                  .line_stride = a.strides[0],
                  .depth_stride = a.strides[1],
                  .lines = length(part_.rows),
                  .depth = length(depths),
                  .to = packed_a_});
    const std::int64_t pieces = std::min(panels, pool_.threads() == 1 ? 1 : plan_.pieces_wanted);
    pool_.run(pieces, [&](std::int64_t piece) {
      const PlainArithmetic mode;
      multiply_thin(lines_of(partition(panels, pieces, piece), k_.col_width, part_.cols));
    });
  }

  void multiply_thin(Range cols) {
    const Range rows = part_.rows;
    const bool first = part_.depths.begin == 0;
    if (first && sums_.fetches()) sums_.fetch(rows, cols);
    const std::size_t place = places_.take();
    const auto& b = product_.b;
    k_.thin({.a = packed_a_,
             .b = at(b, part_.depths.begin, cols.begin),
             .b_depth_stride = b.strides[0],
             .b_col_stride = b.strides[1],
             .rows = length(rows),
             .cols = length(cols),
             .depth = length(part_.depths),
             .c = sums_.at(rows.begin, cols.begin),
             .c_stride = sums_.stride(),
             .add = !first || product_.accumulate,
             .room = places_begin_ + static_cast<std::int64_t>(place) * place_bytes_});
    places_.give_back(place);
    if (part_.depths.end == product_.a.extent(1) && sums_.finishes()) sums_.finish(rows, cols);
  }

  // ---- where things lie ----

  /// No address is formed where there is nothing to point at.
  static const In* at(const View<const In, 2>& m, std::int64_t i, std::int64_t j) {
    const bool empty = m.extent(0) == 0 || m.extent(1) == 0;
    return empty ? m.data : m.data + i * m.strides[0] + j * m.strides[1];
  }

  const Product<Out, In, Sum>& product_;
  const GemmKernels& k_;
  ThreadPool& pool_;
  Sums<Out, In, Sum> sums_;
  const Plan plan_;
  Places places_;
  Part part_;
  bool a_is_packed_ = false;
  std::byte* packed_a_ = nullptr;
  std::byte* places_begin_ = nullptr;
  std::int64_t place_bytes_ = 0;
};

}  // namespace attest::linalg_detail
