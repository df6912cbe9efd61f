// SPDX-License-Identifier: MIT
// Real tables of somebody else's program: GPT-2's raw, scaled and masked scores and weights, without
// query, key or value. Right as they are; named, with their stage, after a mistake is put into them.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "attest/base/text.h"
#include "attest/check/diagnose/diagnosis.h"
#include "attest/io/safetensors.h"
#include "tests/support/shared_files.h"

namespace attest::check {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

/// The four tables of one prompt, twelve layers as twelve batches.
std::optional<Dump> activations(int prompt) {
  const auto path = test::shared_path("data/models/gpt2-124m-activations/activations.safetensors");
  if (!path) return std::nullopt;
  const auto file = io::read_safetensors(path->string());
  if (!file) return std::nullopt;
  Dump out;
  const std::string prefix = sentence("ex", prompt, ".attn");
  const auto add = [&](Stage stage, const char* name) {
    out.stages.push_back({stage, *file->find(prefix + name)->to_f64("scores"), DType::f32,
                          "table" + std::string(name)});
  };
  add(Stage::dot, "");
  add(Stage::scaled, "_scaled");
  add(Stage::masked, "_masked");
  add(Stage::weights, "_softmax");
  const std::int64_t n = out.stages[0].values.extent(3);
  out.claim.call.mask = Mask::causal();
  out.claim.shape = {.B = 12, .H = 12, .G = 12, .T = n, .S = n, .D = 64, .E = 64};
  return out;
}

TEST(DiagnoseGpt2, ClearsForeignTablesStageByStage) {
  for (int prompt = 0; prompt < 5; ++prompt) {
    const auto dump = activations(prompt);
    if (!dump) GTEST_SKIP() << test::not_shared;
    const auto diagnosis = diagnose(*dump);
    ASSERT_TRUE(diagnosis.has_value()) << diagnosis.failure().message;
    EXPECT_EQ(diagnosis->judgement, Judgement::right) << to_text(*dump, *diagnosis);
    for (std::size_t n = 1; n < 4; ++n) EXPECT_GT(diagnosis->stages[n].compared, 0);
  }
}

/// A program that goes on from the raw scores of one head, table by table.
struct Program {
  std::string name;
  std::string stage;  // that is wrong first
  double scale = 0.125;
  std::function<bool(std::int64_t, std::int64_t)> visible = [](auto i, auto j) { return j <= i; };
  double hidden = -infinity;
  double base = 2.718281828459045;
  double more = 0;
  bool twice = false, over_queries = false, after = false;
};

std::vector<Program> programs() {
  const auto all = [](auto, auto) { return true; };
  return {{.name = "scale.none", .stage = "table_scaled", .scale = 1},
          {.name = "scale.twice", .stage = "table_scaled", .scale = 1.0 / 64},
          {.name = "causal.missing", .stage = "table_masked", .visible = all},
          {.name = "causal.one_future",
           .stage = "table_masked",
           .visible = [](auto i, auto j) { return j <= i + 1; }},
          {.name = "causal.reversed",
           .stage = "table_masked",
           .visible = [](auto i, auto j) { return j >= i; }},
          {.name = "causal.zero_scores", .stage = "table_masked", .hidden = 0},
          {.name = "softmax.base2", .stage = "table_softmax", .base = 2},
          {.name = "softmax.plus_one", .stage = "table_softmax", .more = 1},
          {.name = "softmax.twice", .stage = "table_softmax", .twice = true},
          {.name = "softmax.over_queries", .stage = "table_softmax", .over_queries = true},
          {.name = "causal.after_softmax_no_renorm",
           .stage = "table_masked",
           .visible = all,
           .after = true}};
}

void softmax(std::vector<double>& row, const Program& program) {
  double peak = program.more > 0 ? 0 : -infinity, sum = 0;
  for (const double x : row) peak = std::max(peak, x);
  for (double& x : row) {
    x = std::pow(program.base, x - peak);
    sum += x;
  }
  sum += program.more * std::pow(program.base, -peak);
  for (double& x : row) x /= sum;
}

void run_head(Dump& dump, const Program& program, std::int64_t b, std::int64_t h) {
  const std::int64_t n = dump.claim.shape.T;
  Tensor<double>& scaled = dump.stages[1].values;
  Tensor<double>& masked = dump.stages[2].values;
  Tensor<double>& weights = dump.stages[3].values;
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t j = 0; j < n; ++j) {
      scaled(b, h, i, j) = dump.stages[0].values(b, h, i, j) * program.scale;
      masked(b, h, i, j) = program.visible(i, j) ? scaled(b, h, i, j) : program.hidden;
    }
  }
  for (std::int64_t line = 0; line < n; ++line) {
    const auto at = [&](Tensor<double>& table, std::int64_t k) -> double& {
      return program.over_queries ? table(b, h, k, line) : table(b, h, line, k);
    };
    std::vector<double> row;
    for (std::int64_t k = 0; k < n; ++k) row.push_back(at(masked, k));
    softmax(row, program);
    if (program.twice) softmax(row, program);
    for (std::int64_t k = 0; k < n; ++k) {
      const bool kept = !program.after || k <= line;
      at(weights, k) = kept ? row[static_cast<std::size_t>(k)] : 0;
    }
  }
}

TEST(DiagnoseGpt2, NamesAMistakePutIntoThemAndItsStage) {
  for (const Program& program : programs()) {
    auto dump = activations(3);
    if (!dump) GTEST_SKIP() << test::not_shared;
    for (std::int64_t b = 0; b < 12; ++b) {
      for (std::int64_t h = 0; h < 12; ++h) run_head(*dump, program, b, h);
    }
    for (Observed& table : dump->stages) {
      for (double& x : table.values.elements()) x = static_cast<double>(to_float_nearest(x));
    }
    const auto diagnosis = diagnose(*dump);
    ASSERT_TRUE(diagnosis.has_value()) << diagnosis.failure().message;
    EXPECT_EQ(diagnosis->judgement, Judgement::wrong_named) << to_text(*dump, *diagnosis);
    EXPECT_EQ(diagnosis->first_wrong_stage, program.stage) << program.name;
    ASSERT_FALSE(diagnosis->explanations.empty()) << program.name;
    const Explanation& best = diagnosis->explanations.front();
    if (program.base == 2) {  // with scaled scores given, the base is fitted
      ASSERT_EQ(best.fitted.size(), 1) << to_text(*dump, *diagnosis);
      EXPECT_NE(best.fitted[0].find("ln(2): powers of 2"), std::string::npos) << best.fitted[0];
      continue;
    }
    ASSERT_EQ(best.mistakes.size(), 1) << program.name << "\n" << to_text(*dump, *diagnosis);
    const bool same =
        std::find(best.same.begin(), best.same.end(), program.name) != best.same.end();
    EXPECT_TRUE(best.mistakes[0].mistake->name == program.name || same)
        << program.name << "\n"
        << to_text(*dump, *diagnosis);
  }
}

}  // namespace
}  // namespace attest::check
