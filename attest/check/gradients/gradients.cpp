// SPDX-License-Identifier: MIT
#include "attest/check/gradients/gradients.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "attest/base/text.h"
#include "attest/check/at_index.h"
#include "attest/check/engine_bound.h"
#include "attest/check/gradients/judge.h"
#include "attest/check/gradients/sample.h"
#include "attest/check/gradients/search.h"

namespace attest::check {
namespace {

using namespace gradients;

Failure mismatch(const std::string& what) {
  return {ErrorKind::shape, "shape-mismatch", sentence("[check] ", what)};
}

Failure missing(std::string_view name) {
  return {ErrorKind::value, "missing-tensor",
          sentence("[check] gradients need ", name, "; the dump has none")};
}

Result<void> check_positions(const Claim& claim) {
  if (!claim.rope) return {};
  const auto fits = [&](const char* name, const std::vector<std::int64_t>& list,
                        std::int64_t length) -> Result<void> {
    const auto size = static_cast<std::int64_t>(list.size());
    if (size == length || size == length * claim.call.query.extent(0)) return {};
    return mismatch(sentence(name, " must have ", length,
                             " entries, or so many for each batch; it has ", size));
  };
  if (auto ok = fits("query_positions", claim.rope->query_positions, claim.call.query.extent(2));
      !ok) {
    return ok;
  }
  return fits("key_positions", claim.rope->key_positions, claim.call.key.extent(2));
}

Result<void> check_gradient(const Problem& problem, const ObservedGradient& found) {
  const AttentionCase& call = problem.dump.claim.call;
  if (found.of == GradientOf::bias && !call.bias) return missing("bias, where d_bias is given");
  if (found.of == GradientOf::sink && call.sink.empty()) {
    return missing("sink, where d_sink is given");
  }
  const Shape right = shape_of(problem, {}, found.of);
  const GradientRecipe unsummed{
      .key_heads = Gather::apart, .value_heads = Gather::apart, .bias_batch = Gather::apart};
  const Shape wide = shape_of(problem, unsummed, found.of);
  const Shape& shape = found.values.shape();
  const bool of_keys = found.of == GradientOf::key || found.of == GradientOf::value;
  if (found.first_key < 0 || found.first_key >= (of_keys ? problem.shape.S : 1)) {
    return mismatch(sentence(found.name, " cannot begin with key ", found.first_key));
  }
  if (shape == right || shape == wide) return {};
  return mismatch(
      sentence(found.name, " must have shape ", to_string(right), "; it has ", to_string(shape)));
}

Result<void> check_dump(const GradientDump& dump) {
  const AttentionCase& call = dump.claim.call;
  if (!dump.claim.has_query_and_key()) return missing("query and key");
  if (!dump.claim.has_value()) return missing("value");
  if (dump.d_output.size() == 0) return missing("d_output");
  if (dump.gradients.empty()) return missing("d_query, d_key, d_value, d_bias or d_sink");
  const auto shape = lab::check_attention(call.inputs(), call.options());
  if (!shape) return shape.failure();
  const auto [B, H, G, T, S, D, E] = *shape;
  if (dump.d_output.shape() != Shape{B, H, T, E}) {
    return mismatch(sentence("d_output must have shape ", to_string(Shape{B, H, T, E}), "; it has ",
                             to_string(dump.d_output.shape())));
  }
  if (dump.d_log_sum_exp && dump.d_log_sum_exp->shape() != Shape{B, H, T}) {
    return mismatch(sentence("d_log_sum_exp must have shape ", to_string(Shape{B, H, T}),
                             "; it has ", to_string(dump.d_log_sum_exp->shape())));
  }
  return check_positions(dump.claim);
}

/// What the gradients should be: for each of the dump's, its numbers and their noise.
struct Expected {
  std::vector<std::vector<double>> value, tolerance, outer;
  bool exact = false;
};

/// Calls that the exact tier does in about a second.
bool small(const Problem& p) { return products_of(p) < 2e7; }
/// Calls of which every recipe is evaluated whole.
bool tiny(const Problem& p) { return products_of(p) < 1e6; }

class Diagnosing {
 public:
  Diagnosing(const GradientDump& dump, const DiagnoseOptions& options)
      : dump_(dump), options_(options), problem_(dump), noise_(Noise::of(dump.claim.precision)) {}

