// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <type_traits>
#include <vector>

#include "attest/base/dtype.h"
#include "attest/base/tensor.h"
#include "attest/base/threads.h"
#include "attest/base/view.h"
#include "attest/linalg/flush.h"
#include "attest/linalg/gemm_plan.h"
#include "attest/linalg/kernels/gemm.h"

/// The walk over a matrix product: who packs and multiplies what, in which memory. For gemm.cpp alone.
namespace attest::linalg_detail {

using kernels::GemmActivation;
using kernels::GemmKernels;

/// What differs between number types: which kernels, and what follows them.
struct Chosen {
  const GemmKernels& kernels;
  void (*finish)(const kernels::GemmFinish&) noexcept;
  kernels::RoundTo16 round;
};

/// Scratch that a thread keeps from call to call, since fresh pages cost more than a small product.
inline std::byte* scratch(std::size_t bytes) {
  thread_local detail::AlignedBytes memory;
  thread_local std::size_t size = 0;
  if (bytes > size) {
    memory.reset();
    size = 0;
    memory = detail::aligned_bytes(bytes);
    size = bytes;
  }
  return memory.get();
}

/// Places that pieces at work at the same time use one each of; there is one for each worker.
class Places {
 public:
  explicit Places(int count) : taken_(static_cast<std::size_t>(count)) {}
  std::size_t take() noexcept {
    for (std::size_t i = 0;; i = (i + 1) % taken_.size()) {
      if (!taken_[i].exchange(true, std::memory_order_acquire)) return i;
    }
  }
  void give_back(std::size_t place) noexcept {
    taken_[place].store(false, std::memory_order_release);
  }

