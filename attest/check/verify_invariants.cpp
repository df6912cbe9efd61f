// SPDX-License-Identifier: MIT
// Laws of single stages, on every random case. What is hidden is the oracle's to say: it evaluates
// masks with code of its own.
#include <algorithm>
#include <cmath>
#include <limits>

#include "attest/base/text.h"
#include "attest/check/verify_record.h"
#include "attest/lab/exact_sum.h"

namespace attest::check {
namespace {

constexpr double unit = 0x1p-53;
constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

/// One row of one case, with the keys that it sees.
struct Row {
  const EvaluatedCase& each;
  std::int64_t b, h, i;
  std::vector<std::int64_t> seen;

  [[nodiscard]] double weight(std::int64_t j) const { return each.found->weights(b, h, i, j); }
  [[nodiscard]] double value(std::int64_t j, std::int64_t e) const {
    const Tensor<double>& value = each.c.call.value;
    return value(b, h / (each.c.call.query.extent(1) / value.extent(1)), j, e);
  }
  [[nodiscard]] bool sink() const { return !each.c.call.sink.empty(); }
  [[nodiscard]] std::string place(std::string_view stage) const {
    return sentence(each.c.name, ": ", stage, "[", b, ",", h, ",", i, "]");
  }
};

std::vector<Row> rows_of_case(const EvaluatedCase& each) {
  std::vector<Row> rows;
  if (!each.complete()) return rows;  // the oracle section says so: "no case fails"
  const Shape& shape = each.expected->scores.shape;
  for (std::int64_t n = 0; n < shape[0] * shape[1] * shape[2]; ++n) {
    Row row{each, n / (shape[1] * shape[2]), n / shape[2] % shape[1], n % shape[2], {}};
    for (std::int64_t j = 0; j < shape[3]; ++j) {
      if (lab::oracle::is_finite(each.expected->scores(row.b, row.h, row.i, j))) {
        row.seen.push_back(j);
      }
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

void not_negative(const Row& row, Recorder& record) {
  for (const std::int64_t j : row.seen) {
    record.inside(row.weight(j), {0, 1, 0}, row.place("weights"));
  }
}

void hidden_is_zero(const Row& row, Recorder& record) {
  for (std::int64_t j = 0; j < row.each.found->weights.extent(3); ++j) {
    if (std::ranges::binary_search(row.seen, j)) continue;
    record.equal(row.weight(j), 0, row.place("weights"));
  }
}

/// Each weight is exp/sum, rounded, and the sum of the exps is rounded: relative errors of u each,
/// and of u for adding up here. Weights below 2⁻¹⁰²² err by less than 2⁻¹⁰⁷⁴.
void sums_to_one(const Row& row, Recorder& record) {
  if (row.seen.empty()) return;
  std::vector<double> weights;
  for (const std::int64_t j : row.seen) weights.push_back(row.weight(j));
  const double allowed = 3 * unit + static_cast<double>(weights.size()) * 0x1p-1074;
  record.inside(lab::exact_sum(weights), {row.sink() ? 0.0 : 1.0, 1, allowed},
                row.place("weights") + ", summed");
}

/// A weighted mean lies between the least and the largest value; a sink draws it towards 0.
void within_hull(const Row& row, Recorder& record) {
  if (row.seen.empty()) return;
  for (std::int64_t e = 0; e < row.each.found->output.extent(3); ++e) {
    double low = row.sink() ? 0 : infinity;
    double high = row.sink() ? 0 : -infinity;
    for (const std::int64_t j : row.seen) {
      low = std::min(low, row.value(j, e));
      high = std::max(high, row.value(j, e));
    }
    // 2u of the weights' sum, u of each product and u of their sum, in terms of the largest value
    const double allowed = 5 * unit * std::max(std::abs(low), std::abs(high)) + 0x1p-1060;
    record.inside(row.each.found->output(row.b, row.h, row.i, e), {low, high, allowed},
                  row.place("output"));
  }
}

void lone_key(const Row& row, Recorder& record) {
  if (row.seen.size() != 1 || row.sink()) return;
  const std::int64_t j = row.seen.front();
  record.equal(row.weight(j), 1, row.place("weights"));
  for (std::int64_t e = 0; e < row.each.found->output.extent(3); ++e) {
    record.equal(row.each.found->output(row.b, row.h, row.i, e), row.value(j, e),
                 row.place("output"));
  }
}

/// peak ≤ log Σ exp(score) ≤ peak + log n, for n scores with the sink.
void log_sum_exp_range(const Row& row, Recorder& record) {
  if (row.seen.empty()) return;
  double peak = row.sink() ? row.each.c.call.sink[static_cast<std::size_t>(row.h)] : -infinity;
  for (const std::int64_t j : row.seen) {
    const auto& score = row.each.expected->scores(row.b, row.h, row.i, j);
    peak = std::max(peak, lab::oracle::nearest_double(score));
  }
  const double n = static_cast<double>(row.seen.size()) + (row.sink() ? 1 : 0);
  const double allowed =
      row.each.bound->log_sum_exp(row.b, row.h, row.i) + 4 * unit * (std::abs(peak) + std::log(n));
  record.inside(row.each.found->log_sum_exp(row.b, row.h, row.i),
                {peak, peak + std::log(n), allowed}, row.place("log_sum_exp"));
}

/// The same number added to every score of the call, by a bias: nothing but log_sum_exp moves.
void shift_of_scores(const EvaluatedCase& each, const Implementation& use, Recorder& record) {
  if (!each.complete() || !each.c.call.sink.empty()) return;
  AttentionCase shifted = each.c.call;
  if (!shifted.bias) {
    const Shape& s = each.expected->scores.shape;
    shifted.bias = Tensor<double>({s[0], s[1], s[2], s[3]});
  }
  for (double& x : shifted.bias->elements()) x += 8;
  const auto found = use.attention(shifted.inputs(), shifted.options());
  const auto bound = lab::bound_attention(shifted.inputs(), shifted.options());
  if (!record.succeeded(found, each.c.name + ", shifted") || !bound) return;
  // The shifted bias is itself rounded: x + 8 errs by at most 8u for |x| ≤ 8.
  constexpr double bias_rounding = 2 * 16 * unit;
  for (std::size_t n = 0; n < found->weights.size(); ++n) {
    record.near(found->weights.elements()[n], each.found->weights.elements()[n],
                bound->weights.elements()[n] + each.bound->weights.elements()[n] + bias_rounding,
                address_of({each.c.name, "weights"}, found->weights.shape(), n));
  }
}

void large_scores(const Implementation& use, Recorder& record) {
  for (const double size : {10000.0, 1e6, 1e150}) {
    const AttentionCase call =
        one_head(rows_of({{size}}), rows_of({{size}, {size}}), rows_of({{10}, {20}}));
    const auto found = use.attention(call.inputs(), call.options());
    const std::string subject = sentence("query and both keys ", size);
    if (!record.succeeded(found, subject)) continue;
    record.equal(found->weights(0, 0, 0, 0), 0.5, subject + ": weights[0,0]");
    record.equal(found->weights(0, 0, 0, 1), 0.5, subject + ": weights[0,1]");
    record.equal(found->output(0, 0, 0, 0), 15, subject + ": output[0,0]");
  }
}

/// Puts NaN into the keys, and infinity into the values, that no query of their group sees; returns
/// whether there were any.
bool poison(const EvaluatedCase& each, AttentionCase& call) {
  const auto& scores = each.expected->scores;
  const Shape& s = scores.shape;
  const std::int64_t G = call.key.extent(1);
  bool any = false;
  for (std::int64_t n = 0; n < s[0] * G * s[3]; ++n) {
    const std::int64_t b = n / (G * s[3]);
    const std::int64_t g = n / s[3] % G;
    const std::int64_t j = n % s[3];
    bool seen = false;
    for (std::int64_t h = g * (s[1] / G); h < (g + 1) * (s[1] / G); ++h) {
      for (std::int64_t i = 0; i < s[2]; ++i) {
        seen = seen || lab::oracle::is_finite(scores(b, h, i, j));
      }
    }
    if (seen) continue;
    any = true;
    for (std::int64_t d = 0; d < call.key.extent(3); ++d) call.key(b, g, j, d) = not_a_number;
    for (std::int64_t e = 0; e < call.value.extent(3); ++e) call.value(b, g, j, e) = infinity;
  }
  return any;
}

void hidden_is_not_read(const EvaluatedCase& each, const Implementation& use, Recorder& record) {
  if (!each.complete()) return;
  AttentionCase call = each.c.call;
  if (!poison(each, call)) return;
  const auto found = use.attention(call.inputs(), call.options());
  if (!record.succeeded(found, each.c.name + ", with NaN in hidden keys")) return;
  record.same_bits(found->output, each.found->output, {each.c.name, "output"});
  record.same_bits(found->weights, each.found->weights, {each.c.name, "weights"});
  record.same_bits(found->log_sum_exp, each.found->log_sum_exp, {each.c.name, "log_sum_exp"});
}

}  // namespace

VerifySection verify_invariants(const VerifyContext& context) {
  struct RowLaw {
    const char* name;
    const char* stage;
    void (*work)(const Row&, Recorder&);
  };
  constexpr RowLaw laws[] = {
      {"weights lie between 0 and 1", "stage weights", not_negative},
      {"a hidden key has weight exactly 0", "stage weights", hidden_is_zero},
      {"a row of weights sums to 1", "stage weights, before any dropout", sums_to_one},
      {"the output lies within the hull of the visible values",
       "stage output, before any projection or residual", within_hull},
      {"a lone visible key, as the first under causal, gives its value exactly", "stage output",
       lone_key},
      {"peak <= log_sum_exp <= peak + log n", "stage log_sum_exp", log_sum_exp_range}};
  VerifySection section;
  for (const RowLaw& law : laws) {
    add_check(section, law.name, law.stage, [&](Recorder& record) {
      for (const EvaluatedCase& each : context.cases) {
        for (const Row& row : rows_of_case(each)) law.work(row, record);
      }
    });
  }
  add_check(section, "one number added to all scores changes no weight", "stage weights",
            [&](Recorder& record) {
              for (const EvaluatedCase& each : context.cases) {
                shift_of_scores(each, context.use, record);
              }
            });
  add_check(section, "large scores do not overflow", "stage exp",
            [&](Recorder& record) { large_scores(context.use, record); });
  add_check(section, "NaN and infinity in hidden keys and values reach nobody", "stage masked",
            [&](Recorder& record) {
              for (const EvaluatedCase& each : context.cases) {
                hidden_is_not_read(each, context.use, record);
              }
            });
  return section;
}

}  // namespace attest::check
