// SPDX-License-Identifier: MIT
// What the workbook calculates by hand, chapter by chapter: tables to six decimals, and exact
// facts.
#include <array>
#include <cmath>

#include "attest/base/text.h"
#include "attest/check/verify_record.h"
#include "attest/lab/attention_row.h"
#include "attest/lab/workbook.h"

namespace attest::check {
namespace {

namespace fixture = lab::workbook::fixture;

/// A number printed with six decimals stands for everything that rounds to it.
constexpr double six_decimals = 0.5e-6 + 1e-12;

using Rows = std::initializer_list<std::initializer_list<double>>;

/// Every number of a printed table.
void table(Recorder& record, const Tensor<double>& found, Rows printed, std::string_view stage) {
  const Tensor<double> expected = rows_of(printed);
  if (found.size() != expected.size()) {
    return record.that(false, std::string(stage) + " has another size");
  }
  for (std::size_t n = 0; n < found.size(); ++n) {
    record.near(found.elements()[n], expected.elements()[n], six_decimals,
                address_of({"", stage}, expected.shape(), n));
  }
}

/// Every number, exactly.
void exact_table(Recorder& record, const Tensor<double>& found, Rows printed,
                 std::string_view stage) {
  const Tensor<double> expected = rows_of(printed);
  if (found.size() != expected.size()) {
    return record.that(false, std::string(stage) + " has another size");
  }
  for (std::size_t n = 0; n < found.size(); ++n) {
    record.equal(found.elements()[n], expected.elements()[n],
                 address_of({"", stage}, expected.shape(), n));
  }
}

struct Fixture {
  const VerifyContext& context;

