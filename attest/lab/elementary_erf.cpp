// SPDX-License-Identifier: MIT
#include <array>
#include <cstddef>

#include "attest/lab/elementary_detail.h"

// The error function: Taylor's series at the nearest multiple c of 1/32,
//   erf(c + t) = erf(c) + t (b0 + t (b1 + t (b2 + ...))),  |t| <= 2^-6.
// The derivative y = 2/sqrt(pi) exp(-x^2) satisfies y' = -2 x y, which gives its coefficients
//   (k + 1) a[k+1] = -2 c a[k] - 2 a[k-1],  and  b[k] = a[k] / (k + 1).
namespace attest::lab::detail {
namespace {

constexpr int last_index = 192;  // c = 6
constexpr std::size_t precise_terms = 3;
constexpr std::size_t plain_terms = 8;

struct ErrorFunctionTable {
  struct Entry {
    DoubleDouble value;                            // erf(c)
    std::array<DoubleDouble, precise_terms> head;  // b0, b1, b2
    std::array<double, plain_terms> tail;          // b3 ... b10
  };
  std::array<Entry, last_index + 1> entry;

  static const ErrorFunctionTable& get() noexcept;
};

ErrorFunctionTable::Entry expansion(int index) noexcept {
  using Number = Big<3>;
  const Number c = Number::from_integer(index).scaled(-5);
  ErrorFunctionTable::Entry entry;
  entry.value = double_double(BigMath<3>::erf(c));
  Number before;  // a[k-1]
  Number a = BigMath<3>::inverse_sqrt_pi().scaled(1) * BigMath<3>::exp(-(c * c));
  for (std::uint32_t k = 0; k < precise_terms + plain_terms; ++k) {
    const Number b = a.divided_by(k + 1);
    if (k < precise_terms) {
      entry.head[k] = double_double(b);
    } else {
      entry.tail[k - precise_terms] = b.nearest_double();
    }
    const Number next = -(c * a + before).scaled(1).divided_by(k + 1);
    before = a;
    a = next;
  }
  return entry;
}

const ErrorFunctionTable& ErrorFunctionTable::get() noexcept {
  static const ErrorFunctionTable table = [] {
    ErrorFunctionTable t{};
    for (int i = 0; i <= last_index; ++i) t.entry[static_cast<std::size_t>(i)] = expansion(i);
    return t;
  }();
  return table;
}

}  // namespace

/// The derivatives are bounded by |b[k]| <= 1.2 sqrt(2^k / k!) / (k + 1) (Abramowitz and Stegun,
/// 22.14.17), so that the terms after b10 stay below 2^-80; the rounding errors of the plain terms
/// below 2^-52 b3 t^4 (for c = 0, where b3 = 0, below 2^-52 b4 t^5). Relatively to erf: 2^-70.
Estimate erf_estimate(double x) noexcept {
  const double a = magnitude(x);
  if (a < 0x1p-900) return no_estimate();  // the low parts of products would underflow
  const ErrorFunctionTable& table = ErrorFunctionTable::get();
  const auto i = static_cast<std::size_t>(nearest_integer(a * 32.0));
  const auto& entry = table.entry[i];
  const double t = a - static_cast<double>(i) * 0x1p-5;  // exact (Sterbenz)
  double plain = 0.0;
  for (std::size_t k = plain_terms; k-- > 0;) plain = plain * t + entry.tail[k];
  DoubleDouble sum = two_sum(entry.head[2].hi, t * plain);
  sum.lo += entry.head[2].lo;
  sum = entry.head[1] + t * sum;
  sum = entry.head[0] + t * sum;
  sum = entry.value + t * sum;
  return {x < 0.0 ? -sum : sum, 0, 0x1p-69};
}

std::optional<double> erf_fast(double x) noexcept { return decided(erf_estimate(x)); }

}  // namespace attest::lab::detail
