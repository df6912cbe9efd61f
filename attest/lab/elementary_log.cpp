// SPDX-License-Identifier: MIT
#include <array>
#include <cstddef>

#include "attest/lab/elementary_detail.h"

// The logarithm: x = 2^k m, and a table of numbers c near 1/m with so few bits that c m - 1 is
// known exactly as a double-double z:
//   ln x = k ln 2 - ln c + ln(1 + z),  |z| < 2^-8.
namespace attest::lab::detail {
namespace {

constexpr int intervals = 256;  // of [1, 2)

struct LogarithmTable {
  struct Entry {
    double inverse;             // c, a multiple of 2^-12
    double scale;               // 1, or 1/2 for the upper part of [1, 2), where m is halved
    DoubleDouble negative_log;  // -ln c
  };
  std::array<Entry, intervals> entry;
  // ln 2 with 42 bits and the rest: k times the first part is exact for |k| < 2^11.
  double ln2_head;
  double ln2_tail;

  static const LogarithmTable& get() noexcept;
};

const LogarithmTable& LogarithmTable::get() noexcept {
  static const LogarithmTable table = [] {
    LogarithmTable t{};
    for (int j = 0; j < intervals; ++j) {
      // The centre of interval j is (2 (256 + j) + 1) / 512. From sqrt(2) on, m is halved, so that
      // m stays between sqrt(1/2) and sqrt(2) and the terms of the sum never cancel.
      const int centre = 2 * (intervals + j) + 1;
      const bool halved = centre >= 724;
      // Beside 1 the table must not disturb: there c = 1, and z = x - 1.
      const bool beside_one = j == 0 || j == intervals - 1;
      const int numerator = halved ? 2 * 512 * 4096 : 512 * 4096;
      const int twelve_bits = beside_one ? 4096 : (numerator + centre / 2) / centre;
      const Big<3> c = Big<3>::from_integer(twelve_bits).scaled(-12);
      t.entry[static_cast<std::size_t>(j)] = {c.nearest_double(), halved ? 0.5 : 1.0,
                                              double_double(-BigMath<3>::log(c))};
    }
    Big<3> ln2 = BigConstants<3>::get().ln2;
    t.ln2_head = ln2.take_leading_bits(42);
    t.ln2_tail = ln2.nearest_double();
    return t;
  }();
  return table;
}

struct Decomposed {
  int exponent;
  double significand;  // in [1, 2)
};

Decomposed decomposed(double x) noexcept {
  const bool subnormal = x < 0x1p-1022;
  const std::uint64_t bits = bits_of(subnormal ? x * 0x1p54 : x);
  const int exponent = static_cast<int>(bits >> 52) - 1023 - (subnormal ? 54 : 0);
  return {exponent, std::bit_cast<double>((bits & 0xFFFFFFFFFFFFFU) | (std::uint64_t{1023} << 52))};
}

}  // namespace

/// The terms in falling size: k ln 2, -ln c, z, -z^2/2 are summed exactly; everything else is below
/// 2^-25 and goes into one double. The errors: z^3/3 and its additions 2^-76 against a result of at
/// least 2^-8.01 when z is largest, and relatively 2^-52 z^2 for small results: below 2^-67.
Estimate log_estimate(double x) noexcept {
  const LogarithmTable& table = LogarithmTable::get();
  const Decomposed d = decomposed(x);
  const auto& entry =
      table.entry[static_cast<std::size_t>((bits_of(d.significand) >> 44) & (intervals - 1))];
  const double k = d.exponent + (entry.scale < 1.0 ? 1 : 0);

  const DoubleDouble product = two_product(d.significand * entry.scale, entry.inverse);
  const DoubleDouble z = fast_two_sum(product.hi - 1.0, product.lo);
  const DoubleDouble square = two_product(z.hi, z.hi);
  const double s = square.hi;
  const double cubic = z.hi * s *
                       (((1.0 / 3 - z.hi * 0.25) + s * (0.2 - z.hi * (1.0 / 6))) +
                        s * s * ((1.0 / 7 - z.hi * 0.125) + s * (1.0 / 9)));

  const DoubleDouble first = two_sum(k * table.ln2_head, entry.negative_log.hi);
  const DoubleDouble second = two_sum(first.hi, z.hi);
  const DoubleDouble third = two_sum(second.hi, -0.5 * s);
  const double tiny = (k * table.ln2_tail + entry.negative_log.lo) + (first.lo + second.lo);
  const double small = (z.lo - (0.5 * square.lo + z.hi * z.lo)) + cubic;
  return {fast_two_sum(third.hi, third.lo + (tiny + small)), 0, 0x1p-66};
}

std::optional<double> log_fast(double x) noexcept { return decided(log_estimate(x)); }

}  // namespace attest::lab::detail