  [[nodiscard]] AttentionCase call() const {
    return one_head(fixture::query(), fixture::query(), fixture::value());
  }
  /// Attention of a call by whatever is verified; null, and a failure, if it fails.
  [[nodiscard]] std::optional<lab::AttentionResult> attend(Recorder& record,
                                                           const AttentionCase& call) const {
    auto result = context.use.attention(call.inputs(), call.options());
    if (!record.succeeded(result, "attention")) return {};
    return *std::move(result);
  }
};

void first_product(const Fixture& f, Recorder& record) {
  const auto product = f.context.use.matmul(rows_of({{1, 2}}), rows_of({{3, 4}, {5, 6}}));
  if (record.succeeded(product, "matmul")) exact_table(record, *product, {{13, 16}}, "product");
}

void scaled_scores(const Fixture& f, Recorder& record) {
  const AttentionCase call = f.call();
  const auto row = lab::attention_row(call.inputs(), call.options(), {0, 0, 0});
  if (!record.succeeded(row, "attention_row")) return;
  record.equal(row->dot[0], 1, "dot[0,0]");
  record.equal(row->dot[1], 0, "dot[0,1]");
  record.near(row->scaled[0], 0.707107, six_decimals, "scaled[0,0]");
  record.equal(row->scaled[1], 0, "scaled[0,1]");
}

void noncausal_tables(const Fixture& f, Recorder& record) {
  const auto r = f.attend(record, f.call());
  if (!r) return;
  table(record, r->weights, {{0.669762, 0.330238}, {0.330238, 0.669762}}, "weights");
  table(record, r->output, {{6.697615, 6.604769}, {3.302385, 13.395231}}, "output");
}

/// a = e^(1/√2) / (e^(1/√2) + 1), with fifty digits.
void closed_form(const Fixture& f, Recorder& record) {
  using lab::oracle::Real;
  const AttentionCase call = f.call();
  const auto r = f.attend(record, call);
  const auto bound = lab::bound_attention(call.inputs(), call.options());
  if (!r || !record.succeeded(bound, "bound_attention")) return;
  const Real power = lab::oracle::exp(1 / Real(sqrt(Real(2))));
  const Real a = power / (power + 1);
  lab::oracle::OracleTensor weights({1, 1, 2, 2});
  weights.values = {a, 1 - a, 1 - a, a};
  lab::oracle::OracleTensor output({1, 1, 2, 2});
  output.values = {10 * a, 20 * (1 - a), 10 * (1 - a), 20 * a};
  record.within(r->weights, weights, bound->weights, {"", "weights"});
  record.within(r->output, output, bound->output, {"", "output"});
}

void without_scale(const Fixture& f, Recorder& record) {
  AttentionCase call = f.call();
  call.scale = 1;
  const auto r = f.attend(record, call);
  if (!r) return;
  record.near(r->weights(0, 0, 0, 0), 0.731059, six_decimals, "weights[0,0] with scale 1");
  call.scale.reset();
  const auto scaled = f.attend(record, call);
  if (!scaled) return;
  record.that(std::abs(scaled->weights(0, 0, 0, 0) - 0.731059) > 0.06,
              "weights[0,0] without the scale is another distribution");
}

void shifts(const Fixture& f, Recorder& record) {
  const auto& softmax = f.context.use.softmax;
  const double large[] = {10000, 10000};
  const double small[] = {1, 2, 3};
  const double shifted[] = {1001, 1002, 1003};
  const auto half = softmax(large);
  const auto a = softmax(small);
  const auto b = softmax(shifted);
  if (record.succeeded(half, "softmax")) exact_table(record, *half, {{0.5, 0.5}}, "weights");
  if (!record.succeeded(a, "softmax") || !record.succeeded(b, "softmax")) return;
  record.same_bits(*b, *a, {"softmax [1001, 1002, 1003]", "weights"});
}

void causal_tables(const Fixture& f, Recorder& record) {
  AttentionCase call = f.call();
  call.mask = Mask::causal();
  const auto r = f.attend(record, call);
  if (!r) return;
  table(record, r->weights, {{1, 0}, {0.330238, 0.669762}}, "weights");
  table(record, r->output, {{10, 0}, {3.302385, 13.395231}}, "output");
  record.equal(r->weights(0, 0, 0, 0), 1, "weights[0,0], exactly");
  record.equal(r->weights(0, 0, 0, 1), 0, "weights[0,1], exactly");
  record.equal(r->output(0, 0, 0, 0), 10, "output[0,0], exactly");
  record.equal(r->output(0, 0, 0, 1), 0, "output[0,1], exactly");
  record.that(r->weights(0, 0, 1, 0) > 0, "weights[1,0] is positive");
  record.that(r->weights(0, 0, 1, 1) > 0, "weights[1,1], the diagonal, is positive");
}

void allow_mask(const Fixture& f, Recorder& record) {
  AttentionCase call = f.call();
  call.visible = Tensor<bool>({1, 1, 2, 2});
  (*call.visible)(0, 0, 0, 1) = (*call.visible)(0, 0, 1, 1) = true;
  const auto r = f.attend(record, call);
  if (!r) return;
  exact_table(record, r->weights, {{0, 1}, {0, 1}}, "weights");
  exact_table(record, r->output, {{0, 20}, {0, 20}}, "output");
}

void cross_attention(const Fixture& f, Recorder& record) {
  const auto r = f.attend(
      record, one_head(rows_of({{0, 0}}), fixture::query(), rows_of({{1, 2, 3}, {3, 4, 5}})));
  if (r) exact_table(record, r->output, {{2, 3, 4}}, "output");
}

void block_tables(const Fixture& f, Recorder& record) {
  const auto r = f.context.use.block(fixture::rows(), {}, {.causal = true});
  if (!record.succeeded(r, "block")) return;
  table(record, r->output,
        {{0.999998, -0.999998, 0.999998, -0.999998},
         {-0.999998, 0.999998, -0.999998, 0.999998},
         {1.347147, 0.577349, -0.962248, -0.962248}},
        "output");
  table(record, r->maps[0], {{1, 0, 0}, {0.330238, 0.669762, 0}, {0.248255, 0.248255, 0.503490}},
        "h0.weights");
  table(record, r->maps[1], {{1, 0, 0}, {0.330238, 0.669762, 0}, {0.333333, 0.333333, 0.333333}},
        "h1.weights");
  const double third = 1.0 / 3;
  for (std::int64_t j = 0; j < 3; ++j) {
    record.equal(r->maps[1](2, j), third, sentence("h1.weights[2,", j, "], a third"));
  }
}

/// Normalised rows sum to 0; a variance just below 1 leaves ±1 just short.
void block_normalisation(const Fixture& f, Recorder& record) {
  const auto r = f.context.use.block(fixture::rows(), {}, {.causal = true});
  if (!record.succeeded(r, "block")) return;
  record.near(r->output(0, 0), 1, 0.5e-5, "output[0,0]");
  record.near(r->output(0, 1), -1, 0.5e-5, "output[0,1]");
  for (std::int64_t i = 0; i < 3; ++i) {
    double sum = 0;
    for (std::int64_t j = 0; j < 4; ++j) sum += r->output(i, j);
    record.near(sum, 0, 0.5e-7, sentence("output[", i, ",·], summed"));
  }
  const auto constant = lab::workbook::normalise(rows_of({{3, 3, 3, 3}}));
  exact_table(record, constant.values, {{0, 0, 0, 0}}, "norm of a constant row");
}

}  // namespace

VerifySection verify_facts(const VerifyContext& context) {
  const Fixture f{context};
  struct Fact {
    const char* name;
    const char* chapter;
    void (*work)(const Fixture&, Recorder&);
  };
  constexpr Fact facts[] = {
      {"[1 2] times [[3 4] [5 6]] is [13 16]", "chapter 1", first_product},
      {"dot products 1 and 0, scaled 0.707107 and 0", "chapter 2", scaled_scores},
      {"noncausal weights and outputs", "chapters 2 and 3", noncausal_tables},
      {"weights in closed form", "chapters 2 and 5", closed_form},
      {"0.731059 without the scale", "chapter 2", without_scale},
      {"softmax is shift invariant and survives 10000", "chapters 2 and 5", shifts},
      {"causal weights and outputs", "chapter 3", causal_tables},
      {"a mask renormalises the visible keys", "chapters 3 and 5", allow_mask},
      {"a zero query averages the values", "chapter 5", cross_attention},
      {"block output and head maps", "chapters 3 and 4", block_tables},
      {"normalisation of the block", "chapters 4 and 5", block_normalisation}};
  VerifySection section;
  for (const Fact& fact : facts) {
    add_check(section, fact.name, fact.chapter, [&](Recorder& record) { fact.work(f, record); });
  }
  return section;
}

}  // namespace attest::check