  Result<Diagnosis> run() {
    std::map<GradientOf, int> times;
    for (const ObservedGradient& found : dump_.gradients) {
      if (auto ok = check_gradient(problem_, found); !ok) return ok.failure();
      if (++times[found.of] > 1) {
        return mismatch(sentence(name_of(found.of), " is given twice"));
      }
    }
    if (auto ok = expect(); !ok) return ok.failure();
    for (std::size_t n = 0; n < dump_.gradients.size(); ++n) judge_one(n);
    describe();
    decide();
    return std::move(out_);
  }

 private:
  Result<void> expect() {
    exact_ = small(problem_);
    const auto progress = [&](double fraction) {
      if (options_.progress) options_.progress("right gradients", fraction);
    };
    right_ = whole_pass(problem_, noise_, {}, progress);
    if (noise_.cast != 0)
      outer_ = whole_pass(problem_, Noise::with_tables(dump_.claim.precision), {});
    if (!exact_) return no_empty_row();
    auto exact = exact_gradients(dump_);
    if (!exact) return exact.failure();
    for (std::size_t of = 0; of < exact->size(); ++of) {
      const auto numbers = (*exact)[of].elements();
      if (numbers.size() == right_[of].value.size()) {
        right_[of].value.assign(numbers.begin(), numbers.end());
      }
    }
    if (noise_.cast == 0 && !dump_.claim.rope) return engine_outer();
    return {};
  }

  /// The proved bound of f32 and f64, beyond which no careful arithmetic comes.
  Result<void> engine_outer() {
    const AttentionCase& call = dump_.claim.call;
    lab::AttentionOutputGradients flows{.d_output = dump_.d_output.view<4>()};
    if (dump_.d_log_sum_exp) flows.d_log_sum_exp = dump_.d_log_sum_exp->view<3>();
    const DType storage = dump_.claim.precision == Precision::f64 ? DType::f64 : DType::f32;
    auto bound = engine_gradient_bound(call.inputs(), call.options(), flows, {.storage = storage});
    if (!bound) return bound.failure();
    outer_ = right_;
    const Tensor<double>* tables[] = {&bound->d_query, &bound->d_key, &bound->d_value,
                                      &bound->d_bias, &bound->d_sink};
    for (std::size_t of = 0; of < outer_->size(); ++of) {
      std::vector<double>& noise = (*outer_)[of].noise;
      for (std::size_t n = 0; n < noise.size() && n < tables[of]->size(); ++n) {
        noise[n] = std::max(noise[n], tables[of]->elements()[n] / deviations);
      }
    }
    return {};
  }

  Result<void> no_empty_row() const {
    if (dump_.claim.call.empty_row != EmptyRow::error) return {};
    const auto [B, H, G, T, S, D, E] = problem_.shape;
    for (std::int64_t n = 0; n < B * H * T; ++n) {
      bool empty = true;
      for (std::int64_t j = 0; j < S && empty; ++j) {
        empty = problem_.hidden(n / (H * T), n / T % H, n % T, j) != 0;
      }
      if (empty) return lab::no_visible_key({n / (H * T), n / T % H, n % T});
    }
    return {};
  }

  /// The tolerance of each number: six deviations, and what a stored number's own type rounds off.
  [[nodiscard]] std::vector<double> tolerance_of(const Cells& cells, DType stored) const {
    std::vector<double> out;
    const double store = stored == DType::bf16  ? 0x1p-8
                         : stored == DType::f16 ? 0x1p-11
                         : stored == DType::f32 ? 0x1p-24
                                                : 0x1p-53;
    const double tiny = stored == DType::f16   ? 0x1p-25
                        : stored == DType::f64 ? 0x1p-1074
                                               : 0x1p-149;
    for (std::size_t n = 0; n < cells.value.size(); ++n) {
      out.push_back(deviations * cells.noise[n] + store * std::fabs(cells.value[n]) + tiny);
    }
    return out;
  }

