// SPDX-License-Identifier: MIT Every recorded output of a mistake in the operands (layout, roles,
// heads, keys, rotary positions) is given again by the catalogue's entry of that name.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "attest/check/mistakes/catalogue_parts.h"
#include "attest/check/mistakes/evaluate.h"
#include "attest/io/json.h"
#include "tests/check/whole_tensors.h"
#include "tests/support/mistake_dumps.h"
#include "tests/support/onnx_nodes.h"

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

const Mistake* by_name(std::string_view name) {
  for (const Mistake* mistake : operand_mistakes()) {
    if (mistake->name == name) return mistake;
  }
  return nullptr;
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
  const auto sets = test::mistake_sets();
  if (sets.empty()) GTEST_SKIP() << test::not_shared;
  const std::set<std::string> rooms{"layout", "qkv", "heads", "gqa", "kv", "rope"};

  int compared = 0;
  std::set<std::string> names;
  for (const test::MistakeSet& set : sets) {
    for (const auto& [recorded, output] : set.outputs) {
      if (recorded == "correct") {
        EXPECT_LE(apart(set.bare(), {}, output), 1) << set.name;
      }
      if (!rooms.contains(recorded.substr(0, recorded.find('.')))) continue;
      const Mistake* const found = by_name(catalogued(recorded));
      ASSERT_NE(found, nullptr) << recorded;
      names.insert(recorded);
      ++compared;
      // With one batch entry there is nothing to roll, and the recorded output is the right one.
      if (set.name == "varlen" && recorded == "layout.batch_rolled") continue;
      EXPECT_LE(nearest(set.name == "sink" ? unsunk(set.bare()) : set.bare(), *found, output), 1)
          << set.name << " " << recorded;
    }
  }
  EXPECT_EQ(names.size(), 44U);
  EXPECT_EQ(compared, 129);
}

/// A published case of the ONNX operator `Attention`, as far as the files below need it: float
/// tensors, a float mask that is added, a causal mask that begins at the first key.
test::MistakeSet onnx_case(const test::OnnxNode& node) {
  const io::NamedTensors& file = node.file;
  const auto read = [&](std::string_view name, const char* heads) {
    Tensor<double> tensor = file.find(name)->to_f64(name).value();
    return tensor.rank() == 4
               ? tensor
               : test::unpacked(tensor, static_cast<std::int64_t>(node.attribute(heads, 1)));
  };
  test::MistakeSet set{.name = node.name};
  Claim& claim = set.claim;
  AttentionCase& call = claim.call;
  call.query = read("in.Q", "q_num_heads");
  call.key = read("in.K", "kv_num_heads");
  call.value = read("in.V", "kv_num_heads");
  if (file.find("in.past_key") != nullptr) {
    const Tensor<double> past = read("in.past_key", "");
    claim.past = past.extent(2);
    call.key = test::joined(past, call.key);
    call.value = test::joined(read("in.past_value", ""), call.value);
  }
  const auto number = [&](const char* name) -> std::optional<double> {
    const double found = node.attribute(name, std::nan(""));
    return std::isnan(found) ? std::nullopt : std::optional(found);
  };
  call.scale = number("scale");
  call.softcap = number("softcap");
  if (node.attribute("is_causal", 0) != 0) call.mask = Mask::causal_at(claim.past);
  if (file.find("in.attn_mask") != nullptr) {
    Tensor<double> mask = file.find("in.attn_mask")->to_f64("mask").value();
    if (mask.rank() == 2) mask = test::reshaped(mask, {1, 1, mask.extent(0), mask.extent(1)});
    call.bias = std::move(mask);
  }
  claim.shape = {.B = call.query.extent(0),
                 .H = call.query.extent(1),
                 .G = call.key.extent(1),
                 .T = call.query.extent(2),
                 .S = call.key.extent(2),
                 .D = call.query.extent(3),
                 .E = call.value.extent(3)};
  set.outputs.emplace_back(node.text("mistakes"), read("out.Y", "q_num_heads"));
  return set;
}

