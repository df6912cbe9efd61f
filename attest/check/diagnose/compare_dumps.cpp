// SPDX-License-Identifier: MIT
#include "attest/check/diagnose/compare_dumps.h"

#include <algorithm>
#include <cmath>

#include "attest/base/text.h"
#include "attest/check/diagnose/judge.h"
#include "attest/check/diagnose/noise.h"
#include "attest/check/mistakes/evaluate.h"

namespace attest::check {
namespace {

const Observed* find(const Dump& dump, Stage stage) {
  for (const Observed& each : dump.stages) {
    if (each.stage == stage) return &each;
  }
  return nullptr;
}

std::string address_of(const lab::AttentionShape& s, Stage stage, lab::RowPlace at, std::size_t n) {
  return sentence(s.B > 1 ? sentence("batch", at.b, ".") : "",
                  s.H > 1 ? sentence("h", at.h, ".") : "", name_of(stage), "[", at.i,
                  stage == Stage::log_sum_exp ? std::string() : sentence(",", n), "]");
}

/// Two tables of one stage, while rows are walked.
struct Pair {
  const Observed* first = nullptr;
  const Observed* second = nullptr;
  std::size_t width = 0;
  TableDifference out{};
};

void compare_row(const Dump& claimed, lab::RowPlace at, const RowView& view, Noise::Row& tolerances,
                 Pair& pair) {
  const lab::AttentionShape& s = claimed.claim.shape;
  const bool nan_claimed = claimed.claim.call.empty_row == EmptyRow::nan && view.empty();
  const auto row = static_cast<std::size_t>((at.b * s.H + at.h) * s.T + at.i);
  const auto a = pair.first->values.elements().subspan(row * pair.width, pair.width);
  const auto b = pair.second->values.elements().subspan(row * pair.width, pair.width);
  const Stage stage = pair.first->stage;
  RowNoise of_first, of_second;
  tolerances.of(stage, pair.first->dtype, of_first);
  tolerances.of(stage, pair.second->dtype, of_second);
  TableDifference& out = pair.out;
  for (std::size_t n = 0; n < pair.width; ++n) {
    const Standing standing = view.standing(stage, n, b[n], a[n]);
    if (standing == Standing::left_out) continue;
    ++out.compared;
    if (standing == Standing::both_nan && !nan_claimed) ++out.nan_both;
    double used = 0;
    if (standing == Standing::nan_apart) {
      used = std::numeric_limits<double>::infinity();
    } else if (standing == Standing::compared && a[n] != b[n]) {
      const double difference = std::fabs(b[n] - a[n]);
      out.largest = std::max(out.largest, difference);
      used = difference / (of_first.worst[n] + of_second.worst[n]);
      if (std::isnan(used)) used = std::numeric_limits<double>::infinity();
    }
    out.used = std::max(out.used, used);
    if (!(used > 1)) continue;
    if (out.different++ > 0) continue;
    out.address = address_of(s, stage, at, n);
    out.first = a[n];
    out.second = b[n];
  }
}

}  // namespace

Result<std::vector<TableDifference>> compare_stages(const Dump& first, const Dump& second) {
  std::vector<Pair> pairs;
  for (const Observed& a : first.stages) {
    const Observed* b = find(second, a.stage);
    if (b == nullptr) continue;
    if (b->values.shape() != a.values.shape()) {
      return Failure{
          ErrorKind::shape, "shape-mismatch",
          sentence("[diff] ", a.name, " has shape ", to_string(a.values.shape()),
                   " in the first and ", to_string(b->values.shape()), " in the second")};
    }
    Pair pair{&a, b};
    pair.out = {.stage = a.stage, .first_name = a.name, .second_name = b->name};
    pairs.push_back(std::move(pair));
  }
  if (pairs.empty()) {
    return Failure{ErrorKind::value, "missing-tensor",
                   "[diff] the two dumps have no stage in common"};
  }
  auto evaluation = Evaluation::make(first, Recipe{});
  if (!evaluation) {
    return Failure{ErrorKind::shape, "shape-mismatch", "[diff] the claim does not fit the tensors"};
  }
  const lab::AttentionShape& s = first.claim.shape;
  const std::int64_t rows = s.B * s.H * s.T;
  for (Pair& pair : pairs) {
    if (rows > 0) pair.width = pair.first->values.size() / static_cast<std::size_t>(rows);
  }
  const Noise noise(first);
  Noise::Row tolerances(noise);
  for (std::int64_t n = 0; n < rows; ++n) {
    const lab::RowPlace at{n / (s.H * s.T), n / s.T % s.H, n % s.T};
    const StageRow& row = evaluation->row(at);
    const RowView view(row);
    tolerances.begin(at, row);
    for (Pair& pair : pairs) compare_row(first, at, view, tolerances, pair);
  }
  std::vector<TableDifference> out;
  for (Pair& pair : pairs) out.push_back(std::move(pair.out));
  return out;
}

Dump dump_at_stage(const Dump& first, const Dump& second, Stage stage) {
  Dump out;
  out.claim = first.claim;
  const Observed* before = nullptr;
  for (const Observed& each : first.stages) {
    // What follows comes from tables of scores and weights, not from their sums, nor these from weights.
    if (each.stage >= stage || each.stage == Stage::log_sum_exp) continue;
    if (stage == Stage::log_sum_exp && each.stage == Stage::weights) continue;
    before = &each;
  }
  if (before != nullptr) {
    out.claim.call.query = {};
    out.claim.call.key = {};
    out.stages.push_back(*before);
  }
  out.stages.push_back(*find(second, stage));
  return out;
}

}  // namespace attest::check
