// SPDX-License-Identifier: MIT
#include "attest/check/block/numbers.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "attest/check/diagnose/noise.h"

namespace attest::check::block {

Rounding rounding_of(Precision precision) {
  constexpr double single = 0x1p-24;
  switch (precision) {
    case Precision::f64:
      return {0x1p-53, 0, 0x1p-53, 0x1p-1022, 2};
    case Precision::f32:
      return {single, 0, single, 0x1p-126, 1};
    case Precision::tf32:
      return {single, 0x1p-11, single, 0x1p-126, 1};
    case Precision::f16:
      return {single, 0, 0x1p-11, 0x1p-25, 1};
    case Precision::bf16:
      return {single, 0, 0x1p-8, 0x1p-126, 1};
  }
  return {};
}

Numbers::Numbers(std::int64_t rows_, std::int64_t columns_, bool noisy_)
    : rows(rows_), columns(columns_) {
  const auto count = static_cast<std::size_t>(rows * columns);
  value.assign(count, 0);
  if (noisy_) variance.assign(count, 0), bound.assign(count, 0);
}

double Numbers::deviation_at(std::size_t n) const {
  // Squares of what binary64 itself underflows to are 0.
  constexpr double smallest = 0x1p-500;
  return variance[n] > smallest * smallest ? std::sqrt(variance[n]) : bound[n];
}

double Zones::typical(const Numbers& table, std::size_t n) const {
  const double z = largest_deviation(table.rows * table.columns);
  return std::min(z * table.deviation_at(n), table.bound[n]) * safety;
}

double Zones::most(const Numbers& table, std::size_t n) const {
  const double z = largest_deviation(table.rows * table.columns);
  return std::min(std::sqrt(terms) * z * table.deviation_at(n), table.bound[n]) * safety;
}

Numbers given(const Tensor<double>& table, std::int64_t rows, bool noisy) {
  if (rows == 0 || table.size() == 0) return {};
  Numbers out(rows, static_cast<std::int64_t>(table.size()) / rows, noisy);
  std::copy_n(table.data(), table.size(), out.value.begin());
  return out;
}

Numbers rows_of(const Numbers& table, std::span<const std::int64_t> rows) {
  Numbers out(static_cast<std::int64_t>(rows.size()), table.columns, table.noisy());
  for (std::size_t r = 0; r < rows.size(); ++r) {
    for (std::int64_t c = 0; c < table.columns; ++c) {
      const std::size_t from = table.at(rows[r], c);
      out.set(out.at(static_cast<std::int64_t>(r), c), table.value[from], table.variance_at(from),
              table.bound_at(from));
    }
  }
  return out;
}

void store(Numbers& table, const Rounding& u) {
  if (!table.noisy()) return;
  for (std::size_t n = 0; n < table.value.size(); ++n) {
    const double lost = std::max(u.store * std::fabs(table.value[n]), u.floor);
    table.variance[n] += mean_square(lost);
    table.bound[n] += lost;
    // ∞·0 on the way: nothing is promised.
    const bool finite_value = std::isfinite(table.value[n]);
    if (finite_value && !std::isfinite(table.bound[n])) {
      table.bound[n] = std::numeric_limits<double>::infinity();
    }
    if (finite_value && !std::isfinite(table.variance[n])) {
      table.variance[n] = std::numeric_limits<double>::infinity();
    }
  }
}

Rounding rounding_of(Precision precision, DType dtype) {
  Rounding u = rounding_of(precision);
  const Rounding stored = rounding_of(dtype == DType::bf16  ? Precision::bf16
                                      : dtype == DType::f16 ? Precision::f16
                                      : dtype == DType::f32 ? Precision::f32
                                                            : Precision::f64);
  u.store = std::max(u.store, stored.store);
  u.floor = std::max(u.floor, stored.floor);
  return u;
}

void store_coarser(Numbers& table, DType dtype, Precision precision) {
  const Rounding u = rounding_of(precision, dtype);
  if (u.store > rounding_of(precision).store) store(table, u);
}

Numbers added(const Numbers& a, const Numbers& b, double factor, const Rounding& u) {
  Numbers out = a;
  for (std::size_t n = 0; n < out.value.size(); ++n) {
    const double lost = factor == 1 ? 0 : 2 * u.sum * std::fabs(factor * b.value[n]);
    out.set(n, a.value[n] + factor * b.value[n],
            a.variance_at(n) + factor * factor * b.variance_at(n) + mean_square(lost),
            a.bound_at(n) + std::fabs(factor) * b.bound_at(n) + lost);
  }
  store(out, u);
  return out;
}

Numbers multiplied(const Numbers& a, const Numbers& b, const Rounding& u) {
  Numbers out = a;
  for (std::size_t n = 0; n < out.value.size(); ++n) {
    const double x = a.value[n], y = b.value[n];
    out.set(n, x * y, x * x * b.variance_at(n) + y * y * a.variance_at(n),
            std::fabs(x) * b.bound_at(n) + std::fabs(y) * a.bound_at(n) +
                a.bound_at(n) * b.bound_at(n));
  }
  store(out, u);
  return out;
}

Numbers scaled(Numbers a, double factor, const Rounding& u) {
  if (factor == 1) return a;
  for (std::size_t n = 0; n < a.value.size(); ++n) {
    const double lost =
        2 * u.sum * std::fabs(a.value[n] * factor);  // the factor's and the product's
    a.set(n, a.value[n] * factor, a.variance_at(n) * factor * factor + mean_square(lost),
          a.bound_at(n) * std::fabs(factor) + lost);
  }
  return a;
}

}  // namespace attest::check::block