/// The largest |found − recorded|.
double largest_error(const test::MistakeSet& set, const Recipe& recipe) {
  const Dump dump = set.bare();  // which the evaluation refers to
  auto evaluation = Evaluation::make(dump, recipe);
  if (!evaluation) return INFINITY;
  const lab::AttentionShape& s = set.claim.shape;
  double worst = 0;
  for (std::int64_t n = 0; n < s.B * s.H * s.T; ++n) {
    const lab::RowPlace at{n / s.T / s.H, n / s.T % s.H, n % s.T};
    const StageRow& row = evaluation->row(at);
    for (std::int64_t e = 0; e < s.E; ++e) {
      const double off =
          row.output[static_cast<std::size_t>(e)] - set.outputs.front().second(at.b, at.h, at.i, e);
      worst = std::max(worst, std::isnan(off) ? INFINITY : std::fabs(off));
    }
  }
  return worst;
}

TEST(OperandMistakes, GiveTheWrongAnswersThatOnnxPublished) {
  const auto nodes = test::onnx_nodes("attention_errata");
  if (nodes.empty()) GTEST_SKIP() << test::not_shared;
  const std::map<std::string, std::vector<std::string>> ours{
      {R"(["heads_split_by_reshape"])", {"layout.heads_split_by_reshape"}},
      {R"(["gqa_tile"])", {"gqa.tile"}},
      {R"(["gqa_tile", "heads_split_by_reshape"])", {"gqa.tile", "layout.heads_split_by_reshape"}}};
  std::map<std::size_t, int> seen;
  for (const test::OnnxNode& node : nodes) {
    const test::MistakeSet set = onnx_case(node);
    const auto names = ours.find(set.outputs.front().first);
    if (names == ours.end()) continue;
    Recipe recipe;
    for (const std::string& name : names->second) {
      const Mistake* const mistake = by_name(name);
      ASSERT_NE(mistake, nullptr) << name;
      ASSERT_TRUE(mistake->make(recipe, set.claim, 0)) << set.name;
    }
    // The tolerances that the ONNX project states for these files.
    const double tolerance = set.name.find("fp16") == std::string::npos ? 1e-5 : 1e-2;
    EXPECT_LE(largest_error(set, recipe), tolerance) << set.name;
    EXPECT_GT(largest_error(set, {}), tolerance) << set.name;
    ++seen[names->second.size()];
  }
  EXPECT_EQ(seen[1], 27);
  EXPECT_EQ(seen[2], 6);
}

TEST(OperandMistakes, AValueReadAsDenseIsAPublishedCase) {
  // The buffer 1 … 36 divided by 8, [position 3][query, key, value][head 2][feature 2], causal.
  Tensor<double> memory = test::numbered({1, 3, 3, 2, 2}, 1);
  for (double& x : memory.elements()) x /= 8;
  const Tensor<double> parts = test::permuted(memory, {2, 0, 3, 1, 4});
  Dump dump;
  Claim& claim = dump.claim;
  claim.shape = {.B = 1, .H = 2, .G = 2, .T = 3, .S = 3, .D = 2, .E = 2};
  const auto part = [&](std::size_t c) {
    return Tensor<double>({1, 2, 3, 2}, parts.elements().subspan(c * 12, 12));
  };
  claim.call.query = part(0);
  claim.call.key = part(1);
  claim.call.value = part(2);
  claim.call.mask = Mask::causal();
  Recipe recipe;
  ASSERT_TRUE(by_name("qkv.value_read_as_dense")->make(recipe, claim, 0));
  auto wrong = Evaluation::make(dump, recipe);
  auto right = Evaluation::make(dump, {});
  ASSERT_TRUE(wrong.has_value() && right.has_value());
  EXPECT_NEAR(right->row({0, 0, 1}).output[0], 2.5843096612007801, 1e-15);
  EXPECT_NEAR(wrong->row({0, 0, 1}).output[0], 1.3682182768667967, 1e-15);
  EXPECT_NEAR(wrong->row({0, 0, 1}).output[1], 1.4932182768667967, 1e-15);
  EXPECT_EQ(wrong->row({0, 1, 0}).output[0], 1.875);
  EXPECT_EQ(wrong->row({0, 1, 0}).output[1], 2);
}

TEST(OperandMistakes, EachSaysWhatItIsAndWhereToLook) {
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
