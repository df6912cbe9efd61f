// SPDX-License-Identifier: MIT
#include "attest/linalg/gemm.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <type_traits>
#include <vector>

#include "attest/base/tensor.h"
#include "attest/base/text.h"
#include "attest/linalg/gemm_plan.h"
#include "attest/linalg/kernels/gemm.h"

namespace attest {
namespace {

using kernels::GemmActivation;
using kernels::GemmKernels;
using kernels::GemmTable;
using linalg_detail::Plan;
using linalg_detail::round_up;

// ---- the table of kernels -------------------------------------------------------------------

std::array<GemmTable, 5> all_tables() noexcept {
  std::array<GemmTable, 5> out;
  out.fill(kernels::portable::gemm_table());
#if defined(__x86_64__)
  const GemmTable wide = kernels::avx512::gemm_table();
  out[static_cast<std::size_t>(Isa::avx2)] = kernels::avx2::gemm_table();
  out[static_cast<std::size_t>(Isa::avx512)] = wide;
  out[static_cast<std::size_t>(Isa::avx512bf16)] = wide;
  out[static_cast<std::size_t>(Isa::avx512bf16)].bf16 = kernels::avx512bf16::gemm_bf16();
  out[static_cast<std::size_t>(Isa::amx)] = wide;
  out[static_cast<std::size_t>(Isa::amx)].bf16 = kernels::amx::gemm_bf16();
#endif
  return out;
}

const GemmTable& table_of(Isa isa) noexcept {
  static const std::array<GemmTable, 5> tables = all_tables();
  return tables[static_cast<std::size_t>(isa)];
}

/// What differs between number types: which kernels, and what follows them.
template <class In, class Sum>
struct Chosen {
  const GemmKernels& kernels;
  void (*finish)(const kernels::GemmFinish&) noexcept;
  kernels::RoundToBf16 round;
};

template <class In, class Sum>
Chosen<In, Sum> choose(const GemmTable& table) noexcept {
  if constexpr (std::is_same_v<In, double>) {
    return {table.f64, table.finish_f64, nullptr};
  } else if constexpr (std::is_same_v<In, float>) {
    return {table.f32, table.finish_f32, nullptr};
  } else {
    return {table.bf16, table.finish_f32, table.round_to_bf16};
  }
}

// ---- checks ---------------------------------------------------------------------------------

template <class... Parts>
Failure bad(ErrorKind kind, const char* id, const Parts&... parts) {
  return {kind, id, sentence("[gemm] ", parts...)};
}

template <class T>
std::optional<Failure> check_matrix(const char* name, const View<T, 2>& m) {
  if (m.extent(0) < 0 || m.extent(1) < 0) {
    return bad(ErrorKind::shape, "shape-mismatch", name, " cannot have the extents ", m.extent(0),
               " and ", m.extent(1));
  }
  if (!m && m.extent(0) > 0 && m.extent(1) > 0) {
    return bad(ErrorKind::shape, "shape-mismatch", name, " of extents ", m.extent(0), " and ",
               m.extent(1), " is absent");
  }
  return std::nullopt;
}

template <class Out, class In, class Sum>
Result<void> check(const View<Out, 2>& c, const View<const In, 2>& a, const View<const In, 2>& b,
                   const GemmOptions<Sum>& options) {
  if (auto failure = check_matrix("a", a)) return *failure;
  if (auto failure = check_matrix("b", b)) return *failure;
  if (auto failure = check_matrix("c", c)) return *failure;
  if (a.extent(1) != b.extent(0)) {
    return bad(ErrorKind::shape, "shape-mismatch", "a and b must have the same K; a has ",
               a.extent(1), " columns, b has ", b.extent(0), " rows");
  }
  if (c.extent(0) != a.extent(0)) {
    return bad(ErrorKind::shape, "shape-mismatch", "a and c must have the same M; a has ",
               a.extent(0), " rows, c has ", c.extent(0));
  }
  if (c.extent(1) != b.extent(1)) {
    return bad(ErrorKind::shape, "shape-mismatch", "b and c must have the same N; b has ",
               b.extent(1), " columns, c has ", c.extent(1));
  }
  for (const std::size_t axis : {std::size_t{0}, std::size_t{1}}) {
    if (c.strides[axis] == 0 && c.extents[axis] > 1 && c.extents[1 - axis] > 0) {
      return bad(ErrorKind::value, "bad-option",
                 "c cannot be written to with stride 0 on an axis of ", c.extents[axis],
                 " elements");
    }
  }
  if (options.bias && options.bias.extent(0) != b.extent(1)) {
    return bad(ErrorKind::shape, "shape-mismatch", "bias and b must have the same N; bias has ",
               options.bias.extent(0), ", b has ", b.extent(1), " columns");
  }
  if (options.into == Into::accumulate && (options.bias || options.activation)) {
    return bad(ErrorKind::value, "bad-option",
               "accumulating takes neither a bias nor an activation: the sum is not complete");
  }
  return {};
}

// ---- memory ---------------------------------------------------------------------------------

/// Scratch that a thread keeps from call to call, since fresh pages cost more than a small product.
std::byte* scratch(std::size_t bytes) {
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

// ---- the product ----------------------------------------------------------------------------

template <class Out, class In, class Sum>
struct Product {
  View<Out, 2> c;
  View<const In, 2> a;
  View<const In, 2> b;
  const Sum* bias = nullptr;  // [N], beside each other
  GemmActivation activation = GemmActivation::none;
  bool accumulate = false;
};

/// The part of C that is worked on between two packings of B.
struct Part {
  Range rows, cols, depths;
};

template <class Out, class In, class Sum>
class Driver {
 public:
  Driver(const Product<Out, In, Sum>& product, const Chosen<In, Sum>& chosen, ThreadPool& pool)
      : product_(product),
        k_(chosen.kernels),
        chosen_(chosen),
        pool_(pool),
        through_scratch_(!std::is_same_v<Out, Sum> ||
                         (product.c.strides[1] != 1 && product.c.extent(1) > 1)),
        plan_(linalg_detail::make_plan(k_, {.M = product.c.extent(0),
                                            .N = product.c.extent(1),
                                            .K = product.a.extent(1),
                                            .threads = pool.threads(),
                                            .through_scratch = through_scratch_,
                                            .b_by_columns = product.b.strides[0] == 1})),
        places_(pool.threads()) {}

  void run() {
    const std::int64_t M = product_.c.extent(0);
    const std::int64_t N = product_.c.extent(1);
    const std::int64_t K = product_.a.extent(1);
    reserve();
    for (std::int64_t i = 0; i < M; i += plan_.rows) {
      for (std::int64_t j = 0; j < N; j += plan_.cols) {
        for (std::int64_t k = 0; k == 0 || k < K; k += plan_.group) {
          part_ = {{i, std::min(i + plan_.rows, M)},
                   {j, std::min(j + plan_.cols, N)},
                   {k, std::min(k + plan_.group, K)}};
          run_part();
        }
      }
    }
  }

 private:
  static std::int64_t length(Range range) { return range.end - range.begin; }

  /// One allocation: packed B, sums that cannot be kept in C, and each worker's panels.
  void reserve() {
    constexpr std::int64_t slack = 64;
    const std::int64_t M = product_.c.extent(0);
    const std::int64_t panel = plan_.depth * k_.packed_bytes;
    const std::int64_t b_bytes =
        plan_.thin ? 0 : plan_.group * plan_.cols * k_.packed_bytes + slack;
    const std::int64_t sums_bytes = through_scratch_ ? std::min(plan_.rows, M) * plan_.cols *
                                                           static_cast<std::int64_t>(sizeof(Sum))
                                                     : 0;
    const std::int64_t rows =
        std::min(plan_.row_panels, (std::min(M, plan_.rows) + k_.row_width - 1) / k_.row_width);
    a_bytes_ = round_up(std::max<std::int64_t>(rows, 1) * k_.row_width * panel + slack, 64);
    const std::int64_t own_b = plan_.thin ? plan_.col_panels * k_.col_width * panel + slack : 0;
    place_bytes_ = a_bytes_ + round_up(own_b, 64);
    std::byte* memory = scratch(static_cast<std::size_t>(
        round_up(b_bytes, 64) + round_up(sums_bytes, 64) + place_bytes_ * pool_.threads()));
    packed_b_ = memory;
    sums_ = reinterpret_cast<Sum*>(memory + round_up(b_bytes, 64));
    places_begin_ = memory + round_up(b_bytes, 64) + round_up(sums_bytes, 64);
  }

  /// Pieces that pack B come first; those that multiply wait for the last of them.
  void run_part() {
    const std::int64_t row_panels = (length(part_.rows) + k_.row_width - 1) / k_.row_width;
    const std::int64_t col_panels = (length(part_.cols) + k_.col_width - 1) / k_.col_width;
    std::int64_t row_cuts = (row_panels + plan_.row_panels - 1) / plan_.row_panels;
    std::int64_t col_cuts = (col_panels + plan_.col_panels - 1) / plan_.col_panels;
    const std::int64_t wanted = plan_.pieces_wanted;
    row_cuts = std::min(row_panels, std::max(row_cuts, (wanted + col_cuts - 1) / col_cuts));
    col_cuts = std::min(col_panels, std::max(col_cuts, (wanted + row_cuts - 1) / row_cuts));
    const std::int64_t pack_cuts = std::min(col_panels, std::max(wanted, col_panels / 8));
    const std::int64_t packs = plan_.thin ? 0 : depth_blocks() * pack_cuts;
    std::atomic<std::int64_t> packed = 0;
    pool_.run(packs + row_cuts * col_cuts, [&](std::int64_t piece) {
      if (piece < packs) {
        pack_shared(piece / pack_cuts, partition(col_panels, pack_cuts, piece % pack_cuts));
        packed.fetch_add(1, std::memory_order_release);
        return;
      }
      while (packed.load(std::memory_order_acquire) < packs) std::this_thread::yield();
      const std::int64_t number = piece - packs;
      multiply(partition(row_panels, row_cuts, number / col_cuts),
               partition(col_panels, col_cuts, number % col_cuts));
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

  /// Where the packed panel of B lies: block by block, and in each block panel by panel.
  [[nodiscard]] std::byte* place_in_b(std::int64_t block, std::int64_t panel) const {
    const std::int64_t width = round_up(length(part_.cols), k_.col_width);
    const std::int64_t padded = round_up(length(depths_of(block)), k_.depth_step);
    return packed_b_ +
           (block * plan_.depth * width + panel * k_.col_width * padded) * k_.packed_bytes;
  }

  void pack_b(Range cols, Range depths, void* to) const {
    const auto& b = product_.b;
    k_.pack_b({.from = b.data + depths.begin * b.strides[0] + cols.begin * b.strides[1],
               .line_stride = b.strides[1],
               .depth_stride = b.strides[0],
               .lines = length(cols),
               .depth = length(depths),
               .to = to});
  }

  void pack_shared(std::int64_t block, Range panels) const {
    pack_b(lines_of(panels, k_.col_width, part_.cols), depths_of(block),
           place_in_b(block, panels.begin));
  }

  void multiply(Range row_panels, Range col_panels) {
    const Range rows = lines_of(row_panels, k_.row_width, part_.rows);
    const Range cols = lines_of(col_panels, k_.col_width, part_.cols);
    const bool first_group = part_.depths.begin == 0;
    const bool last_group = part_.depths.end == product_.a.extent(1);
    if (first_group && through_scratch_ && product_.accumulate) fetch(rows, cols);
    const std::size_t place = places_.take();
    std::byte* const own_a = places_begin_ + static_cast<std::int64_t>(place) * place_bytes_;
    std::byte* const own_b = own_a + a_bytes_;
    for (std::int64_t block = 0; block < depth_blocks(); ++block) {
      const Range depths = depths_of(block);
      const auto& a = product_.a;
      k_.pack_a({.from = a.data + rows.begin * a.strides[0] + depths.begin * a.strides[1],
                 .line_stride = a.strides[0],
                 .depth_stride = a.strides[1],
                 .lines = length(rows),
                 .depth = length(depths),
                 .to = own_a});
      if (plan_.thin) pack_b(cols, depths, own_b);
      k_.multiply({.a = own_a,
                   .b = plan_.thin ? own_b : place_in_b(block, col_panels.begin),
                   .rows = length(rows),
                   .cols = length(cols),
                   .depth = length(depths),
                   .c = sums_at(rows.begin, cols.begin),
                   .c_stride = sums_stride(),
                   .add = block > 0 || !first_group || product_.accumulate});
    }
    places_.give_back(place);
    if (last_group) finish(rows, cols);
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
  const Chosen<In, Sum>& chosen_;
  ThreadPool& pool_;
  const bool through_scratch_;
  const Plan plan_;
  Places places_;
  Part part_;
  std::byte* packed_b_ = nullptr;
  Sum* sums_ = nullptr;
  std::byte* places_begin_ = nullptr;
  std::int64_t a_bytes_ = 0;
  std::int64_t place_bytes_ = 0;
};

GemmActivation as_kernel(std::optional<Activation> activation) {
  if (!activation) return GemmActivation::none;
  switch (*activation) {
    case Activation::relu:
      return GemmActivation::relu;
    case Activation::gelu_erf:
      return GemmActivation::gelu_erf;
    case Activation::gelu_tanh:
      return GemmActivation::gelu_tanh;
    case Activation::silu:
      return GemmActivation::silu;
  }
  return GemmActivation::none;
}

template <class Out, class In, class Sum>
Result<void> product(const View<Out, 2>& c, const View<const In, 2>& a, const View<const In, 2>& b,
                     const GemmOptions<Sum>& options, const Execution& execution) {
  if (auto checked = check(c, a, b, options); !checked) return checked;
  const Result<Isa> isa = isa_for(execution);
  if (!isa) return isa.failure();
  if (c.extent(0) == 0 || c.extent(1) == 0) return {};
  std::vector<Sum> bias;  // only where it is not dense already
  Product<Out, In, Sum> call{.c = c,
                             .a = a,
                             .b = b,
                             .activation = as_kernel(options.activation),
                             .accumulate = options.into == Into::accumulate};
  if (options.bias) {
    call.bias = options.bias.data;
    if (options.bias.strides[0] != 1) {
      for (std::int64_t j = 0; j < c.extent(1); ++j) bias.push_back(options.bias(j));
      call.bias = bias.data();
    }
  }
  const auto chosen = choose<In, Sum>(table_of(*isa));
  ThreadPool& pool = threads_for(execution);
  Driver<Out, In, Sum>(call, chosen, pool).run();
  return {};
}

}  // namespace

Result<void> try_gemm(View<float, 2> c, View<const float, 2> a, View<const float, 2> b,
                      const GemmOptions<float>& options, const Execution& execution) {
  return product(c, a, b, options, execution);
}
Result<void> try_gemm(View<double, 2> c, View<const double, 2> a, View<const double, 2> b,
                      const GemmOptions<double>& options, const Execution& execution) {
  return product(c, a, b, options, execution);
}
Result<void> try_gemm(View<BFloat16, 2> c, View<const BFloat16, 2> a, View<const BFloat16, 2> b,
                      const GemmOptions<float>& options, const Execution& execution) {
  return product(c, a, b, options, execution);
}
Result<void> try_gemm(View<float, 2> c, View<const BFloat16, 2> a, View<const BFloat16, 2> b,
                      const GemmOptions<float>& options, const Execution& execution) {
  return product(c, a, b, options, execution);
}

void gemm(View<float, 2> c, View<const float, 2> a, View<const float, 2> b,
          const GemmOptions<float>& options, const Execution& execution) {
  try_gemm(c, a, b, options, execution).value();
}
void gemm(View<double, 2> c, View<const double, 2> a, View<const double, 2> b,
          const GemmOptions<double>& options, const Execution& execution) {
  try_gemm(c, a, b, options, execution).value();
}
void gemm(View<BFloat16, 2> c, View<const BFloat16, 2> a, View<const BFloat16, 2> b,
          const GemmOptions<float>& options, const Execution& execution) {
  try_gemm(c, a, b, options, execution).value();
}
void gemm(View<float, 2> c, View<const BFloat16, 2> a, View<const BFloat16, 2> b,
          const GemmOptions<float>& options, const Execution& execution) {
  try_gemm(c, a, b, options, execution).value();
}

}  // namespace attest
