// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "attest/base/text.h"
#include "attest/check/diagnose/diagnosis.h"
#include "attest/check/diagnose/exact.h"
#include "attest/check/diagnose/localise.h"
#include "attest/check/diagnose/storage.h"
#include "attest/check/diagnose/verdict.h"

namespace attest::check {
namespace {

constexpr std::string_view stages_wanted =
    "give query, key, value and output; or scores and weights; or weights, value and output";

Failure missing(std::string what) {
  return {ErrorKind::value, "missing-tensor", "[check] " + what};
}

/// What a table must have behind [B, H, T].
std::int64_t width_of(Stage stage, const lab::AttentionShape& shape) {
  if (stage == Stage::log_sum_exp) return 1;
  return stage == Stage::output ? shape.E : shape.S;
}

Failure apart(std::string_view one, std::string_view other, std::string_view axis, std::int64_t a,
              std::int64_t b) {
  return {ErrorKind::shape, "shape-mismatch",
          sentence("[check] ", one, " and ", other, " must have the same ", axis, "; ", one,
                   " has ", a, ", ", other, " has ", b)};
}

/// What query, key and value must share.
Result<void> refuse_inputs(const Claim& claim) {
  const Tensor<double>&query = claim.call.query, &key = claim.call.key;
  const Tensor<double>& value = claim.call.value;
  if (claim.has_query_and_key()) {
    for (const auto& [axis, name] : {std::pair{0U, "B"}, std::pair{3U, "D"}}) {
      if (query.extent(axis) != key.extent(axis)) {
        return apart("query", "key", name, query.extent(axis), key.extent(axis));
      }
    }
  }
  if (claim.has_query_and_key() && claim.has_value()) {
    for (const auto& [axis, name] : {std::pair{0U, "B"}, std::pair{1U, "G"}, std::pair{2U, "S"}}) {
      if (key.extent(axis) != value.extent(axis)) {
        return apart("key", "value", name, key.extent(axis), value.extent(axis));
      }
    }
  }
  return {};
}

/// The claim's shape, from its tensors where it does not say.
Result<lab::AttentionShape> shape_of(const Dump& dump) {
  lab::AttentionShape shape = dump.claim.shape;
  const AttentionCase& call = dump.claim.call;
  const auto rank_4 = [](const Tensor<double>& x) { return x.rank() == 4; };
  if (dump.claim.has_query_and_key()) {
    if (!rank_4(call.query) || !rank_4(call.key)) {
      return Failure{ErrorKind::shape, "shape-mismatch",
                     "[check] query and key must be [B, H, T, D] and [B, G, S, D]"};
    }
    shape.B = call.query.extent(0);
    shape.H = call.query.extent(1);
    shape.T = call.query.extent(2);
    shape.D = call.query.extent(3);
    shape.G = call.key.extent(1);
    shape.S = call.key.extent(2);
  }
  if (dump.claim.has_value()) {
    if (!rank_4(call.value)) {
      return Failure{ErrorKind::shape, "shape-mismatch", "[check] value must be [B, G, S, E]"};
    }
    shape.G = call.value.extent(1);
    shape.S = call.value.extent(2);
    shape.E = call.value.extent(3);
  }
  if (auto ok = refuse_inputs(dump.claim); !ok) return ok.failure();
  for (const Observed& table : dump.stages) {
    if (table.values.rank() < 3) continue;
    if (shape.B == 0) shape.B = table.values.extent(0);
    if (shape.H == 0) shape.H = table.values.extent(1);
    if (shape.T == 0) shape.T = table.values.extent(2);
    const bool over_keys = table.stage <= Stage::weights && table.values.rank() == 4;
    if (shape.S == 0 && over_keys) shape.S = table.values.extent(3);
  }
  if (shape.G == 0) shape.G = shape.H;
  return shape;
}

/// What makes a dump no dump.
Result<void> refuse(const Dump& dump) {
  const Claim& claim = dump.claim;
  if (dump.stages.empty()) {
    return missing(sentence("nothing to judge: ", stages_wanted));
  }
  const Stage first = dump.stages.front().stage;
  if (!claim.has_query_and_key() && dump.stages.size() == 1) {
    const bool half = claim.call.query.size() != 0 || claim.call.key.size() != 0;
    return missing(sentence(half ? "one of query and key is missing" : "query and key are missing",
                            ", and nothing before ", name_of(first), " is given: ", stages_wanted));
  }
  const lab::AttentionShape& shape = claim.shape;
  const bool scaled_later =
      first == Stage::dot && dump.stages.back().stage > Stage::dot && !claim.call.scale;
  if (!claim.has_query_and_key() && scaled_later && shape.D == 0) {
    return missing(
        "the scale is not known: it is 1/sqrt(D), and without query and key nothing says D; "
        "--scale says it");
  }
  const std::int64_t rows = shape.B * shape.H * shape.T;
  for (std::size_t n = 0; n < dump.stages.size(); ++n) {
    const Observed& table = dump.stages[n];
    if (n > 0 && !(dump.stages[n - 1].stage < table.stage)) {
      return Failure{
          ErrorKind::value, "bad-option",
          sentence("[check] stages must stand in order of computation, each once; ",
                   name_of(table.stage), " comes after ", name_of(dump.stages[n - 1].stage))};
    }
    const bool sums_alone = table.stage == Stage::log_sum_exp && first >= Stage::weights;
    if (sums_alone && !claim.has_query_and_key()) {
      return missing("log_sum_exp does not follow from weights: it needs scores, or query and key");
    }
    if (table.stage == Stage::output && !claim.has_value()) {
      return missing("value is missing: output cannot be recomputed without it");
    }
    const std::int64_t numbers = rows * width_of(table.stage, shape);
    if (static_cast<std::int64_t>(table.values.size()) == numbers) continue;
    return Failure{ErrorKind::shape, "shape-mismatch",
                   sentence("[check] ", name_of(table.stage), " must have ", numbers,
                            " numbers, for B ", shape.B, ", H ", shape.H, ", T ", shape.T, ", S ",
                            shape.S, " and E ", shape.E, "; it has ", table.values.size())};
  }
  if (shape.G == 0 || shape.H % std::max<std::int64_t>(shape.G, 1) != 0) {
    if (rows == 0) return {};
    return Failure{ErrorKind::shape, "shape-mismatch",
                   sentence("[check] the number of query heads must be a multiple of the number of "
                            "key/value heads; they are ",
                            shape.H, " and ", shape.G)};
  }
  return rows == 0 ? Result<void>{} : check_call(claim);
}

std::string tolerance_sentence(const Dump& dump, const Arithmetic& arithmetic,
                               const Judged& judged) {
  const auto digits = [](double x) { return three_digits(x); };
  std::string stored;
  for (const Observed& table : dump.stages) {
    const std::string name(name_of(table.dtype));
    if (stored.find(name) == std::string::npos) stored += (stored.empty() ? "" : " and ") + name;
  }
  const lab::AttentionShape& shape = dump.claim.shape;
  return sentence("derived number by number for ", name_of(dump.claim.precision),
                  " arithmetic: sums of ", shape.D, " and ", shape.S, " terms with unit roundoff ",
                  digits(arithmetic.sums), ", the sizes of scores and values, and storing in ",
                  stored, "; ", digits(judged.deviation), " standard deviations for ",
                  judged.numbers(), " numbers");
}

void remark_on_input(const Dump& dump, const Judged& judged, Diagnosis& out) {
  const auto odd = [](const Tensor<double>& x) {
    return std::ranges::any_of(x.elements(), [](double v) { return !std::isfinite(v); });
  };
  const AttentionCase& call = dump.claim.call;
  std::string names;
  if (odd(call.query)) names += "query";
  if (odd(call.key)) names += names.empty() ? "key" : ", key";
  if (odd(call.value)) names += names.empty() ? "value" : ", value";
  if (!names.empty()) out.remarks.push_back(sentence("NaN or infinity in ", names));
  const auto empty = std::ranges::count(judged.empty, true);
  if (empty > 0) {
    const EmptyRow rule = call.empty_row;
    out.remarks.push_back(
        sentence(empty, " of ", judged.rows.count(), " queries see no key; judged as ",
                 rule == EmptyRow::nan ? "NaN" : "0",
                 rule == EmptyRow::error ? ", for the claim does not say what they give" : ""));
  }
}

/// Numbers that f64 holds may have been made in f32, or written with a few digits.
void consider_f32(const Dump& dump, bool guessed, ThreadPool& pool, Diagnosis& out) {
  if (out.judgement != Judgement::wrong_unexplained) return;
  if (dump.claim.precision != Precision::f64) return;
  Dump coarser = dump;
  coarser.claim.precision = Precision::f32;
  for (Observed& table : coarser.stages) {
    if (table.dtype == DType::f64) table.dtype = DType::f32;
  }
  const Noise noise(coarser);
  const std::optional<Judged> judged = judge(coarser, {}, noise, NaNs::as_claimed, pool);
  if (!judged || !judged->possible()) return;
  const std::string within =
      "every number is within what rounding to f32 can do: --precision f32 claims it";
  if (!guessed) {
    out.remarks.insert(out.remarks.begin(), within);
    return;
  }
  out.judgement = Judgement::undecided;
  out.nearest.clear();
  out.would_decide = {within};
}

Result<Diagnosis> run(const Dump& dump, const DiagnoseOptions& options,
                      std::vector<std::string> remarks, bool first_try) {
  ThreadPool pool;
  Diagnosis out{.remarks = std::move(remarks)};
  const Noise noise(dump);
  const auto say = [&](std::string_view doing) {
    return [&options, doing](double part) {
      if (options.progress) options.progress(doing, part);
    };
  };
  const std::optional<Judged> judged =
      judge(dump, {}, noise, NaNs::as_claimed, pool, say("comparing"));
  if (!judged) {
    const auto exact = ExactRows::make(dump);  // which says what does not fit
    if (!exact) return exact.failure();
    return Failure{ErrorKind::shape, "shape-mismatch", "[check] the claim fits no attention call"};
  }
  out.tolerance = tolerance_sentence(dump, noise.arithmetic(), *judged);
  if (first_try && !judged->typical()) {
    if (std::optional<Narrower> narrower = narrower_storage(dump)) {
      return run(narrower->dump, options, {narrower->remark}, false);
    }
  }
  const std::vector<Link> links = judged->typical() ? std::vector<Link>{} : links_of(dump);
  auto staged = judge_stages(dump, *judged, noise, links, pool);
  if (!staged) return staged.failure();
  out.stages = std::move(staged->stages);
  remark_on_input(dump, *judged, out);
  if (judged->numbers() == 0) {
    out.remarks.insert(out.remarks.begin(),
                       sentence(judged->rows.count(), " rows, 0 numbers compared"));
    return out;
  }
  if (staged->first_wrong) {
    out.first_wrong_stage = out.stages[*staged->first_wrong].name;
    for (std::size_t t = 0; t < judged->tables.size(); ++t) {
      if (judged->tables[t].observed == &dump.stages[*staged->first_wrong]) {
        out.where = localise(*judged, t);
      }
    }
  }
  const Evidence evidence{dump, noise, *judged, links, staged->wrong_link};
  give_verdict(evidence, options, pool, out);
  consider_f32(dump, options.precision_guessed, pool, out);
  return out;
}

}  // namespace

Result<Diagnosis> diagnose(const Dump& dump, const DiagnoseOptions& options) {
  auto shape = shape_of(dump);
  if (!shape) return shape.failure();
  const lab::AttentionShape& given = dump.claim.shape;
  const bool complete = given.B == shape->B && given.H == shape->H && given.G == shape->G &&
                        given.T == shape->T && given.S == shape->S && given.D == shape->D &&
                        given.E == shape->E;
  if (!complete) {
    Dump whole = dump;
    whole.claim.shape = *shape;
    if (auto fine = refuse(whole); !fine) return fine.failure();
    return run(whole, options, {}, true);
  }
  if (auto fine = refuse(dump); !fine) return fine.failure();
  return run(dump, options, {}, true);
}

std::string_view name_of(Judgement judgement) noexcept {
  switch (judgement) {
    case Judgement::right:
      return "right";
    case Judgement::right_by_rounding:
      return "right within rounding";
    case Judgement::wrong_named:
      return "wrong, and named";
    case Judgement::wrong_unexplained:
      return "wrong, and unexplained";
    case Judgement::undecided:
      return "cannot tell";
  }
  return "cannot tell";
}

}  // namespace attest::check
