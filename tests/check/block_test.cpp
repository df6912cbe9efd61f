// SPDX-License-Identifier: MIT
// Mistakes that a plain float32 program makes in a block are named, and its right blocks are cleared.
#include "attest/check/block/block.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "attest/base/text.h"
#include "attest/check/block/block_mistakes.h"
#include "tests/check/block_dumps.h"
#include "tests/support/draws.h"

namespace attest::check {
namespace {

using test::BlockRows;
using test::Mistakes;

/// Odd sizes, with whatever the mistakes need.
BlockConfig wide_config(Random& random) {
  BlockConfig config;
  config.model_dim = 12;
  config.heads = 3;
  config.kv_heads = 3;
  config.head_dim = 4;
  config.value_dim = 4;
  config.ffn_dim = 12;
  config.norm = static_cast<Norm>(random.between(0, 1));
  config.placement = static_cast<NormPlacement>(random.between(0, 2));
  config.activation = static_cast<Activation>(random.between(0, 3));
  config.gated = random.between(0, 1) == 1;
  config.causal = random.between(0, 2) != 0;
  if (random.between(0, 1) == 1) {
    config.rope = RopeConfig{.pairing = static_cast<RopePairing>(random.between(0, 1))};
  }
  config.alibi = !config.rope && random.between(0, 1) == 1;
  return config;
}

/// Sizes of which no two agree.
BlockConfig odd_config(Random& random) {
  BlockConfig config = wide_config(random);
  config.model_dim = random.between(9, 15);
  config.kv_heads = random.between(1, 2);
  config.heads = config.kv_heads * random.between(2, 3);
  config.head_dim = 2 * random.between(2, 4);
  config.value_dim = random.between(3, 6);
  config.ffn_dim = random.between(13, 19);
  if (config.rope && random.between(0, 1) == 1) config.rope->rotary_dim = config.head_dim - 2;
  if (random.between(0, 3) == 0) config.softcap = 2.5;
  if (random.between(0, 3) == 0) config.scale = 0.4;
  return config;
}

BlockConfig drawn_config(Random& random) {
  return random.between(0, 1) == 1 ? wide_config(random) : odd_config(random);
}

std::string label_of(const Made& made) {
  const std::string name(made.mistake->name);
  return made.mistake->values.empty() ? name : sentence(name, " (", made.value, ")");
}

std::string label_of(const Explanation& explanation) {
  std::string out;
  for (const Made& made : explanation.mistakes) {
    out += sentence(out.empty() ? "" : " + ", label_of(made));
  }
  return out;
}

/// Whether the best explanation, or one that is said to give the same numbers, is this; or, if nothing is
/// convicted for that, one that is said to be as near.
bool names(const Diagnosis& found, const std::string& label) {
  if (found.explanations.empty() || found.judgement < Judgement::wrong_named) return false;
  const Explanation& best = found.explanations.front();
  if (std::count(best.same.begin(), best.same.end(), label) != 0) return true;
  if (found.judgement == Judgement::wrong_named) return label_of(best) == label;
  return std::any_of(found.explanations.begin(), found.explanations.end(),
                     [&](const Explanation& one) { return label_of(one) == label; });
}

struct Drawn {
  BlockConfig config{};
  BlockWeights<double> weights{};
  BlockRows x{};
};

Drawn drawn(std::uint64_t seed) {
  Random random(seed);
  Drawn out;
  out.config = drawn_config(random);
  out.weights = test::drawn_weights(random, out.config);
  out.x = test::drawn_rows(random, random.between(7, 11), out.config.model_dim);
  return out;
}

Diagnosis diagnosed(const BlockDump& dump) { return diagnose_block(dump).value(); }

/// Whether a right dump's diagnosis says itself that this mistake would not show.
bool said_invisible(const Diagnosis& found, const std::string& label) {
  if (found.judgement != Judgement::right) return false;
  const auto& same = found.explanations.front().same;
  return std::count(same.begin(), same.end(), label) != 0;
}

struct Score {
  std::int64_t all = 0, named = 0, alone = 0, reworded = 0, undecided = 0;
  void count(const Diagnosis& found, const std::string& label, std::uint64_t seed) {
    ++all;
    if (names(found, label)) {
      ++named;
      undecided += found.judgement == Judgement::undecided ? 1 : 0;
      alone += found.explanations.front().same.empty() ? 1 : 0;
      return;
    }
    std::cout << "  seed " << seed << ", " << label << ": judgement "
              << static_cast<int>(found.judgement) << ", "
              << (found.explanations.empty() ? "nothing" : label_of(found.explanations.front()))
              << ", first wrong " << found.first_wrong_stage << "\n";
  }
  void print(const char* what) const {
    std::cout << what << ": " << named << " of " << all << " named, " << alone << " of them alone, "
              << reworded << " in other words, " << undecided << " as one of several\n";
  }
};

/// Every mistake that can be made on these blocks, made on each of them, or in turn on one that shows it;
/// the dump has these tables.
void make_every_mistake(std::uint64_t first, std::uint64_t last,
                        const std::set<std::string>& tables, Score& score) {
  struct Place {
    std::uint64_t seed = 0;
    block::Candidate candidate{};
  };
  std::map<std::string, std::vector<Place>> places;
  for (std::uint64_t seed = first; seed <= last; ++seed) {
    for (const auto& candidate : block::candidates_of(drawn(seed).config)) {
      if (candidate.mistake->text.kind != MistakeKind::wrong) continue;
      places[candidate.label()].push_back({seed, candidate});
    }
  }
  std::size_t turn = 0;
  for (const auto& [label, where] : places) {
    if (turn++ % test::stride(1) != 0) continue;
    for (std::size_t n = 0; n < where.size(); ++n) {
      const auto& [seed, candidate] = where[(n + turn) % where.size()];
      const Drawn block = drawn(seed);
      const Mistakes mistakes{{std::string(candidate.mistake->text.name), candidate.value}};
      const Diagnosis found =
          diagnosed(test::dump_of(block.config, block.weights, block.x, mistakes, tables));
      if (said_invisible(found, label)) continue;
      score.count(found, label, seed);
      if (!test::all_draws()) break;
    }
  }
}

TEST(DiagnoseBlock, NamesEveryMistakeFromAllTables) {
  Score score;
  make_every_mistake(1, 8, {}, score);
  score.print("all tables");
  EXPECT_EQ(score.named, score.all);
}

TEST(DiagnoseBlock, NamesEveryMistakeFromTheOutputAlone) {
  Score score;
  make_every_mistake(101, 103, {"output"}, score);
  score.print("output alone");
  EXPECT_GE(static_cast<double>(score.named), 0.99 * static_cast<double>(score.all));
}

/// Whether two programs computed the same, but for the order of roundings: half a digit of float32.
bool same_tables(const BlockDump& a, const BlockDump& b) {
  for (const auto& [stage, table] : a.stages) {
    const auto found = b.stages.find(stage);
    if (found == b.stages.end()) return false;
    double apart = 0, size = 0;
    for (std::size_t n = 0; n < table.values.size(); ++n) {
      const double x = table.values.data()[n], y = found->second.values.data()[n];
      if ((x == x) != (y == y)) return false;
      if (x != x) continue;
      apart += (x - y) * (x - y);
      size += x * x;
    }
    if (apart > 0x1p-44 * size) return false;
  }
  return true;
}

Mistakes mistakes_of(const Explanation& explanation) {
  Mistakes out;
  for (const Made& made : explanation.mistakes) out[std::string(made.mistake->name)] = made.value;
  return out;
}

/// Two mistakes at once. Where one of them leaves no trace beside the other, the other is the answer.
void make_pairs(std::uint64_t first, std::uint64_t last, const std::set<std::string>& tables,
                Score& score) {
  for (std::uint64_t seed = first; seed <= last; ++seed) {
    const Drawn block = drawn(seed);
    Random random(seed, 1);
    const auto candidates = block::candidates_of(block.config);
    const auto most = static_cast<std::int64_t>(candidates.size()) - 1;
    auto m = static_cast<std::size_t>(random.between(0, most));
    auto n = static_cast<std::size_t>(random.between(0, most));
    if (m > n) std::swap(m, n);
    const auto &a = candidates[m], &b = candidates[n];
    if (a.mistake == b.mistake || a.mistake->text.kind != MistakeKind::wrong ||
        b.mistake->text.kind != MistakeKind::wrong) {
      continue;
    }
    const auto dump = [&](const Mistakes& mistakes) {
      return test::dump_of(block.config, block.weights, block.x, mistakes, tables);
    };
    const Mistakes one{{std::string(a.mistake->text.name), a.value}};
    const Mistakes other{{std::string(b.mistake->text.name), b.value}};
    Mistakes both = one;
    both.insert(other.begin(), other.end());
    const BlockDump found = dump(both);
    if (same_tables(found, dump({}))) continue;
    const std::string label = same_tables(found, dump(one))     ? a.label()
                              : same_tables(found, dump(other)) ? b.label()
                                                                : a.label() + " + " + b.label();
    const Diagnosis diagnosis = diagnosed(found);
    // Other words for the same program, by the program itself: norm.x for norm1.x and norm2.x.
    if (!names(diagnosis, label) && diagnosis.judgement == Judgement::wrong_named &&
        diagnosis.explanations.front().mistakes.size() <= 2 &&
        same_tables(found, dump(mistakes_of(diagnosis.explanations.front())))) {
      ++score.all, ++score.named, ++score.reworded;
      continue;
    }
    score.count(diagnosis, label, seed);
  }
}

TEST(DiagnoseBlock, NamesPairsFromAllTables) {
  Score score;
  make_pairs(3001, 3000 + test::draws(30, 100), {}, score);
  score.print("pairs, all tables");
  EXPECT_GE(static_cast<double>(score.named), 0.95 * static_cast<double>(score.all));
}

TEST(DiagnoseBlock, NamesPairsFromResidualAndOutput) {
  Score score;
  make_pairs(4001, 4000 + test::draws(12, 40), {"residual1", "output"}, score);
  score.print("pairs, residual1 and output");
  EXPECT_GE(static_cast<double>(score.named), 0.95 * static_cast<double>(score.all));
}

TEST(DiagnoseBlock, NamesTheFirstWrongStageAndPlace) {
  Random random(7);
  BlockConfig config = wide_config(random);
  config.placement = NormPlacement::pre;
  config.norm = Norm::layer_norm;
  config.gated = false;
  config.causal = true;
  config.activation = Activation::gelu_erf;
  config.rope.reset();
  const auto weights = test::drawn_weights(random, config);
  const BlockRows x = test::drawn_rows(random, 9, config.model_dim);
  const std::pair<const char*, const char*> expected[] = {
      {"norm1.sample_variance", "norm1"},
      {"projection.key_transposed", "projection.key"},
      {"scale.none", "weights"},
      {"causal.missing", "weights"},
      {"heads.merged_by_reshape", "concat"},
      {"projection.output_transposed", "output_projection"},
      {"block.residual1_from_normed", "residual1"},
      {"norm2.epsilon_outside", "norm2"},
      {"ffn.up_bias_missing", "ffn.up"},
      {"ffn.gelu_tanh", "ffn.activation"},
      {"block.residual2_doubled", "residual2"}};
  for (const auto& [mistake, stage] : expected) {
    const Diagnosis found = diagnosed(test::dump_of(config, weights, x, {{mistake, 0}}));
    EXPECT_EQ(found.first_wrong_stage, stage) << mistake;
    EXPECT_EQ(label_of(found.explanations.at(0)), mistake);
    for (const StageJudgement& judged : found.stages) {
      const bool last = std::string_view(stage) == "residual2" && judged.stage == "output";
      EXPECT_EQ(judged.wrong != 0, judged.stage == stage || last) << mistake << " " << judged.stage;
      if (judged.stage != stage) continue;
      ASSERT_TRUE(judged.first_wrong);
      EXPECT_GT(std::abs(judged.first_wrong->found - judged.first_wrong->expected),
                judged.first_wrong->tolerance);
      EXPECT_NE(judged.first_wrong->sentence, "");
    }
  }
  // One number wrong in one row of one head.
  BlockDump dump = test::dump_of(config, weights, x, {});
  dump.stages[BlockStage::concat].values(4, 5) += 0.01;  // head 1
  const Diagnosis found = diagnosed(dump);
  EXPECT_EQ(found.judgement, Judgement::wrong_unexplained);
  EXPECT_EQ(found.first_wrong_stage, "concat");
  ASSERT_EQ(found.where.size(), 2U);
  EXPECT_EQ(found.where[0], "only row 4");
  EXPECT_EQ(found.where[1], "only head 1");
  const auto judged = std::find_if(found.stages.begin(), found.stages.end(),
                                   [](const StageJudgement& j) { return j.stage == "concat"; });
  EXPECT_EQ(judged->first_wrong->address, "concat[4,5]");
  EXPECT_EQ(judged->wrong, 1);
}

TEST(DiagnoseBlock, NamesARoundedStreamAndPositionsFromOne) {
  for (std::uint64_t seed = 41; seed <= 52; ++seed) {
    const Drawn block = drawn(seed);
    for (const char* mistake :
         {"block.stream_bf16", "block.stream_f16", "rope.positions_from_one"}) {
      if (mistake[0] == 'r' && !block.config.rope) continue;
      const Diagnosis found =
          diagnosed(test::dump_of(block.config, block.weights, block.x, {{mistake, 0}}));
      EXPECT_TRUE(names(found, mistake))
          << "seed " << seed << " " << mistake << " " << found.first_wrong_stage;
    }
  }
}

TEST(DiagnoseBlock, SaysWhatNaNDoes) {
  const Drawn block = drawn(31);
  BlockDump dump = test::dump_of(block.config, block.weights, block.x, {});
  Tensor<double>& up = dump.stages[BlockStage::up].values;
  up(3, 2) = std::nan("");
  const Diagnosis found = diagnosed(dump);
  EXPECT_EQ(found.judgement, Judgement::wrong_unexplained);
  EXPECT_EQ(found.first_wrong_stage, "ffn.up");
  for (const StageJudgement& judged : found.stages) {
    if (judged.stage == "ffn.up") {
      EXPECT_EQ(judged.nan_apart, 1);
      EXPECT_EQ(judged.wrong, 1);
    }
  }
}

TEST(DiagnoseBlock, JudgesWhatItCanAndSaysWhatNot) {
  const Drawn block = drawn(33);
  BlockDump dump = test::dump_of(block.config, block.weights, block.x, {});
  dump.x = Tensor<double>();
  dump.weights.down_weight = Tensor<double>();
  Diagnosis found = diagnosed(dump);
  EXPECT_EQ(found.judgement, Judgement::right);
  const auto said = [&](const char* word) {
    return std::any_of(found.remarks.begin(), found.remarks.end(), [&](const std::string& text) {
      return text.find(word) != std::string::npos;
    });
  };
  EXPECT_TRUE(said("ffn.down is not judged"));
  for (const StageJudgement& judged : found.stages) EXPECT_NE(judged.stage, "ffn.down");

  dump.stages.clear();
  const auto nothing = diagnose_block(dump);
  ASSERT_FALSE(nothing);
  EXPECT_EQ(nothing.failure().id, "missing-tensor");
}

TEST(DiagnoseBlock, ClearsALargeBlockWithoutASearch) {
  Random random(9);
  BlockConfig config = wide_config(random);
  config.placement = NormPlacement::pre;
  config.model_dim = 256;
  config.heads = config.kv_heads = 4;
  config.head_dim = config.value_dim = 64;
  config.ffn_dim = 1024;
  const auto weights = test::drawn_weights(random, config);
  const BlockDump dump = test::dump_of(config, weights, test::drawn_rows(random, 40, 256), {});
  const Diagnosis found = diagnosed(dump);
  EXPECT_EQ(found.judgement, Judgement::right);
  EXPECT_EQ(found.tried, 0);
  ASSERT_FALSE(found.remarks.empty());
  EXPECT_NE(found.remarks.back().find("it is large"), std::string::npos);
}

TEST(DiagnoseBlock, RefusesShapesThatCannotBe) {
  const Drawn block = drawn(35);
  const BlockDump right = test::dump_of(block.config, block.weights, block.x, {});
  const auto id = [](const BlockDump& dump) {
    const auto found = diagnose_block(dump);
    return found ? std::string("none") : found.failure().id;
  };
  BlockDump dump = right;
  dump.stages[BlockStage::up].values = Tensor<double>({2, 2});
  EXPECT_EQ(id(dump), "shape-mismatch");
  dump = right;
  dump.weights.up_weight = Tensor<double>({3, 5});
  EXPECT_EQ(id(dump), "shape-mismatch");
  dump = right;
  dump.sequences = 1000;
  EXPECT_EQ(id(dump), "shape-mismatch");
  dump = right;
  dump.config.kv_heads = 7;
  EXPECT_EQ(id(dump), "bad-option");
  dump = right;
  dump.config.epsilon = std::nan("");
  EXPECT_EQ(id(dump), "bad-option");
  dump = right;
  dump.config.heads = 0;
  EXPECT_EQ(id(dump), "bad-option");
  dump = right;
  dump.x = Tensor<double>({2, 3});
  EXPECT_EQ(id(dump), "shape-mismatch");
}

TEST(DiagnoseBlock, NeverConvictsARightProgram) {
  double farthest = 0, used = 0;
  const std::uint64_t programs = test::draws(100, 300);
  for (std::uint64_t seed = 1001; seed <= 1000 + programs; ++seed) {
    const Drawn block = drawn(seed);
    const Diagnosis found = diagnosed(test::dump_of(block.config, block.weights, block.x, {}));
    ASSERT_EQ(found.judgement, Judgement::right)
        << "seed " << seed << " " << found.first_wrong_stage;
    EXPECT_EQ(found.first_wrong_stage, "");
    farthest = std::max(farthest, found.explanations.front().distance);
    for (const StageJudgement& stage : found.stages) used = std::max(used, stage.used);
  }
  std::cout << programs << " right float32 programs: farthest " << farthest << " of noise, used "
            << used << " of the tolerance\n";
}

/// The exact tier's own tables, each rounded to the type that it is stored in.
BlockDump exact_dump(const Drawn& block, DType dtype, Precision precision) {
  const Tensor<double> x = test::tensor_of(block.x);
  const auto exact = lab::block(x.view<2>(), block.config, block.weights).value();
  BlockDump dump;
  dump.config = block.config;
  dump.weights = block.weights;
  dump.x = x;
  dump.precision = precision;
  for (int n = 0; n < block_stages; ++n) {
    const auto stage = static_cast<BlockStage>(n);
    std::string name(name_of(stage));
    if (stage == BlockStage::activation) {
      const char* const forms[] = {"ffn.relu", "ffn.gelu", "ffn.gelu", "ffn.silu"};
      name = forms[static_cast<int>(block.config.activation)];
    }
    if (const Tensor<double>* table = exact.stage(name)) {
      const AnyTensor stored = AnyTensor::from_f64(*table, dtype);
      dump.stages[stage] = {.values = stored.to_f64(name).value(), .name = name, .dtype = dtype};
    }
  }
  return dump;
}

TEST(DiagnoseBlock, NeverConvictsTheExactTier) {
  const std::pair<DType, Precision> kinds[] = {{DType::f64, Precision::f64},
                                               {DType::f32, Precision::f32},
                                               {DType::f16, Precision::f16},
                                               {DType::bf16, Precision::bf16},
                                               {DType::bf16, Precision::f32}};
  for (const auto& [dtype, precision] : kinds) {
    double farthest = 0;
    for (std::uint64_t seed = 2001; seed <= 2000 + test::draws(20, 60); ++seed) {
      const Diagnosis found = diagnosed(exact_dump(drawn(seed), dtype, precision));
      ASSERT_EQ(found.judgement, Judgement::right)
          << "seed " << seed << " " << name_of(dtype) << " " << found.first_wrong_stage;
      farthest = std::max(farthest, found.explanations.front().distance);
    }
    std::cout << "exact tier stored as " << name_of(dtype) << ", claimed " << name_of(precision)
              << ": farthest " << farthest << " of noise\n";
  }
}

}  // namespace
}  // namespace attest::check
