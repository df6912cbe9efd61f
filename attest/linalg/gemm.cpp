// SPDX-License-Identifier: MIT
#include "attest/linalg/gemm.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "attest/base/text.h"
#include "attest/linalg/gemm_drive.h"
#include "attest/linalg/kernels/gemm.h"

namespace attest {
namespace {

using kernels::GemmActivation;
using kernels::GemmTable;
using linalg_detail::Chosen;
using linalg_detail::Driver;
using linalg_detail::Product;

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

template <class In>
Chosen choose(const GemmTable& table) noexcept {
  if constexpr (std::is_same_v<In, double>) {
    return {table.f64, table.finish_f64, nullptr};
  } else if constexpr (std::is_same_v<In, float>) {
    return {table.f32, table.finish_f32, nullptr};
  } else if constexpr (std::is_same_v<In, Half>) {
    return {table.f16, table.finish_f32, table.round_to_f16};
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
  const Chosen chosen = choose<In>(table_of(*isa));
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
Result<void> try_gemm(View<Half, 2> c, View<const Half, 2> a, View<const Half, 2> b,
                      const GemmOptions<float>& options, const Execution& execution) {
  return product(c, a, b, options, execution);
}
Result<void> try_gemm(View<float, 2> c, View<const Half, 2> a, View<const Half, 2> b,
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
void gemm(View<Half, 2> c, View<const Half, 2> a, View<const Half, 2> b,
          const GemmOptions<float>& options, const Execution& execution) {
  try_gemm(c, a, b, options, execution).value();
}
void gemm(View<float, 2> c, View<const Half, 2> a, View<const Half, 2> b,
          const GemmOptions<float>& options, const Execution& execution) {
  try_gemm(c, a, b, options, execution).value();
}

}  // namespace attest
