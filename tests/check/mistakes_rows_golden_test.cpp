// SPDX-License-Identifier: MIT
// Every recorded output of a mistake in scores, masks, softmax and what follows is given again by the
// catalogue's entry of that name.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "attest/check/mistakes/catalogue.h"
#include "attest/check/mistakes/evaluate.h"
#include "tests/support/mistake_dumps.h"
#include "tests/support/shared_files.h"

namespace attest::check {
namespace {

/// The largest |found − recorded| over 2^-24 of the recorded number, its own rounding, and binary64's
/// share. NaN belongs where NaN was recorded.
double apart(const Dump& dump, const Recipe& recipe, const Tensor<double>& recorded) {
  auto evaluation = Evaluation::make(dump, recipe);
  if (!evaluation) return INFINITY;
  double largest = 0;
  for (const double x : recorded.elements()) {
    if (!std::isnan(x)) largest = std::max(largest, std::fabs(x));
  }
  const lab::AttentionShape& s = dump.claim.shape;
  double worst = 0;
  for (std::int64_t b = 0; b < s.B; ++b) {
    for (std::int64_t h = 0; h < s.H; ++h) {
      for (std::int64_t i = 0; i < s.T; ++i) {
        const StageRow& row = evaluation->row({b, h, i});
        for (std::int64_t e = 0; e < s.E; ++e) {
          const double found = row.output[static_cast<std::size_t>(e)];
          const double wanted = recorded(b, h, i, e);
          if (std::isnan(found) && std::isnan(wanted)) continue;
          const double bound = 0x1p-24 * std::fabs(wanted) + 0x1p-44 * largest;
          const double off = std::fabs(found - wanted) / bound;
          worst = std::max(worst, std::isnan(off) ? INFINITY : off);
        }
      }
    }
  }
  return worst;
}

/// The catalogue's name and value where the recorded name has others.
struct Named {
  std::string name;
  std::optional<double> value{};
};
Named catalogued(const std::string& set, const std::string& recorded) {
  static const std::map<std::string, Named> other_names{
      {"alibi.int_position_off_by_one", {"alibi.position_off_by_one"}},
      {"causal.block4", {"causal.block", 4}},
      {"causal.fill_neg1e4", {"causal.finite_fill", -1e4}},
      {"causal.offset=Lk", {"causal.offset_keys"}},
      {"dropout.on", {"dropout.on", 0.1}},
      {"dropout.scale_only", {"dropout.scale_only", 0.1}},
      {"mask.neg10_fill", {"mask.finite_fill", -10}},
      {"online.acc_not_rescaled", {"online.acc_not_rescaled", 4}},
      {"plain", {"sink.missing"}},
      {"scale.padded_head_dim32", {"scale.padded_head_dim", 32}},
      {"softcap.wrong_value", {"softcap.wrong_value", 2}},
      {"split.partials_averaged", {"split.partials_averaged", 3}},
      {"tail.zero_keys_counted_to16", {"tail.zero_keys_counted", 16}}};
  // There the scores that the causal rule hides were multiplied by 0 too.
  if (set == "mask_and_causal" && recorded == "mask.zero_scores") return {"mask.all_zero_scores"};
  const auto found = other_names.find(recorded);
  return found == other_names.end() ? Named{recorded} : found->second;
}

/// In the set `sink` all that is not about the sink, or a whole function of its own, lacks it as well.
Dump as_recorded(const test::MistakeSet& set, const std::string& recorded) {
  Dump out = set.bare();
  const bool keeps = recorded.starts_with("sink.") || recorded == "plain" || recorded == "correct";
  if (set.name == "sink" && !keeps) out.claim.call.sink.clear();
  return out;
}

TEST(RowMistakes, GiveTheRecordedOutputs) {
  const auto sets = test::mistake_sets();
  if (sets.empty()) GTEST_SKIP() << test::not_shared;
  const std::set<std::string> operands{"layout", "qkv", "heads", "gqa", "kv", "rope"};
  int compared = 0;
  std::set<std::string> names;
  for (const test::MistakeSet& set : sets) {
    for (const auto& [recorded, output] : set.outputs) {
      if (operands.contains(recorded.substr(0, recorded.find('.')))) continue;
      const std::string where = set.name + " " + recorded;
      const Dump dump = as_recorded(set, recorded);
      names.insert(recorded);
      ++compared;
      // Another order of computing the same slopes.
      if (recorded == "correct" || recorded == "alibi.mosaic_order") {
        EXPECT_LE(apart(dump, {}, output), 1) << where;
        continue;
      }
      const Named named = catalogued(set.name, recorded);
      const Mistake* const mistake = find_mistake(named.name);
      ASSERT_NE(mistake, nullptr) << where;
      Dump with_output = dump;
      with_output.stages.push_back({.stage = Stage::output, .values = output});
      Recipe recipe;
      ASSERT_TRUE(mistake->make(recipe, dump.claim, named.value.value_or(0))) << where;
      EXPECT_LE(apart(with_output, recipe, output), 1) << where;
    }
  }
  EXPECT_EQ(names.size(), 124U);
  EXPECT_EQ(compared, 475);
}

}  // namespace
}  // namespace attest::check
