// SPDX-License-Identifier: MIT
#include <array>
#include <cstddef>

#include "attest/lab/elementary_detail.h"

// Sine and cosine. The angle is brought into [-pi/4, pi/4] with integer arithmetic (Payne and
// Hanek), then to the nearest multiple c = i/128 of 2^-7 and t = r - c, |t| <= 2^-8:
//   sin(c + t) = sin c + cos c t + (sin c (cos t - 1) + cos c (sin t - t))
//   cos(c + t) = cos c - sin c t + (cos c (cos t - 1) - sin c (sin t - t))
// with sin c and cos c from a table.
namespace attest::lab::detail {
namespace {

__extension__ using Wide = unsigned __int128;

constexpr int last_index = 101;  // nearest to 128 pi/4
constexpr std::size_t limbs_of_two_over_pi = 32;

struct TrigonometricTable {
  std::array<DoubleDouble, last_index + 1> sine;
  std::array<DoubleDouble, last_index + 1> cosine;
  // 2/pi as a binary fraction, most significant word first, behind 64 zero bits.
  std::array<std::uint64_t, limbs_of_two_over_pi + 1> two_over_pi;
  DoubleDouble half_pi;

  static const TrigonometricTable& get() noexcept;
};

const TrigonometricTable& TrigonometricTable::get() noexcept {
  static const TrigonometricTable table = [] {
    TrigonometricTable t{};
    for (int i = 0; i <= last_index; ++i) {
      const double c = i * 0x1p-7;
      t.sine[static_cast<std::size_t>(i)] = double_double(BigMath<3>::sin(c));
      t.cosine[static_cast<std::size_t>(i)] = double_double(BigMath<3>::cos(c));
    }
    const auto& fraction = BigConstants<limbs_of_two_over_pi>::get().two_over_pi;
    for (std::size_t i = 0; i < limbs_of_two_over_pi; ++i) {
      t.two_over_pi[i + 1] = fraction.limb[limbs_of_two_over_pi - 1 - i];
    }
    t.half_pi = double_double(BigConstants<3>::get().half_pi);
    return t;
  }();
  return table;
}

/// x = quadrant * pi/2 + rest, |rest| <= pi/4.
struct Angle {
  unsigned quadrant = 0;
  DoubleDouble rest;
};

/// A fraction of 192 bits, most significant word first.
using Fraction = std::array<std::uint64_t, 3>;

Fraction shifted_up(const Fraction& f, int count) noexcept {
  if (count == 0) return f;
  const int back = 64 - count;
  return {(f[0] << count) | (f[1] >> back), (f[1] << count) | (f[2] >> back), f[2] << count};
}

/// The last 192 bits of m * window, for the 192-bit window of 2/pi that starts at a bit offset.
Fraction product_with_window(std::uint64_t m, int offset, const TrigonometricTable& t) noexcept {
  const auto word = static_cast<std::size_t>(offset / 64);
  const int shift = offset % 64;
  const auto window = [&](std::size_t i) {
    const std::uint64_t here = t.two_over_pi[word + i];
    return shift == 0 ? here : (here << shift) | (t.two_over_pi[word + i + 1] >> (64 - shift));
  };
  const Wide low = Wide{m} * window(2);
  const Wide middle = Wide{m} * window(1) + (low >> 64);
  const Wide high = Wide{m} * window(0) + (middle >> 64);
  return {static_cast<std::uint64_t>(high), static_cast<std::uint64_t>(middle),
          static_cast<std::uint64_t>(low)};
}

Fraction negated(const Fraction& f) noexcept {
  const std::uint64_t low = 0 - f[2];
  const std::uint64_t middle = ~f[1] + (low == 0 ? 1U : 0U);
  const bool carry = low == 0 && middle == 0;
  return {~f[0] + (carry ? 1U : 0U), middle, low};
}

/// A fraction as a double-double: 53 bits, and the 64 bits behind them. It has a one among its
/// first 64 bits, as no double is closer to a multiple of pi/2.
DoubleDouble to_double_double(Fraction f) noexcept {
  const int zeros = std::countl_zero(f[0] | 1U);
  f = shifted_up(f, zeros);
  const double scale = std::bit_cast<double>(static_cast<std::uint64_t>(1023 - 53 - zeros) << 52);
  const auto hi = static_cast<double>(f[0] >> 11);
  const auto lo = static_cast<double>((f[0] << 53) | (f[1] >> 11));
  return fast_two_sum(hi * scale, lo * (scale * 0x1p-64));
}

/// x = m 2^e. Bits of 2/pi whose product with 2^e is a multiple of 4 change neither the quadrant
/// nor the rest and are left out: the window begins at the bit of weight 2^(1-e). Of the 190 bits
/// behind the point, 53 are spoiled by what follows the window and 62 may be zeros: 75 remain.
Angle reduced(double x) noexcept {
  const TrigonometricTable& table = TrigonometricTable::get();
  const std::uint64_t bits = bits_of(x);
  const int e = static_cast<int>(bits >> 52) - 1075;
  const std::uint64_t m = (bits & 0xFFFFFFFFFFFFFU) | (std::uint64_t{1} << 52);
  const Fraction turns = product_with_window(m, e + 62, table);
  auto quadrant = static_cast<unsigned>(turns[0] >> 62);
  Fraction fraction = shifted_up(turns, 2);
  const bool past_half = (fraction[0] >> 63) != 0;
  if (past_half) {
    fraction = negated(fraction);
    ++quadrant;
  }
  DoubleDouble rest = to_double_double(fraction) * table.half_pi;
  if (past_half) rest = -rest;
  return {quadrant % 4U, rest};
}

/// sin t - t and cos t - 1 for |t| <= 2^-8, to 2^-51 relatively.
struct Corrections {
  double sine;
  double cosine;
};

Corrections corrections(DoubleDouble t) noexcept {
  const double s = t.hi * t.hi;
  return {t.hi * s * (-1.0 / 6 + s * (1.0 / 120 - s * (1.0 / 5040))),
          s * (-0.5 + s * (1.0 / 24 - s * (1.0 / 720))) - t.hi * t.lo};
}

/// r = c + t for r >= 0. The difference of the high parts is exact: c = 0, or r lies between c/2
/// and 2c (Sterbenz), and this needs the index to be rounded correctly, which r * 128 + 0.5, cut
/// off, is not: the double before 1/2 would count as 1.
DoubleDouble distance(DoubleDouble r, std::size_t i) noexcept {
  return two_sum(r.hi - static_cast<double>(i) * 0x1p-7, r.lo);
}

std::size_t nearest_index(DoubleDouble r) noexcept {
  return static_cast<std::size_t>(nearest_integer(r.hi * 128.0));
}

/// Errors: with u = 2^-53, about nine roundings of terms below 2^-17 sin c; sin r can be half of
/// sin c (i = 1, t = -2^-8), so that 9 u 2^-16 < 2^-65.8 bounds the relative error. For the cosine,
/// which is nearly cos c here, it is half of that.
DoubleDouble sine(DoubleDouble r) noexcept {
  const TrigonometricTable& table = TrigonometricTable::get();
  const std::size_t i = nearest_index(r);
  const DoubleDouble t = distance(r, i);
  const DoubleDouble s = table.sine[i];
  const DoubleDouble c = table.cosine[i];
  const Corrections k = corrections(t);
  const DoubleDouble product = two_product(c.hi, t.hi);
  const DoubleDouble high = fast_two_sum(s.hi, product.hi);
  const double low = (s.lo + (c.hi * t.lo + c.lo * t.hi)) + (s.hi * k.cosine + c.hi * k.sine);
  return fast_two_sum(high.hi, high.lo + (product.lo + low));
}

DoubleDouble cosine(DoubleDouble r) noexcept {
  const TrigonometricTable& table = TrigonometricTable::get();
  const std::size_t i = nearest_index(r);
  const DoubleDouble t = distance(r, i);
  const DoubleDouble s = table.sine[i];
  const DoubleDouble c = table.cosine[i];
  const Corrections k = corrections(t);
  const DoubleDouble product = two_product(s.hi, t.hi);
  const DoubleDouble high = fast_two_sum(c.hi, -product.hi);
  const double low = (c.lo - (s.hi * t.lo + s.lo * t.hi)) + (c.hi * k.cosine - s.hi * k.sine);
  return fast_two_sum(high.hi, high.lo + (low - product.lo));
}

/// sin(x + quarter_turns pi/2) for x >= 0.
Estimate sine_from_quadrant(double x, unsigned quarter_turns) noexcept {
  Angle angle = x < 0.75 ? Angle{0, {x, 0.0}} : reduced(x);
  angle.quadrant += quarter_turns;
  const bool below_zero = angle.rest.hi < 0.0;
  if (below_zero) angle.rest = -angle.rest;
  const bool odd = angle.quadrant % 2U != 0;
  const DoubleDouble value = odd ? cosine(angle.rest) : sine(angle.rest);
  const bool negative = (angle.quadrant % 4U >= 2U) != (below_zero && !odd);
  return {negative ? -value : value, 0, 0x1p-65};
}

}  // namespace

Estimate sin_estimate(double x) noexcept {
  Estimate e = sine_from_quadrant(magnitude(x), 0);
  if (x < 0.0) e.v = -e.v;
  return e;
}

Estimate cos_estimate(double x) noexcept { return sine_from_quadrant(magnitude(x), 1); }

std::optional<double> sin_fast(double x) noexcept { return decided(sin_estimate(x)); }
std::optional<double> cos_fast(double x) noexcept { return decided(cos_estimate(x)); }

}  // namespace attest::lab::detail
