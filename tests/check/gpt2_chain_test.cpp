// SPDX-License-Identifier: MIT
// Tables that somebody else computed, from raw scores to weights, without query, key or value: right as
// they are, and wrong with the right name and stage after each of ten mistakes is put into them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "attest/check/diagnose/diagnosis.h"
#include "attest/io/tensor_file.h"
#include "shared_files.h"

using namespace attest;
using namespace attest::check;

namespace {

constexpr float hidden = -std::numeric_limits<float>::infinity();

/// [L, H, T, T] in float32, as the file has them; layers stand for the batch.
struct Chain {
  std::int64_t L = 0, H = 0, T = 0;
  std::vector<float> raw, scaled, masked, weights;
};

std::vector<float> floats_of(const io::NamedTensors& file, const std::string& name) {
  const AnyTensor* found = file.find(name);
  std::vector<float> out(found->size());
  for (std::size_t n = 0; n < out.size(); ++n) out[n] = static_cast<float>(found->number(n));
  return out;
}

std::optional<Chain> chain_of(int example) {
  const auto path = test::shared_path("data/models/gpt2-124m-activations/activations.safetensors");
  if (!path) return std::nullopt;
  const auto file = io::read_tensors(path->string());
  if (!file) return std::nullopt;
  const std::string prefix = "ex" + std::to_string(example) + ".";
  const AnyTensor* raw = file->find(prefix + "attn");
  return Chain{raw->shape()[0],
               raw->shape()[1],
               raw->shape()[3],
               floats_of(*file, prefix + "attn"),
               floats_of(*file, prefix + "attn_scaled"),
               floats_of(*file, prefix + "attn_masked"),
               floats_of(*file, prefix + "attn_softmax")};
}

void softmax_row(const float* scores, float* weights, std::int64_t n, std::int64_t stride = 1) {
  float peak = hidden;
  for (std::int64_t j = 0; j < n; ++j) peak = std::max(peak, scores[j * stride]);
  float sum = 0;
  for (std::int64_t j = 0; j < n; ++j)
    sum += weights[j * stride] = std::exp(scores[j * stride] - peak);
  for (std::int64_t j = 0; j < n; ++j) weights[j * stride] /= sum;
}

/// Recomputes what follows from the raw scores, as a foreign program in float32 would.
struct Program {
  float scale = 0.125F;
  std::function<bool(std::int64_t, std::int64_t)> sees = [](auto i, auto j) { return j <= i; };
  float fill = hidden;
  std::function<float(float)> stored = [](float x) { return x; };  ///< of scaled scores
  bool over_queries = false;

