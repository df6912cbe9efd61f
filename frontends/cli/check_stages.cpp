// SPDX-License-Identifier: MIT
// Which tables a dump holds of what the implementation computed.
#include "frontends/cli/check_stages.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "attest/base/text.h"

namespace attest::cli {
namespace {

using check::Stage;

Failure bad(std::string id, std::string message) {
  return {ErrorKind::value, std::move(id), "[check] " + std::move(message)};
}

struct StageRole {
  const char* role;
  const char* flag;
  Stage stage;
};
constexpr StageRole stage_roles[] = {{"dot", "dot", Stage::dot},
                                     {"scaled", "scaled", Stage::scaled},
                                     {"capped", "capped", Stage::capped},
                                     {"biased", "biased", Stage::biased},
                                     {"masked", "masked", Stage::masked},
                                     {"weights", "weights", Stage::weights},
                                     {"log_sum_exp", "lse", Stage::log_sum_exp},
                                     {"output", "output", Stage::output}};

Stage stage_of_word(const std::string& word) {
  for (const StageRole& each : stage_roles) {
    if (word == each.role) return each.stage;
  }
  return Stage::scaled;
}

bool any_of(const AnyTensor& tensor, bool (*test)(double)) {
  for (std::size_t n = 0; n < tensor.size(); ++n) {
    if (test(tensor.number(n))) return true;
  }
  return false;
}

/// What a table that is only called scores seems to be.
Stage guessed(const AnyTensor& scores) {
  const bool hidden = any_of(scores, [](double x) { return x < -1e4; });
  return hidden ? Stage::masked : Stage::scaled;
}

/// A table called attn is the raw one beside attn_scaled and the like; alone it is the weights, unless it
/// holds what no weight can be.
Stage guessed_attn(const AnyTensor& attn, bool with_others) {
  const bool outside = any_of(attn, [](double x) { return x < 0 || x > 1.001; });
  return with_others || outside ? Stage::dot : Stage::weights;
}

/// A tensor called attn, which every framework calls something else.
Result<std::optional<FoundStage>> find_attn(Sources& sources, std::vector<std::string>& remarks) {
  for (const std::string name : {"attn", "out.attn"}) {
    if (!sources.holds(name)) continue;
    bool others = false;
    for (const char* each : {"attn_scaled", "attn_masked", "attn_softmax"}) {
      others = others || sources.holds(each) || sources.holds(std::string("out.") + each);
    }
    const auto found = sources.find_named(name, "");
    if (!found) return found.failure();
    const Stage stage = guessed_attn((*found)->tensor, others);
    remarks.push_back(sentence("taking '", name, "' for the stage ", check::name_of(stage),
                               ": --dot or --weights ", name, " says which it is"));
    return std::optional(FoundStage{stage, (*found)->tensor, name});
  }
  return std::optional<FoundStage>();
}

}  // namespace

Result<std::vector<FoundStage>> find_stages(Sources& sources, const DumpOptions& options,
                                            std::vector<std::string>& remarks) {
  std::vector<FoundStage> out;
  for (const StageRole& each : stage_roles) {
    auto found = sources.find_named(each.role, each.flag);
    if (!found) return found.failure();
    if (*found) out.push_back({each.stage, (**found).tensor, (**found).name});
  }
  auto scores = sources.find_named("scores", "scores");
  if (!scores) return scores.failure();
  const bool taken = *scores && std::ranges::any_of(out, [&](const FoundStage& each) {
    return each.name == (*scores)->name;  // a file may have said which stage it is
  });
  if (*scores && !taken) {
    const bool said = !options.scores_are.empty();
    const Stage stage = said ? stage_of_word(options.scores_are) : guessed((*scores)->tensor);
    if (!said) {
      remarks.push_back(sentence("taking '", (*scores)->name, "' for the stage ",
                                 check::name_of(stage), ": --scores-are says which it is"));
    }
    out.push_back({stage, (*scores)->tensor, (*scores)->name});
  } else if (!options.scores_are.empty()) {
    return bad("not-used", "--scores-are says what 'scores' is, and there is no such tensor");
  }
  auto attn = find_attn(sources, remarks);
  if (!attn) return attn.failure();
  if (*attn) out.push_back(**std::move(attn));
  std::ranges::stable_sort(out, {}, &FoundStage::stage);
  for (std::size_t n = 1; n < out.size(); ++n) {
    if (out[n].stage != out[n - 1].stage) continue;
    return bad("two-sources", sentence("'", out[n - 1].name, "' and '", out[n].name,
                                       "' would both be the stage ", check::name_of(out[n].stage),
                                       ": name one with --", check::name_of(out[n].stage)));
  }
  return out;
}

Failure nothing_follows(const std::string& listing) {
  return bad(
      "missing-tensor",
      sentence(
          "query and key are missing, and what there is gives nothing to compare with: ", listing,
          "; wanted are query, key, value and output, or scores and weights, or "
          "weights, value and output"));
}

void leave_out_sums(check::Dump& dump, std::vector<std::string>& remarks) {
  if (dump.claim.has_query_and_key() || dump.stages.front().stage != Stage::weights) return;
  const auto sums = std::ranges::find(dump.stages, Stage::log_sum_exp, &check::Observed::stage);
  if (sums == dump.stages.end()) return;
  remarks.push_back(sentence("'", sums->name,
                             "' is not judged: it does not follow from weights, "
                             "but from scores, or query and key"));
  dump.stages.erase(sums);
}

Result<void> can_judge(const check::Dump& dump, const std::string& listing) {
  const check::Claim& claim = dump.claim;
  if (dump.stages.empty()) {
    return bad(
        "missing-tensor",
        sentence("nothing that it produced: output is missing, and so are weights, scores and "
                 "log_sum_exp; there is ",
                 listing, ": name what it produced with --output"));
  }
  std::size_t numbers = 0;
  bool only_nan = true;
  for (const check::Observed& stage : dump.stages) {
    numbers += stage.values.size();
    only_nan = only_nan &&
               std::ranges::all_of(stage.values.elements(), [](double x) { return std::isnan(x); });
  }
  if (numbers == 0) return bad("nothing-to-compare", "what it produced is empty: 0 rows compared");
  const bool has_output = dump.stages.back().stage == Stage::output;
  if (claim.has_query_and_key()) {
    return {};
  }
  // A chain: each table but the first is judged from those before it.
  std::size_t tables = 0;
  for (const check::Observed& stage : dump.stages) tables += stage.stage < Stage::log_sum_exp;
  const bool sums = std::ranges::any_of(
      dump.stages, [](const check::Observed& stage) { return stage.stage == Stage::log_sum_exp; });
  const bool scores = tables > 0 && dump.stages.front().stage < Stage::weights;
  const bool chain =
      tables >= 2 || (tables == 1 && has_output && claim.has_value()) || (scores && sums);
  if (!chain) return nothing_follows(listing);
  if (only_nan) return bad("no-numbers", "the tables hold nothing but NaN");
  return {};
}

}  // namespace attest::cli