  void judge_one(std::size_t n) {
    const ObservedGradient& found = dump_.gradients[n];
    const Cells& cells = right_[static_cast<std::size_t>(found.of)];
    if (found.values.size() != cells.value.size()) {
      StageJudgement wrong{.name = found.name, .stage = std::string(name_of(found.of))};
      wrong.compared = wrong.wrong = static_cast<std::int64_t>(found.values.size());
      wrong.used = std::numeric_limits<double>::infinity();
      out_.stages.push_back(std::move(wrong));
      out_.where.push_back(sentence(found.name, ": has shape ", to_string(found.values.shape()),
                                    " where ", to_string(shape_of(problem_, {}, found.of)),
                                    " is right: it was not summed"));
      wrong_.push_back(true);
      outside_ = true;
      return;
    }
    const std::vector<double> tolerance = tolerance_of(cells, found.dtype);
    StageJudgement stage = judge(found, cells.value, tolerance);
    wrong_.push_back(stage.wrong != 0);
    if (stage.wrong != 0) {
      out_.where.push_back(where(found, cells.value, tolerance));
      const auto wide =
          tolerance_of(outer_ ? (*outer_)[static_cast<std::size_t>(found.of)] : cells, found.dtype);
      outside_ = outside_ || judge(found, cells.value, wide).wrong != 0;
    }
    out_.stages.push_back(std::move(stage));
  }

  void describe() {
    for (std::size_t n = 0; n < wrong_.size() && out_.first_wrong_stage.empty(); ++n) {
      if (wrong_[n]) out_.first_wrong_stage = out_.stages[n].stage;
    }
    out_.tolerance = sentence("six standard deviations of ", name_of(dump_.claim.precision),
                              " arithmetic (u = ", three_digits(unit_of(dump_.claim.precision)),
                              "), from the sizes of the products in each sum and how many there "
                              "are, and one rounding to the "
                              "type that is stored");
    if (!exact_) {
      out_.remarks.emplace_back(
          "too large for the exact tier: the right gradients are those of plain binary64 loops");
    }
  }

  [[nodiscard]] bool says_nothing() const {
    for (const ObservedGradient& found : dump_.gradients) {
      const auto& right = right_[static_cast<std::size_t>(found.of)].value;
      for (std::size_t n = 0; n < right.size(); ++n) {
        if (right[n] != 0 && found.given(n)) return false;
      }
    }
    return true;
  }

  void decide() {
    if (std::ranges::none_of(wrong_, [](bool each) { return each; })) return clear();
    if (options_.most_mistakes == 0) {
      out_.judgement = outside_ ? Judgement::wrong_unexplained : Judgement::right_by_rounding;
      return;
    }
    const Wanted wanted{.problem = problem_,
                        .right = right_,
                        .wrong = wrong_,
                        .noise = noise_,
                        .most_mistakes = options_.most_mistakes,
                        .progress = options_.progress};
    Found found = search(
        wanted, tiny(problem_) ? everything(problem_.shape) : telling_sample(problem_, right_));
    out_.explanations = std::move(found.explanations);
    out_.nearest = std::move(found.nearest);
    out_.tried = found.tried;
    out_.sampled = found.sampled;
    out_.would_decide = std::move(found.would_decide);
    for (std::string& remark : found.remarks) out_.remarks.push_back(std::move(remark));
    if (out_.explanations.size() > 1) out_.margin = out_.explanations[1].apart;
    if (!out_.explanations.empty()) {
      out_.judgement =
          found.by_rounding && !outside_ ? Judgement::right_by_rounding : Judgement::wrong_named;
    } else {
      out_.judgement = outside_ ? Judgement::wrong_unexplained : Judgement::right_by_rounding;
    }
  }

  void clear() {
    out_.judgement = Judgement::right;
    if (says_nothing()) {
      out_.judgement = Judgement::undecided;
      out_.would_decide.emplace_back(
          "a d_output that is not zero, and rows that see more than one key");
      return;
    }
    if (!tiny(problem_)) return;
    const auto unseen = invisible(problem_, noise_);
    if (!unseen.empty()) out_.explanations.push_back({.same = unseen});
  }

  const GradientDump& dump_;
  const DiagnoseOptions& options_;
  Problem problem_;
  Noise noise_;
  AllCells right_{};
  std::optional<AllCells> outer_{};
  bool exact_ = false;
  bool outside_ = false;  // a number beyond what any arithmetic of the type may give
  std::vector<bool> wrong_{};
  Diagnosis out_{};
};

}  // namespace

std::string_view name_of(GradientOf of) noexcept {
  switch (of) {
    case GradientOf::query:
      return "d_query";
    case GradientOf::key:
      return "d_key";
    case GradientOf::value:
      return "d_value";
    case GradientOf::bias:
      return "d_bias";
    case GradientOf::sink:
      return "d_sink";
  }
  return "?";
}

Result<Diagnosis> diagnose_gradients(const GradientDump& dump, const DiagnoseOptions& options) {
  if (auto ok = check_dump(dump); !ok) return ok.failure();
  return Diagnosing(dump, options).run();
}

}  // namespace attest::check
