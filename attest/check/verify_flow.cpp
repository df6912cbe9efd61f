// SPDX-License-Identifier: MIT
// Which way information flows: what a later input may change, what an order may change, and what
// constant values become.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "attest/base/text.h"
#include "attest/check/verify_record.h"
#include "attest/lab/workbook.h"

namespace attest::check {
namespace {

namespace fixture = lab::workbook::fixture;

constexpr std::uint64_t flow_streams = 1ULL << 41U;  // apart from those of the random cases
constexpr std::int64_t experiments = 20;

/// The first rows of a matrix.
Tensor<double> first_rows(const Tensor<double>& whole, std::int64_t rows) {
  const std::int64_t width = whole.extent(1);
  return Tensor<double>({rows, width},
                        whole.elements().first(static_cast<std::size_t>(rows * width)));
}

bool any_differs(const Tensor<double>& a, const Tensor<double>& b) {
  return !std::ranges::equal(a.elements(), b.elements());
}

/// Two inputs that agree before row `changed` and differ from there on, and what became of them.
struct Experiment {
  std::string subject;
  Tensor<double> original;
  Tensor<double> altered;
  std::int64_t changed = 0;
};

/// Rows [L, 4], the later ones replaced.
Experiment random_experiment(const VerifyContext& context, std::int64_t n) {
  Random random(context.options.seed, flow_streams + static_cast<std::uint64_t>(n));
  const std::int64_t L = random.between(2, 5);
  Experiment out{
      sentence("experiment ", n), random_tensor(random, {L, 4}, 2), {}, random.between(1, L - 1)};
  out.altered = out.original;
  for (std::int64_t i = out.changed; i < L; ++i) {
    for (std::int64_t c = 0; c < 4; ++c) out.altered(i, c) = random.uniform(-10, 10);
  }
  return out;
}

/// The workbook's own: X with its last row replaced.
Experiment workbook_experiment() {
  Experiment out{"the workbook's X", fixture::rows(), fixture::rows(), 2};
  const double row[] = {10, -9, 8, -7};
  for (std::int64_t c = 0; c < 4; ++c) out.altered(2, c) = row[c];
  return out;
}

using Run = std::function<std::optional<Tensor<double>>(const Tensor<double>&, Recorder&)>;

/// Earlier rows keep their bits, and the changed rows do change.
void future_is_hidden(const Experiment& e, const Run& run, Recorder& record) {
  const auto before = run(e.original, record);
  const auto after = run(e.altered, record);
  if (!before || !after) return;
  record.same_bits(first_rows(*after, e.changed), first_rows(*before, e.changed),
                   {e.subject, "output"});
  record.that(any_differs(*after, *before), e.subject + ": the changed rows' outputs change");
}

/// Without the mask, some earlier row changes.
void future_is_seen(const Experiment& e, const Run& run, Recorder& record) {
  const auto before = run(e.original, record);
  const auto after = run(e.altered, record);
  if (!before || !after) return;
  record.that(any_differs(first_rows(*after, e.changed), first_rows(*before, e.changed)),
              e.subject + ": an earlier output changes");
}

Run attention_of(const VerifyContext& context, bool causal) {
  return [&context, causal](const Tensor<double>& x,
                            Recorder& record) -> std::optional<Tensor<double>> {
    AttentionCase call = one_head(x, x, x);
    if (causal) call.mask = Mask::causal();
    auto result = context.use.attention(call.inputs(), call.options());
    if (!record.succeeded(result, "attention")) return {};
    return std::move(result->output).reshaped(x.shape());
  };
}

Run block_of(const VerifyContext& context, bool causal) {
  return [&context, causal](const Tensor<double>& x,
                            Recorder& record) -> std::optional<Tensor<double>> {
    auto result = context.use.block(x, {}, {.causal = causal});
    if (!record.succeeded(result, "block")) return {};
    return std::move(result->output);
  };
}

void each_experiment(const VerifyContext& context, const Run& run, Recorder& record,
                     void (*law)(const Experiment&, const Run&, Recorder&)) {
  law(workbook_experiment(), run, record);
  for (std::int64_t n = 0; n < experiments; ++n) law(random_experiment(context, n), run, record);
}

// ---- permutation and constants ----------------------------------------------------------------

/// Rows of a matrix in another order.
Tensor<double> reordered(const Tensor<double>& x, const std::vector<std::int64_t>& order) {
  Tensor<double> out(x.shape());
  for (std::int64_t i = 0; i < x.extent(0); ++i) {
    for (std::int64_t c = 0; c < x.extent(1); ++c) {
      out(i, c) = x(order[static_cast<std::size_t>(i)], c);
    }
  }
  return out;
}

/// Keys and values reordered together: correctly rounded sums have no order, so the bits stay.
void joint_permutation(const VerifyContext& context, Recorder& record) {
  for (std::int64_t n = 0; n < 2 * experiments; ++n) {
    Random random(context.options.seed, 2 * flow_streams + static_cast<std::uint64_t>(n));
    const std::int64_t S = random.between(2, 5);
    const Tensor<double> query = random_tensor(random, {random.between(1, 4), 3}, 2);
    const Tensor<double> key = random_tensor(random, {S, 3}, 2);
    const Tensor<double> value = random_tensor(random, {S, 2}, 2);
    std::vector<std::int64_t> order(static_cast<std::size_t>(S));
    std::iota(order.begin(), order.end(), 0);
    for (std::int64_t k = S - 1; k > 0; --k) {
      std::swap(order[static_cast<std::size_t>(k)],
                order[static_cast<std::size_t>(random.between(0, k))]);
    }
    const AttentionCase plain = one_head(query, key, value);
    const AttentionCase moved = one_head(query, reordered(key, order), reordered(value, order));
    const auto a = context.use.attention(plain.inputs(), plain.options());
    const auto b = context.use.attention(moved.inputs(), moved.options());
    const std::string subject = sentence("permutation ", n);
    if (!record.succeeded(a, subject) || !record.succeeded(b, subject)) continue;
    record.same_bits(b->output, a->output, {subject, "output"});
    for (std::int64_t i = 0; i < query.extent(0); ++i) {
      for (std::int64_t j = 0; j < S; ++j) {
        record.equal(b->weights(0, 0, i, j),
                     a->weights(0, 0, i, order[static_cast<std::size_t>(j)]),
                     sentence(subject, ": weights[0,0,", i, ",", j, "]"));
      }
    }
  }
}

/// What is not an invariance: keys alone, and both under the causal mask, where position counts.
void not_invariant(const VerifyContext& context, Recorder& record) {
  const Tensor<double> q = fixture::query();
  const Tensor<double> k = reordered(q, {1, 0});
  const Tensor<double> v = fixture::value();
  const auto output = [&](const AttentionCase& call) {
    auto result = context.use.attention(call.inputs(), call.options());
    return record.succeeded(result, "attention") ? std::move(result->output) : Tensor<double>();
  };
  const Tensor<double> plain = output(one_head(q, q, v));
  record.that(any_differs(plain, output(one_head(q, k, v))), "keys alone reversed: output changes");
  AttentionCase causal = one_head(q, q, v);
  causal.mask = Mask::causal();
  AttentionCase moved = one_head(q, k, reordered(v, {1, 0}));
  moved.mask = Mask::causal();
  record.that(any_differs(output(causal), output(moved)),
              "keys and values reversed under causal: output changes");
}

/// Constant values come out as they went in, up to the rounding of weights that sum to 1 ± 2u, of
/// their products and of the sum.
void constant_values(const VerifyContext& context, Recorder& record) {
  constexpr double unit = 0x1p-53;
  for (const EvaluatedCase& each : context.cases) {
    if (!each.complete() || !each.c.call.sink.empty()) continue;
    AttentionCase call = each.c.call;
    const std::int64_t E = call.value.extent(3);
    const double constants[] = {3, -2, 0.1};
    for (std::size_t n = 0; n < call.value.size(); ++n) {
      call.value.elements()[n] = constants[n % static_cast<std::size_t>(E)];
    }
    const auto found = context.use.attention(call.inputs(), call.options());
    if (!record.succeeded(found, each.c.name + ", constant values")) continue;
    for (std::size_t n = 0; n < found->output.size(); ++n) {
      const auto& first_score = each.expected->log_sum_exp.values[n / static_cast<std::size_t>(E)];
      if (!lab::oracle::is_finite(first_score)) continue;  // a row that sees nothing gives 0
      const double constant = constants[n % static_cast<std::size_t>(E)];
      record.near(found->output.elements()[n], constant, 5 * unit * std::abs(constant),
                  address_of({each.c.name, "output"}, found->output.shape(), n));
    }
  }
}

}  // namespace

VerifySection verify_future_change(const VerifyContext& context) {
  VerifySection section;
  const auto check = [&](const char* name, const char* about, const Run& run, auto law) {
    add_check(section, name, about,
              [&](Recorder& record) { each_experiment(context, run, record, law); });
  };
  check("attention, causal: a later row changes no earlier output", "chapter 3, stage output",
        attention_of(context, true), future_is_hidden);
  check("attention, not causal: it changes some", "chapter 3, stage output",
        attention_of(context, false), future_is_seen);
  check("block, causal: a later row changes no earlier output", "chapters 3 and 5, whole block",
        block_of(context, true), future_is_hidden);
  check("block, not causal: it changes some", "chapter 3, whole block", block_of(context, false),
        future_is_seen);
  return section;
}

VerifySection verify_permutation(const VerifyContext& context) {
  VerifySection section;
  add_check(section, "keys and values permuted together give the same bits",
            "chapter 5, not causal", [&](Recorder& record) { joint_permutation(context, record); });
  add_check(section, "keys alone, or both under causal, do not", "chapter 5",
            [&](Recorder& record) { not_invariant(context, record); });
  add_check(section, "constant values remain constant", "chapter 5, stage output",
            [&](Recorder& record) { constant_values(context, record); });
  return section;
}

}  // namespace attest::check
