// SPDX-License-Identifier: MIT
#include "attest/check/mistakes/operands.h"

namespace attest::check {

std::optional<Operands> Operands::make(const Claim& claim, const OperandRecipe& /*recipe*/) {
  Operands out;
  out.claim_ = &claim;
  out.shape_ = claim.shape;
  return out;
}

std::span<const double> Operands::query(lab::RowPlace at) {
  const std::int64_t row = (at.b * shape_.H + at.h) * shape_.T + at.i;
  return claim_->call.query.elements().subspan(static_cast<std::size_t>(row * shape_.D),
                                               static_cast<std::size_t>(shape_.D));
}

std::span<const double> Operands::keys(std::int64_t b, std::int64_t h) {
  const std::int64_t size = shape_.S * shape_.D;
  const std::int64_t head = b * shape_.G + h / (shape_.H / shape_.G);
  return claim_->call.key.elements().subspan(static_cast<std::size_t>(head * size),
                                             static_cast<std::size_t>(size));
}

std::span<const double> Operands::values(std::int64_t b, std::int64_t h) {
  const std::int64_t size = shape_.S * shape_.E;
  const std::int64_t head = b * shape_.G + h / (shape_.H / shape_.G);
  return claim_->call.value.elements().subspan(static_cast<std::size_t>(head * size),
                                               static_cast<std::size_t>(size));
}

std::int64_t Operands::key_index(std::int64_t j) const noexcept { return j; }

Operands::Source Operands::source_of_output(lab::RowPlace at, std::int64_t e) const {
  return {.row = at, .feature = e};
}

}  // namespace attest::check
