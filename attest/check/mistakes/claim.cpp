// SPDX-License-Identifier: MIT
#include "attest/check/mistakes/claim.h"

#include <algorithm>

namespace attest::check {

Result<void> check_call(const Claim& claim) {
  static constexpr double nothing = 0;  // which nobody reads
  const lab::AttentionShape& s = claim.shape;
  const auto stand_in = [](std::int64_t batch, std::int64_t heads, std::int64_t length,
                           std::int64_t width) {
    return View<const double, 4>(&nothing, {batch, heads, length, std::max<std::int64_t>(1, width)},
                                 {0, 0, 0, 0});
  };
  const AttentionInputs<double> in{stand_in(s.B, s.H, s.T, s.D), stand_in(s.B, s.G, s.S, s.D),
                                   stand_in(s.B, s.G, s.S, s.E)};
  const auto shape = lab::check_attention(in, claim.call.options());
  if (!shape) return shape.failure();
  return {};
}

std::string_view name_of(Precision precision) noexcept {
  switch (precision) {
    case Precision::f64:
      return "f64";
    case Precision::f32:
      return "f32";
    case Precision::tf32:
      return "tf32";
    case Precision::f16:
      return "f16";
    case Precision::bf16:
      return "bf16";
  }
  return "?";
}

double unit_of(Precision precision) noexcept {
  switch (precision) {
    case Precision::f64:
      return 0x1p-53;
    case Precision::f32:
      return 0x1p-24;
    case Precision::tf32:
    case Precision::f16:
      return 0x1p-11;
    case Precision::bf16:
      return 0x1p-8;
  }
  return 0;
}

std::string_view name_of(Stage stage) noexcept {
  switch (stage) {
    case Stage::dot:
      return "dot";
    case Stage::scaled:
      return "scaled";
    case Stage::capped:
      return "capped";
    case Stage::biased:
      return "biased";
    case Stage::masked:
      return "masked";
    case Stage::weights:
      return "weights";
    case Stage::log_sum_exp:
      return "log_sum_exp";
    case Stage::output:
      return "output";
  }
  return "?";
}

}  // namespace attest::check
