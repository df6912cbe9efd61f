// SPDX-License-Identifier: MIT Every recorded output of a mistake in the operands (layout, roles,
// heads, keys, rotary positions) is given again by the catalogue's entry of that name.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "attest/check/mistakes/catalogue_parts.h"
#include "attest/check/mistakes/evaluate.h"
#include "tests/check/mistake_sets.h"
#include "tests/support/file_builders.h"

namespace attest::check {
namespace {

/// The parts of the catalogue that this test is about.
std::vector<const Mistake*> operand_mistakes() {
  std::vector<const Mistake*> out;
  for (const auto part :
       {layout_mistakes(), roles_mistakes(), heads_mistakes(), keys_mistakes(), rope_mistakes()}) {
    for (const Mistake& mistake : part) out.push_back(&mistake);
  }
  return out;
}

/// The largest |found − recorded| in units of what the recorded number's own rounding explains:
/// half a unit in the last place of float32, and binary64's share of sums of numbers below
/// `largest`.
double apart(const Dump& dump, const Recipe& recipe, const Tensor<double>& recorded) {
  auto evaluation = Evaluation::make(dump, recipe);
  if (!evaluation) return INFINITY;
  double largest = 0;
  for (const double x : dump.claim.call.value.elements()) largest = std::max(largest, std::fabs(x));
  const lab::AttentionShape& s = dump.claim.shape;
  double worst = 0;
  for (std::int64_t b = 0; b < s.B; ++b) {
    for (std::int64_t h = 0; h < s.H; ++h) {
      for (std::int64_t i = 0; i < s.T; ++i) {
        const StageRow& row = evaluation->row({b, h, i});
        for (std::int64_t e = 0; e < s.E; ++e) {
          const double found = row.output[static_cast<std::size_t>(e)];
          const double bound = 0x1p-24 * std::fabs(recorded(b, h, i, e)) +
                               0x1p-53 * 64 * static_cast<double>(s.S + s.D) * largest;
          const double off = std::fabs(found - recorded(b, h, i, e)) / bound;
          worst = std::max(worst, std::isnan(off) ? INFINITY : off);
        }
      }
    }
  }
  return worst;
}

/// The nearest of the values that the mistake is tried with.
double nearest(const Dump& dump, const Mistake& mistake, const Tensor<double>& recorded) {
  double best = INFINITY;
  static constexpr double none[] = {0};
  const std::span<const double> values =
      mistake.values.empty() ? std::span<const double>(none) : mistake.values;
  for (const double value : values) {
    Recipe recipe;
    if (!mistake.make(recipe, dump.claim, value)) continue;
    best = std::min(best, apart(dump, recipe, recorded));
  }
  return best;
}

/// The catalogue's name where the recorded one holds a value.
std::string catalogued(const std::string& recorded) {
  return recorded == "rope.base_5e5" ? "rope.base" : recorded;
}

/// What the set `sink` records for mistakes that are not about the sink: they lack it as well.
Dump unsunk(Dump dump) {
  dump.claim.call.sink.clear();
  return dump;
}

TEST(OperandMistakes, GiveTheRecordedOutputs) {
  const auto shared = test::shared_folder();
  if (!shared) GTEST_SKIP() << "no shared folder beside the source tree; see ATTEST_SHARED_DIR";
  std::map<std::string, const Mistake*> by_name;
  for (const Mistake* mistake : operand_mistakes()) by_name[std::string(mistake->name)] = mistake;
  const std::set<std::string> rooms{"layout", "qkv", "heads", "gqa", "kv", "rope"};

  int compared = 0;
  std::set<std::string> names;
  for (const test::MistakeSet& set : test::mistake_sets(*shared)) {
    for (const auto& [recorded, output] : set.outputs) {
      if (recorded == "correct") {
        EXPECT_LE(apart(set.dump, {}, output), 1) << set.name;
      }
      if (!rooms.contains(recorded.substr(0, recorded.find('.')))) continue;
      const auto found = by_name.find(catalogued(recorded));
      ASSERT_NE(found, by_name.end()) << recorded;
      names.insert(recorded);
      ++compared;
      // With one batch entry there is nothing to roll, and the recorded output is the right one.
      if (set.name == "varlen" && recorded == "layout.batch_rolled") continue;
      EXPECT_LE(nearest(set.name == "sink" ? unsunk(set.dump) : set.dump, *found->second, output),
                1)
          << set.name << " " << recorded;
    }
  }
  EXPECT_EQ(names.size(), 44U);
  EXPECT_EQ(compared, 129);
}

TEST(OperandMistakes, AreFewEnoughToSayAndEachSaysWhereToLook) {
  std::set<std::string_view> names;
  for (const Mistake* mistake : operand_mistakes()) {
    EXPECT_TRUE(names.insert(mistake->name).second) << mistake->name;
    EXPECT_NE(mistake->make, nullptr) << mistake->name;
    EXPECT_TRUE(mistake->what.ends_with(".")) << mistake->name;
    EXPECT_FALSE(mistake->look_for.empty()) << mistake->name;
    EXPECT_EQ(mistake->what.find("  "), std::string_view::npos) << mistake->name;
  }
}

}  // namespace
}  // namespace attest::check
