// SPDX-License-Identifier: MIT
// Every contract that the workbook's tests break on purpose, and the id that answers. Booleans
// among numbers, strings for masks and ragged rows cannot be written down in these types: they are
// for the readers of files to refuse.
#include <cmath>
#include <limits>

#include "attest/check/verify_record.h"
#include "attest/lab/workbook.h"

namespace attest::check {
namespace {

namespace workbook = lab::workbook;
namespace fixture = lab::workbook::fixture;

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

Tensor<bool> cells(Shape shape, std::initializer_list<bool> values) {
  Tensor<bool> out(std::move(shape));
  std::size_t n = 0;
  for (const bool value : values) out.elements()[n++] = value;
  return out;
}

void empty_rows(const VerifyContext& context, Recorder& record) {
  const auto masks = {cells({2, 2}, {false, false, false, false}),
                      cells({2, 2}, {false, true, true, true})};
  for (const Tensor<bool>& allow : masks) {
    record.failed_with(workbook::attention(fixture::query(), fixture::query(), fixture::value(),
                                           {.causal = true, .allow = allow}),
                       "no-visible-key", "workbook attention, causal with allow");
    AttentionCase call = one_head(fixture::query(), fixture::query(), fixture::value());
    call.mask = Mask::causal();
    call.visible = Tensor<bool>(allow).reshaped({1, 1, 2, 2});
    record.failed_with(context.use.attention(call.inputs(), call.options()), "no-visible-key",
                       "attention, causal with mask");
  }
}

void shapes(const VerifyContext& context, Recorder& record) {
  const auto q = fixture::query();
  const auto v = fixture::value();
  record.failed_with(workbook::attention(q, rows_of({{1}}), v), "shape-mismatch",
                     "query of width 2, key of width 1");
  record.failed_with(workbook::attention(q, q, rows_of({{1}})), "shape-mismatch",
                     "2 keys, 1 value");
  record.failed_with(workbook::attention(rows_of({{0, 0}}), q, v, {.causal = true}),
                     "causal-needs-square", "1 query, 2 keys, causal");
  record.failed_with(context.use.matmul(rows_of({{1, 2}}), rows_of({{3, 4}})), "shape-mismatch",
                     "matmul of 1x2 and 1x2");
  record.failed_with(workbook::add(q, rows_of({{1, 2}})), "shape-mismatch", "add of 2x2 and 1x2");
  record.failed_with(context.use.block(q, {}, {.causal = true}), "block-width",
                     "block of two features");
  AttentionCase call = one_head(q, q, rows_of({{1}}));
  record.failed_with(context.use.attention(call.inputs(), call.options()), "shape-mismatch",
                     "attention of 2 keys, 1 value");
  call = one_head(rows_of({{0, 0}}), q, v);
  call.mask = Mask::causal();
  record.failed_with(context.use.attention(call.inputs(), call.options()), "causal-needs-square",
                     "attention of 1 query, 2 keys, causal");
}

void numbers(const VerifyContext&, Recorder& record) {
  const auto k = fixture::query();
  const auto v = fixture::value();
  const auto refused = [&](const Tensor<double>& bad, std::string_view what) {
    record.failed_with(workbook::attention(bad, k, v), "bad-matrix", what);
  };
  refused(Tensor<double>({0, 0}), "query without rows");
  refused(rows_of({{not_a_number, 0}}), "query with NaN");
  refused(rows_of({{infinity, 0}}), "query with infinity");
  refused(rows_of({{1e7, 0}}), "query beyond 1e6");
  refused(Tensor<double>({65, 2}), "query of 65 rows");
  refused(Tensor<double>({2, 65}), "query of 65 columns");
  refused(Tensor<double>({2}), "query of rank 1");
}

void masks(const VerifyContext&, Recorder& record) {
  const auto q = fixture::query();
  record.failed_with(workbook::attention(q, q, fixture::value(), {.allow = cells({1, 1}, {true})}),
                     "bad-allow", "allow of 1x1 for 2 queries and 2 keys");
}

void scores(const VerifyContext& context, Recorder& record) {
  const auto refused = [&](std::vector<double> row, std::string_view id, std::string_view what) {
    record.failed_with(context.use.softmax(row), id, what);
  };
  refused({}, "bad-scores", "softmax of nothing");
  refused({1, not_a_number}, "bad-scores", "softmax with NaN");
  refused({1, infinity}, "bad-scores", "softmax with infinity");
  refused({-infinity, -infinity}, "no-visible-key", "softmax of nothing but -inf");
}

void options(const VerifyContext& context, Recorder& record) {
  const AttentionCase plain = one_head(fixture::query(), fixture::query(), fixture::value());
  const auto refused = [&](const AttentionCase& call, std::string_view id, std::string_view what) {
    record.failed_with(context.use.attention(call.inputs(), call.options()), id, what);
  };
  AttentionCase call = plain;
  call.softcap = 0;
  refused(call, "bad-option", "softcap of 0");
  call = plain;
  call.scale = infinity;
  refused(call, "bad-option", "scale of infinity");
  call = plain;
  call.mask.key_lengths = {3};
  refused(call, "bad-option", "key length 3 of 2 keys");
  call = plain;
  call.sink = {1, 2};
  refused(call, "shape-mismatch", "two sinks for one head");
  call = plain;
  call.bias = Tensor<double>({1, 1, 3, 2});
  refused(call, "shape-mismatch", "bias of three rows for two queries");
}

}  // namespace

VerifySection verify_errors(const VerifyContext& context) {
  struct Broken {
    const char* name;
    const char* about;
    void (*work)(const VerifyContext&, Recorder&);
  };
  constexpr Broken contracts[] = {
      {"a query that sees no key", "chapters 2, 3 and 5", empty_rows},
      {"widths and counts that do not agree", "chapters 1, 2 and 5", shapes},
      {"numbers that are not finite or too large", "chapters 1 and 5", numbers},
      {"a mask of another shape", "chapters 2 and 5", masks},
      {"scores that have no softmax", "chapter 2", scores},
      {"options outside their range", "the general attention", options}};
  VerifySection section;
  for (const Broken& contract : contracts) {
    add_check(section, contract.name, contract.about,
              [&](Recorder& record) { contract.work(context, record); });
  }
  return section;
}

}  // namespace attest::check
