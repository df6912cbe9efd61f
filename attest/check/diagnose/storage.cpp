// SPDX-License-Identifier: MIT
#include "attest/check/diagnose/storage.h"

#include <cmath>

#include "attest/base/text.h"

namespace attest::check {
namespace {

/// So many numbers that do not fit a wider type's 13 or 16 further bits by chance.
constexpr std::int64_t enough = 8;

bool fits(double value, DType dtype) {
  if (dtype == DType::f32) return static_cast<double>(static_cast<float>(value)) == value;
  return (dtype == DType::bf16 ? to_double(to_bfloat16(value)) : to_double(to_half(value))) ==
         value;
}

/// Whether a table of `stored` could hold numbers that were of `dtype` once.
bool is_wider(DType stored, DType dtype) {
  return stored == DType::f64 || (stored == DType::f32 && dtype != DType::f32);
}

bool all_fit(const Tensor<double>& numbers, DType dtype) {
  std::int64_t counted = 0;
  for (const double x : numbers.elements()) {
    if (!std::isfinite(x) || x == 0) continue;
    if (!fits(x, dtype)) return false;
    ++counted;
  }
  return counted >= enough;
}

}  // namespace

std::optional<Narrower> narrower_storage(const Dump& dump) {
  const Claim& claim = dump.claim;
  for (const DType dtype : {DType::bf16, DType::f16, DType::f32}) {
    std::string names;
    for (const Observed& table : dump.stages) {
      if (!is_wider(table.dtype, dtype) || !all_fit(table.values, dtype)) continue;
      names += (names.empty() ? "" : ", ") + std::string(name_of(table.stage));
    }
    if (names.empty()) continue;
    Narrower out{.dump = dump};
    for (Observed& table : out.dump.stages) {
      if (is_wider(table.dtype, dtype) && all_fit(table.values, dtype)) table.dtype = dtype;
    }
    const bool inputs = all_fit(claim.call.query, dtype) && all_fit(claim.call.key, dtype) &&
                        all_fit(claim.call.value, dtype);
    out.remark =
        sentence("every number of ", names, " fits ", name_of(dtype), ": judged as rounded to it");
    if (dtype == DType::f32) {
      // Nobody computes in f64 to keep half of it: the result's type is that of the arithmetic.
      if (claim.precision == Precision::f64) out.dump.claim.precision = Precision::f32;
      out.remark += ", and computed in it";
    } else if (inputs) {
      out.dump.claim.precision = dtype == DType::bf16 ? Precision::bf16 : Precision::f16;
      out.remark += ", and computed in it, for query, key and value fit it too";
    }
    return out;
  }
  return std::nullopt;
}

}  // namespace attest::check