 private:
  std::vector<std::atomic<bool>> taken_;
};

template <class Out, class In, class Sum>
struct Product {
  View<Out, 2> c;
  View<const In, 2> a;
  View<const In, 2> b;
  const Sum* bias = nullptr;  // [N], beside each other
  GemmActivation activation = GemmActivation::none;
  bool accumulate = false;
};

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
        chosen_(chosen),
        pool_(pool),
        through_scratch_(!std::is_same_v<Out, Sum> ||
                         (product.c.strides[1] != 1 && product.c.extent(1) > 1)),
        plan_(make_plan(k_,
                        {.M = product.c.extent(0),
                         .N = product.c.extent(1),
                         .K = product.a.extent(1),
                         .threads = pool.threads(),
                         .through_scratch = through_scratch_,
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
          a_is_packed_ = before.rows == part_.rows && before.depths == part_.depths;
          plan_.thin ? run_thin() : run_part();
        }
      }
    }
  }

 private:
  static std::int64_t length(Range range) { return range.end - range.begin; }

  /// One allocation: packed A, sums that cannot be kept in C, and what each worker needs.
  void reserve() {
    constexpr std::int64_t slack = 64;
    const std::int64_t M = product_.c.extent(0);
    const std::int64_t rows = round_up(std::min(M, plan_.rows), k_.row_width);
    const std::int64_t a_bytes = round_up(rows * plan_.group * k_.packed_bytes + slack, 64);
    const std::int64_t sums_bytes = through_scratch_ ? std::min(plan_.rows, M) * plan_.cols *
                                                           static_cast<std::int64_t>(sizeof(Sum))
                                                     : 0;
    place_bytes_ = plan_.thin ? kernels::gemm_thin_room
                              : std::min(plan_.col_panels, plan_.cols / k_.col_width) *
                                        k_.col_width * plan_.depth * k_.packed_bytes +
                                    slack;
    std::byte* const memory = scratch(static_cast<std::size_t>(a_bytes + round_up(sums_bytes, 64) +
                                                               place_bytes_ * pool_.threads()));
    packed_a_ = memory;
    sums_ = reinterpret_cast<Sum*>(memory + a_bytes);
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
      const bool around =
          (first && through_scratch_ && product_.accumulate) || (last && finishes());
      const std::int64_t step = around ? plan_.row_panels : row_panels.end - row_panels.begin;
      for (std::int64_t panel = row_panels.begin; panel < row_panels.end; panel += step) {
        const Range rows =
            lines_of({panel, std::min(panel + step, row_panels.end)}, k_.row_width, part_.rows);
        if (first && through_scratch_ && product_.accumulate) fetch(rows, cols);
        k_.multiply({.a = place_in_a(block, panel),
                     .b = own_b,
                     .rows = length(rows),
                     .cols = length(cols),
                     .depth = length(depths),
                     .c = sums_at(rows.begin, cols.begin),
                     .c_stride = sums_stride(),
                     .add = !first || product_.accumulate});
        if (last && finishes()) finish(rows, cols);
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
    if (first && through_scratch_ && product_.accumulate) fetch(rows, cols);
    const std::size_t place = places_.take();
    const auto& b = product_.b;
    k_.thin({.a = packed_a_,
             .b = at(b, part_.depths.begin, cols.begin),
             .b_depth_stride = b.strides[0],
             .b_col_stride = b.strides[1],
             .rows = length(rows),
             .cols = length(cols),
             .depth = length(part_.depths),
             .c = sums_at(rows.begin, cols.begin),
             .c_stride = sums_stride(),
             .add = !first || product_.accumulate,
             .room = places_begin_ + static_cast<std::int64_t>(place) * place_bytes_});
    places_.give_back(place);
    if (part_.depths.end == product_.a.extent(1) && finishes()) finish(rows, cols);
  }

  // ---- where sums are kept, and what becomes of them ----

  /// No address is formed where there is nothing to point at.
  static const In* at(const View<const In, 2>& m, std::int64_t i, std::int64_t j) {
    const bool empty = m.extent(0) == 0 || m.extent(1) == 0;
    return empty ? m.data : m.data + i * m.strides[0] + j * m.strides[1];
  }

  [[nodiscard]] bool finishes() const {
    return through_scratch_ || product_.bias != nullptr ||
           product_.activation != GemmActivation::none;
  }

  /// Sums are kept in C itself where it can hold them.
  [[nodiscard]] Sum* sums_at(std::int64_t i, std::int64_t j) const {
    if constexpr (std::is_same_v<Out, Sum>) {
      if (!through_scratch_) {
        return product_.c.data + i * product_.c.strides[0] + j * product_.c.strides[1];
      }
    }
    return sums_ + (i - part_.rows.begin) * plan_.cols + (j - part_.cols.begin);
  }
  [[nodiscard]] std::int64_t sums_stride() const {
    return through_scratch_ ? plan_.cols : product_.c.strides[0];
  }

  void fetch(Range rows, Range cols) const {
    for (std::int64_t i = rows.begin; i < rows.end; ++i) {
      Sum* const sums = sums_at(i, cols.begin);
      for (std::int64_t j = cols.begin; j < cols.end; ++j) {
        if constexpr (std::is_same_v<Out, BFloat16>) {
          sums[j - cols.begin] = to_float(product_.c(i, j));
        } else if constexpr (std::is_same_v<Out, Half>) {
          sums[j - cols.begin] = static_cast<float>(to_double(product_.c(i, j)));
        } else {
          sums[j - cols.begin] = product_.c(i, j);
        }
      }
    }
  }

  void finish(Range rows, Range cols) const {
    if (product_.bias != nullptr || product_.activation != GemmActivation::none) {
      chosen_.finish({.c = sums_at(rows.begin, cols.begin),
                      .c_stride = sums_stride(),
                      .rows = length(rows),
                      .cols = length(cols),
                      .bias = product_.bias == nullptr ? nullptr : product_.bias + cols.begin,
                      .activation = product_.activation});
    }
    if (!through_scratch_) return;
    for (std::int64_t i = rows.begin; i < rows.end; ++i) hand_over(i, cols);
  }

  /// One row from scratch into C.
  void hand_over(std::int64_t i, Range cols) const {
    const Sum* const sums = sums_at(i, cols.begin);
    Out* const to = product_.c.data + i * product_.c.strides[0];
    const std::int64_t step = product_.c.strides[1];
    if constexpr (std::is_same_v<Out, Sum>) {
      for (std::int64_t j = cols.begin; j < cols.end; ++j) to[j * step] = sums[j - cols.begin];
    } else {
      constexpr std::int64_t at_once = 256;
      std::array<std::uint16_t, at_once> rounded;
      for (std::int64_t j = cols.begin; j < cols.end; j += at_once) {
        const std::int64_t count = std::min(at_once, cols.end - j);
        chosen_.round(sums + (j - cols.begin), rounded.data(), count);
        for (std::int64_t n = 0; n < count; ++n) {
          to[(j + n) * step].bits = rounded[static_cast<std::size_t>(n)];
        }
      }
    }
  }

  const Product<Out, In, Sum>& product_;
  const GemmKernels& k_;
  const Chosen& chosen_;
  ThreadPool& pool_;
  const bool through_scratch_;
  const Plan plan_;
  Places places_;
  Part part_;
  bool a_is_packed_ = false;
  std::byte* packed_a_ = nullptr;
  Sum* sums_ = nullptr;
  std::byte* places_begin_ = nullptr;
  std::int64_t place_bytes_ = 0;
};

}  // namespace attest::linalg_detail
