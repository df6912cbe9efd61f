// SPDX-License-Identifier: MIT
#include "attest/lab/big.h"

#include <bit>
#include <cstddef>
#include <limits>

namespace attest::lab {
namespace {

__extension__ using Wide = unsigned __int128;

template <int Count>
using Limbs64 = std::array<std::uint64_t, Count>;

std::size_t at(int index) noexcept { return static_cast<std::size_t>(index); }

std::uint64_t low_half(Wide w) noexcept { return static_cast<std::uint64_t>(w); }
std::uint64_t high_half(Wide w) noexcept { return static_cast<std::uint64_t>(w >> 64); }

/// Shifts towards the most significant end by fewer bits than the array holds.
template <int Count>
void shift_up(Limbs64<Count>& m, int shift) noexcept {
  const int words = shift / 64;
  const int bits = shift % 64;
  for (int i = Count - 1; i >= 0; --i) {
    const std::uint64_t here = i >= words ? m[at(i - words)] : 0;
    const std::uint64_t below = i >= words + 1 ? m[at(i - words - 1)] : 0;
    m[at(i)] = bits == 0 ? here : (here << bits) | (below >> (64 - bits));
  }
}

/// Shifts towards the least significant end by fewer bits than the array holds.
template <int Count>
void shift_down(Limbs64<Count>& m, int shift) noexcept {
  const int words = shift / 64;
  const int bits = shift % 64;
  for (int i = 0; i < Count; ++i) {
    const std::uint64_t here = i + words < Count ? m[at(i + words)] : 0;
    const std::uint64_t above = i + words + 1 < Count ? m[at(i + words + 1)] : 0;
    m[at(i)] = bits == 0 ? here : (here >> bits) | (above << (64 - bits));
  }
}

/// The leading Limbs words of a fraction with Limbs + Guards words, brought to a leading one bit.
template <int Limbs, int Count>
Big<Limbs> normalized(Limbs64<Count> m, int exponent, bool negative) noexcept {
  int zeros = 0;
  for (int i = Count - 1; i >= 0 && m[at(i)] == 0; --i) zeros += 64;
  if (zeros == 64 * Count) return {};
  zeros += std::countl_zero(m[at(Count - 1 - zeros / 64)]);
  if (zeros != 0) shift_up<Count>(m, zeros);
  Big<Limbs> result;
  for (int i = 0; i < Limbs; ++i) result.limb[at(i)] = m[at(i + Count - Limbs)];
  result.exponent = exponent - zeros;
  result.negative = negative;
  return result;
}

template <int Limbs>
bool smaller_magnitude(const Big<Limbs>& a, const Big<Limbs>& b) noexcept {
  if (a.exponent != b.exponent) return a.exponent < b.exponent;
  for (int i = Limbs - 1; i >= 0; --i) {
    if (a.limb[at(i)] != b.limb[at(i)]) return a.limb[at(i)] < b.limb[at(i)];
  }
  return false;
}

/// Moves a's fraction into the upper words of an array with one guard word, `shift` bits down.
template <int Limbs>
Limbs64<Limbs + 1> with_guard_word(const Big<Limbs>& a, int shift) noexcept {
  Limbs64<Limbs + 1> m{};
  for (int i = 0; i < Limbs; ++i) m[at(i + 1)] = a.limb[at(i)];
  if (shift != 0) shift_down<Limbs + 1>(m, shift);
  return m;
}

/// |a| + |b| for |a| >= |b|, with a's sign.
template <int Limbs>
Big<Limbs> sum_of_magnitudes(const Big<Limbs>& a, const Big<Limbs>& b) noexcept {
  constexpr int count = Limbs + 1;
  Limbs64<count> sum = with_guard_word(a, 0);
  const Limbs64<count> other = with_guard_word(b, a.exponent - b.exponent);
  std::uint64_t carry = 0;
  for (int i = 0; i < count; ++i) {
    const Wide s = Wide{sum[at(i)]} + other[at(i)] + carry;
    sum[at(i)] = low_half(s);
    carry = high_half(s);
  }
  if (carry != 0) {
    shift_down<count>(sum, 1);
    sum[at(count - 1)] |= std::uint64_t{1} << 63;
  }
  return normalized<Limbs, count>(sum, a.exponent + static_cast<int>(carry), a.negative);
}

/// |a| - |b| for |a| >= |b|, with a's sign. One guard word is enough: when more than one leading
/// bit cancels, the exponents differ by at most one and nothing was shifted out of it.
template <int Limbs>
Big<Limbs> difference_of_magnitudes(const Big<Limbs>& a, const Big<Limbs>& b) noexcept {
  constexpr int count = Limbs + 1;
  Limbs64<count> difference = with_guard_word(a, 0);
  const Limbs64<count> other = with_guard_word(b, a.exponent - b.exponent);
  std::uint64_t borrow = 0;
  for (int i = 0; i < count; ++i) {
    const Wide d = Wide{difference[at(i)]} - other[at(i)] - borrow;
    difference[at(i)] = low_half(d);
    borrow = high_half(d) != 0 ? 1 : 0;
  }
  return normalized<Limbs, count>(difference, a.exponent, a.negative);
}

/// 1/a by Newton's iteration y += y (1 - a y), which doubles the number of correct bits; it starts
/// from the 62 bits that one machine division gives.
template <int Limbs>
Big<Limbs> reciprocal(const Big<Limbs>& a) noexcept {
  Big<Limbs> y;
  y.limb[at(Limbs - 1)] = low_half(((Wide{1} << 127) - 1) / a.limb[at(Limbs - 1)]);
  y.exponent = 1 - a.exponent;
  y.negative = a.negative;
  const Big<Limbs> one = Big<Limbs>::from_integer(1);
  for (int correct = 62; correct < Big<Limbs>::bits; correct *= 2) y = y + y * (one - a * y);
  return y;
}

}  // namespace

template <int Limbs>
Big<Limbs> Big<Limbs>::operator+(const Big& b) const noexcept {
  const Big& a = *this;
  if (a.is_zero()) return b;
  if (b.is_zero()) return a;
  const bool swap = smaller_magnitude(a, b);
  const Big<Limbs>& large = swap ? b : a;
  const Big<Limbs>& small = swap ? a : b;
  if (large.exponent - small.exponent >= 64 * (Limbs + 1)) return large;
  return a.negative == b.negative ? sum_of_magnitudes(large, small)
                                  : difference_of_magnitudes(large, small);
}

template <int Limbs>
Big<Limbs> Big<Limbs>::operator-(const Big& b) const noexcept {
  return *this + -b;
}

template <int Limbs>
Big<Limbs> Big<Limbs>::operator*(const Big& b) const noexcept {
  const Big& a = *this;
  Limbs64<2 * Limbs> product{};
  for (int j = 0; j < Limbs; ++j) {
    if (a.limb[at(j)] == 0) continue;  // doubles and small integers are one limb long
    std::uint64_t carry = 0;
    for (int i = 0; i < Limbs; ++i) {
      const Wide t = Wide{a.limb[at(j)]} * b.limb[at(i)] + product[at(i + j)] + carry;
      product[at(i + j)] = low_half(t);
      carry = high_half(t);
    }
    product[at(j + Limbs)] = carry;
  }
  return normalized<Limbs, 2 * Limbs>(product, a.exponent + b.exponent, a.negative != b.negative);
}

template <int Limbs>
Big<Limbs> Big<Limbs>::operator/(const Big& b) const noexcept {
  return *this * reciprocal(b);
}

template <int Limbs>
Big<Limbs> Big<Limbs>::divided_by(std::uint32_t divisor) const noexcept {
  // Long division in 32-bit digits, so that each step is one 64-bit machine division.
  Limbs64<Limbs + 1> quotient = with_guard_word(*this, 0);
  std::uint64_t rest = 0;
  for (int i = Limbs; i >= 0; --i) {
    const std::uint64_t upper = (rest << 32) | (quotient[at(i)] >> 32);
    rest = upper % divisor;
    const std::uint64_t lower = (rest << 32) | (quotient[at(i)] & 0xFFFFFFFFU);
    rest = lower % divisor;
    quotient[at(i)] = ((upper / divisor) << 32) | (lower / divisor);
  }
  return normalized<Limbs, Limbs + 1>(quotient, exponent, negative);
}

template <int Limbs>
Big<Limbs> Big<Limbs>::from_double(double x) noexcept {
  const auto pattern = std::bit_cast<std::uint64_t>(x);
  const int biased = static_cast<int>((pattern >> 52) & 0x7FFU);
  const std::uint64_t stored = pattern & 0xFFFFFFFFFFFFFU;
  Limbs64<Limbs> m{};
  m[at(Limbs - 1)] = biased == 0 ? stored : stored | (std::uint64_t{1} << 52);
  // The integer significand s stands for s * 2^(biased - 1075), and as the leading limb it counts
  // for s * 2^-64.
  const int scale = (biased == 0 ? 1 : biased) - 1075 + 64;
  return normalized<Limbs, Limbs>(m, scale, (pattern >> 63) != 0);
}

template <int Limbs>
Big<Limbs> Big<Limbs>::from_integer(std::int64_t i) noexcept {
  Limbs64<Limbs> m{};
  const auto pattern = static_cast<std::uint64_t>(i);
  m[at(Limbs - 1)] = i < 0 ? 0 - pattern : pattern;
  return normalized<Limbs, Limbs>(m, 64, i < 0);
}

template <int Limbs>
std::int64_t Big<Limbs>::nearest_integer() const noexcept {
  if (is_zero() || exponent < 0) return 0;
  const std::uint64_t twice = limb[at(Limbs - 1)] >> (63 - exponent);
  const auto magnitude = static_cast<std::int64_t>((twice + 1) / 2);
  return negative ? -magnitude : magnitude;
}

template <int Limbs>
Big<Limbs> Big<Limbs>::fraction() const noexcept {
  if (exponent <= 0) return *this;
  if (exponent >= bits) return {};
  Limbs64<Limbs> m = limb;
  shift_up<Limbs>(m, exponent);
  return normalized<Limbs, Limbs>(m, 0, negative);
}

template <int Limbs>
unsigned Big<Limbs>::integer_part_modulo_4() const noexcept {
  const auto bit_of_weight = [this](int power) -> unsigned {
    const int from_top = exponent - 1 - power;
    if (from_top < 0 || from_top >= bits) return 0;
    return (limb[at(Limbs - 1 - from_top / 64)] >> (63 - from_top % 64)) & 1U;
  };
  return 2 * bit_of_weight(1) + bit_of_weight(0);
}

template <int Limbs>
double Big<Limbs>::nearest_double() const noexcept {
  const std::uint64_t sign = negative ? std::uint64_t{1} << 63 : 0;
  const auto with_sign = [sign](std::uint64_t magnitude) {
    return std::bit_cast<double>(sign | magnitude);
  };
  // Subnormal numbers end at 2^-1074, so that fewer than 53 bits are kept.
  const int kept = exponent + 1074 < 53 ? exponent + 1074 : 53;
  if (is_zero() || kept < 0) return with_sign(0);
  if (exponent > 1024) return with_sign(std::uint64_t{0x7FF} << 52);
  const std::uint64_t top = limb[at(Limbs - 1)];
  std::uint64_t significand = kept == 0 ? 0 : top >> (64 - kept);
  const std::uint64_t cut_off = kept == 0 ? top : top << kept;
  bool sticky = (cut_off << 1) != 0;
  for (int i = 0; i < Limbs - 1; ++i) sticky = sticky || limb[at(i)] != 0;
  const bool half = (cut_off >> 63) != 0;
  if (half && (sticky || (significand & 1U) != 0)) ++significand;
  // Adding lets the hidden bit, and a carry out of the significand, count into the exponent field.
  if (kept < 53) return with_sign(significand);
  return with_sign((static_cast<std::uint64_t>(exponent + 1021) << 52) + significand);
}

template <int Limbs>
double Big<Limbs>::take_leading_bits(int count) noexcept {
  Big head = *this;
  head.limb = {};
  const std::uint64_t mask = std::numeric_limits<std::uint64_t>::max() << (64 - count);
  head.limb[at(Limbs - 1)] = limb[at(Limbs - 1)] & mask;
  *this = *this - head;
  return head.nearest_double();
}

template struct Big<3>;
template struct Big<6>;
template struct Big<12>;
template struct Big<32>;

}  // namespace attest::lab
