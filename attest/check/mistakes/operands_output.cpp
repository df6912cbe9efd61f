// SPDX-License-Identifier: MIT
// Where the numbers of a program's output lie in a dump.

#include <utility>

#include "attest/check/mistakes/operand_orders.h"
#include "attest/check/mistakes/operands.h"

namespace attest::check {

bool Operands::settle_output(const Claim& claim) {
  const OperandShape query = claimed_shape(claim, Role::query);
  const OperandShape value = claimed_shape(claim, Role::value);
  claimed_ = {
      .B = query.B, .H = query.N, .G = 1, .T = query.L, .S = value.L, .D = query.W, .E = value.W};
  if (claimed_.H % shape_.G == 0) claimed_.G = shape_.G;
  const OutputRecipe& output = recipe_.output;
  const bool regroups =
      output.heads == HeadOrder::regrouped || output.heads == HeadOrder::regrouped_back;
  if (output.heads == HeadOrder::group_means || (regroups && claimed_.H % shape_.G != 0)) {
    return false;
  }
  const bool exchanged = recipe_.batch_time == BatchTime::exchanged;
  const std::int64_t B = exchanged ? claimed_.T : claimed_.B;
  const std::int64_t T = exchanged ? claimed_.B : claimed_.T;
  const std::int64_t width = claimed_.H * claimed_.E;
  if (shape_.B != B || shape_.H * shape_.T * shape_.E != T * width) return false;
  if (output.read_transposed && (shape_.T != T || shape_.E != claimed_.E)) return false;
  const bool same_shape = shape_.B == claimed_.B && shape_.H == claimed_.H &&
                          shape_.T == claimed_.T && shape_.E == claimed_.E;
  output_as_it_stands_ =
      same_shape && output == OutputRecipe{} && recipe_.batch_time == BatchTime::claimed;
  return output.merge != Merge::width_major || shape_.T == T;
}

Operands::Source Operands::source_of_output(lab::RowPlace at, std::int64_t e) const {
  if (output_as_it_stands_) return {at, e};
  const OutputRecipe& output = recipe_.output;
  std::int64_t b = batch_at(output.batch, at.b, claimed_.B);
  const std::int64_t h = head_at(output.heads, at.h, claimed_.H, claimed_.G);
  std::int64_t t = output.rows_reversed ? claimed_.T - 1 - at.i : at.i;
  t = ((t + output.roll_rows) % claimed_.T + claimed_.T) % claimed_.T;

  std::int64_t T = claimed_.T;
  if (recipe_.batch_time == BatchTime::exchanged) {
    T = claimed_.B;
    std::swap(b, t);
  } else if (recipe_.batch_time == BatchTime::reshaped) {
    const std::int64_t row = t * claimed_.B + b;
    b = row / T;
    t = row % T;
  }

  const std::int64_t p = h * claimed_.E + e;
  const std::int64_t flat = t * claimed_.H * claimed_.E + p;  // as if all were [T, H, E]
  const auto place = [&](std::int64_t head, std::int64_t row, std::int64_t feature) {
    if (output.read_transposed) {
      const std::int64_t within = row * shape_.E + feature;
      row = within % shape_.T;
      feature = within / shape_.T;
    }
    return Source{{b, head, row}, feature};
  };
  switch (output.merge) {
    case Merge::right:
      return place(flat / shape_.E % shape_.H, flat / shape_.E / shape_.H, flat % shape_.E);
    case Merge::reshaped:
      return place(flat / shape_.E / shape_.T, flat / shape_.E % shape_.T, flat % shape_.E);
    case Merge::unshaped: {
      const std::int64_t by_head = (h * T + t) * claimed_.E + e;
      return place(by_head / shape_.E % shape_.H, by_head / shape_.E / shape_.H,
                   by_head % shape_.E);
    }
    case Merge::width_major:
      return place(p % shape_.H, t, p / shape_.H);
  }
  return {};
}

}  // namespace attest::check
