// SPDX-License-Identifier: MIT
#include "attest/check/diagnose/rope_table.h"

#include <algorithm>
#include <cmath>

#include "attest/base/text.h"

namespace attest::check {
namespace {

Failure bad(std::string message) {
  return {ErrorKind::value, "bad-rope-table", "[check] " + std::move(message)};
}

struct Table {
  const Tensor<double>& cosines;
  const Tensor<double>& sines;
  std::int64_t rows = 0;
  std::int64_t columns = 0;

  [[nodiscard]] double cosine(std::int64_t p, std::int64_t n) const {
    return cosines.elements()[static_cast<std::size_t>(p * columns + n)];
  }
  [[nodiscard]] double sine(std::int64_t p, std::int64_t n) const {
    return sines.elements()[static_cast<std::size_t>(p * columns + n)];
  }
};

/// Whether columns that are partners under this pairing hold the same numbers.
bool doubled(const Table& table, RopePairing pairing) {
  if (table.columns % 2 != 0) return false;
  const std::int64_t half = table.columns / 2;
  for (std::int64_t p = 0; p < table.rows; ++p) {
    for (std::int64_t i = 0; i < half; ++i) {
      const std::int64_t first = pairing == RopePairing::half ? i : 2 * i;
      const std::int64_t second = pairing == RopePairing::half ? i + half : 2 * i + 1;
      if (table.cosine(p, first) != table.cosine(p, second)) return false;
      if (table.sine(p, first) != table.sine(p, second)) return false;
    }
  }
  return true;
}

}  // namespace

Result<RopeTableReading> read_rope_table(const AnyTensor& cosines, const AnyTensor& sines) {
  const auto c = cosines.to_f64("cos");
  if (!c) return c.failure();
  const auto s = sines.to_f64("sin");
  if (!s) return s.failure();
  const Shape& shape = c->shape();
  if (shape != s->shape()) {
    return bad(sentence("cos is ", to_string(shape), " and sin ", to_string(s->shape())));
  }
  if (shape.size() < 2 || shape.back() < 1 ||
      static_cast<std::int64_t>(c->size()) != shape.back() * shape[shape.size() - 2]) {
    return bad(sentence("cos has shape ", to_string(shape), "; [positions, R/2] is expected"));
  }
  const Table table{*c, *s, shape[shape.size() - 2], shape.back()};
  RopeTableReading out;
  if (doubled(table, RopePairing::half)) {
    out.pairing = RopePairing::half;
  } else if (doubled(table, RopePairing::interleaved)) {
    out.pairing = RopePairing::interleaved;
  }
  const std::int64_t angles = out.pairing ? table.columns / 2 : table.columns;
  const std::int64_t step = out.pairing == RopePairing::interleaved ? 2 : 1;
  out.rotary_dim = 2 * angles;
  if (table.rows < 2 || angles < 2) {
    return bad("fewer than two positions or four features leave the base open: say --rope-base");
  }
  // angle(1, 1) = base^(-2/R)
  const double second = std::atan2(table.sine(1, step), table.cosine(1, step));
  if (!(second > 0)) return bad("the angles of position 1 do not fall from feature to feature");
  out.base = std::pow(second, -static_cast<double>(angles));
  const double whole = std::round(out.base);
  if (std::fabs(whole - out.base) < 1e-3 * whole) out.base = whole;

  const bool short_type = std::min(size_of(cosines.dtype()), size_of(sines.dtype())) == 2;
  for (std::int64_t p = 0; p < table.rows; ++p) {
    const double slack = (short_type ? 0x1p-8 : 0x1p-20) + static_cast<double>(p) * 0x1p-22;
    for (std::int64_t i = 0; i < angles; ++i) {
      const double angle =
          static_cast<double>(p) *
          std::pow(out.base, -static_cast<double>(i) / static_cast<double>(angles));
      const bool near = std::fabs(table.cosine(p, i * step) - std::cos(angle)) <= slack &&
                        std::fabs(table.sine(p, i * step) - std::sin(angle)) <= slack;
      if (near) continue;
      return bad(sentence("cos and sin at position ", p, ", feature ", i, " are not those of base ",
                          shortest(out.base),
                          ": give query and key as they are after rotation, without the tables"));
    }
  }
  return out;
}

}  // namespace attest::check