  void run(Chain& c) const {
    const std::int64_t area = c.T * c.T;
    for (std::int64_t head = 0; head < c.L * c.H; ++head) {
      for (std::int64_t n = 0; n < area; ++n) {
        const std::size_t at = static_cast<std::size_t>(head * area + n);
        c.scaled[at] = stored(c.raw[at] * scale);
        c.masked[at] = sees(n / c.T, n % c.T) ? c.scaled[at] : fill;
      }
      for (std::int64_t i = 0; i < c.T; ++i) {
        const std::int64_t first = head * area + (over_queries ? i : i * c.T);
        softmax_row(&c.masked[static_cast<std::size_t>(first)],
                    &c.weights[static_cast<std::size_t>(first)], c.T, over_queries ? c.T : 1);
      }
    }
  }
};

Dump dump_of(const Chain& c) {
  Dump dump;
  dump.claim.call.mask = Mask::causal();
  dump.claim.call.scale = 0.125;
  dump.claim.shape = {.B = c.L, .H = c.H, .G = c.H, .T = c.T, .S = c.T, .D = 64, .E = 0};
  const auto add = [&](Stage stage, const std::vector<float>& from, const char* name) {
    Tensor<double> values({c.L, c.H, c.T, c.T});
    std::copy(from.begin(), from.end(), values.data());
    dump.stages.push_back({stage, std::move(values), DType::f32, name});
  };
  add(Stage::dot, c.raw, "raw");
  add(Stage::scaled, c.scaled, "scaled");
  add(Stage::masked, c.masked, "masked");
  add(Stage::weights, c.weights, "weights");
  return dump;
}

/// A mistake put into the tables, the stage at which it shows first, and its name.
struct Broken {
  std::string what;
  std::string stage;
  std::string name;
  std::function<void(Chain&)> make;
};

/// power(score) over its sum and `more`, row by row.
void weigh(Chain& c, const std::function<float(float)>& power, float more) {
  const auto width = static_cast<std::size_t>(c.T);
  for (std::size_t row = 0; row < c.weights.size(); row += width) {
    float sum = more;
    for (std::size_t j = row; j < row + width; ++j) sum += c.weights[j] = power(c.masked[j]);
    for (std::size_t j = row; j < row + width; ++j) c.weights[j] /= sum;
  }
}

void softmax_again(Chain& c) {
  std::vector<float> again(static_cast<std::size_t>(c.T));
  for (std::size_t row = 0; row < c.weights.size(); row += again.size()) {
    softmax_row(&c.weights[row], again.data(), c.T);
    std::copy(again.begin(), again.end(), c.weights.begin() + static_cast<std::ptrdiff_t>(row));
  }
}

/// A program that hides nothing, and sets the weights of later keys to 0.
void hide_weights(Chain& c) {
  Program({.sees = [](auto, auto) { return true; }}).run(c);
  for (std::size_t n = 0; n < c.weights.size(); ++n) {
    const auto at = static_cast<std::int64_t>(n) % (c.T * c.T);
    if (at % c.T > at / c.T) c.weights[n] = 0;
  }
}

std::vector<Broken> broken() {
  const auto program = [](Program p) { return [p](Chain& c) { p.run(c); }; };
  return {
      {"no scale", "scaled", "scale.none", program({.scale = 1})},
      {"scale twice", "scaled", "scale.twice", program({.scale = 1.0F / 64})},
      {"scale of the model's width", "scaled", "scale.sqrt_d_model",
       program({.scale = 1 / std::sqrt(768.0F)})},
      {"first row open", "masked", "causal.first_row_open",
       program({.sees = [](auto i, auto j) { return j <= i || i == 0; }})},
      {"one key of the future", "masked", "causal.one_future",
       program({.sees = [](auto i, auto j) { return j <= i + 1; }})},
      {"no mask", "masked", "causal.missing", program({.sees = [](auto, auto) { return true; }})},
      {"the past hidden", "masked", "causal.reversed",
       program({.sees = [](auto i, auto j) { return j >= i; }})},
      {"hidden scores of 0", "masked", "causal.zero_scores", program({.fill = 0})},
      {"later keys hidden after the softmax", "masked", "causal.after_softmax_no_renorm",
       hide_weights},
      {"2 in place of e", "weights", "ln(2): powers of 2",
       [](Chain& c) {
         weigh(
             c, [](float x) { return std::exp2(x); }, 0);
       }},
      {"softmax over queries", "weights", "softmax.over_queries", program({.over_queries = true})},
      {"softmax twice", "weights", "softmax.twice", softmax_again},
      {"one in the denominator", "weights", "softmax.plus_one",
       [](Chain& c) {
         weigh(
             c, [](float x) { return std::exp(x); }, 1);
       }},
  };
}

/// Whether the best explanation, or one that gives the same numbers, is called so; of a constant that was
/// fitted, whether what is said of it holds this.
bool told(const Diagnosis& diagnosis, const std::string& name) {
  if (diagnosis.explanations.empty()) return false;
  const Explanation& best = diagnosis.explanations.front();
  std::string made;
  for (const Made& m : best.mistakes) made += (made.empty() ? "" : " + ") + m.label();
  return made == name || std::ranges::find(best.same, name) != best.same.end() ||
         std::ranges::any_of(best.fitted, [&](const std::string& fitted) {
           return fitted.find(name) != std::string::npos;
         });
}

}  // namespace

TEST(Gpt2Chain, TablesOfSomebodyElseAreRight) {
  for (int example = 0; example < 5; ++example) {
    const auto chain = chain_of(example);
    if (!chain) GTEST_SKIP() << test::not_shared;
    const Dump dump = dump_of(*chain);
    const auto diagnosis = diagnose(dump);
    ASSERT_TRUE(diagnosis) << diagnosis.failure().message;
    EXPECT_TRUE(diagnosis->judgement == Judgement::right ||
                diagnosis->judgement == Judgement::right_by_rounding)
        << to_text(dump, *diagnosis);
    ASSERT_EQ(diagnosis->stages.size(), 4U);
    for (const StageJudgement& stage : diagnosis->stages) {
      EXPECT_EQ(stage.wrong, 0) << stage.stage;
      EXPECT_EQ(stage.compared > 0, stage.stage != "dot") << stage.stage;  // the chain begins there
    }
  }
}

TEST(Gpt2Chain, EachMistakeIsNamedAtItsStage) {
  for (int example = 0; example < 5; ++example) {
    const auto chain = chain_of(example);
    if (!chain) GTEST_SKIP() << test::not_shared;
    for (const Broken& b : broken()) {
      Chain copy = *chain;
      b.make(copy);
      const Dump dump = dump_of(copy);
      const auto diagnosis = diagnose(dump);
      ASSERT_TRUE(diagnosis) << b.what << ": " << diagnosis.failure().message;
      EXPECT_EQ(diagnosis->judgement, Judgement::wrong_named) << b.what << "\n"
                                                              << to_text(dump, *diagnosis);
      EXPECT_EQ(diagnosis->first_wrong_stage, b.stage) << b.what;
      EXPECT_TRUE(told(*diagnosis, b.name)) << b.what << "\n" << to_text(dump, *diagnosis);
    }
  }
}
