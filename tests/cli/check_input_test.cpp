// SPDX-License-Identifier: MIT
// attest check: what it reads and guesses, and what it refuses.
#include <gtest/gtest.h>

#include <cmath>

#include "check_dumps.h"

namespace attest::test {
namespace {

// ---- names and layouts --------------------------------------------------------------------------

TEST(CheckCommand, GuessesNamesAndSaysSo) {
  const AttentionCase call = grouped();
  const auto result = lab::attention(call.inputs(), call.options()).value();
  io::NamedTensors file;
  file.add("q", f32(call.query));
  file.add("K", f32(call.key));
  file.add("value_states", f32(call.value));
  file.add("attn_weights", f32(result.weights));
  file.add("softmax_lse", f32(result.log_sum_exp));
  file.add("context_layer", f32(result.output));
  file.add("hidden_states", f32(call.query));
  const Ended ended = checked(file, {"--causal", "none"});
  EXPECT_EQ(ended.code, 0) << ended.out << ended.err;
  for (const char* said :
       {"'q' as query", "'K' as key", "'value_states' as value", "'attn_weights' as weights",
        "'softmax_lse' as log_sum_exp", "'context_layer' as output", "not used: hidden_states"}) {
    EXPECT_TRUE(says(ended.err, said)) << said << "\n" << ended.err;
  }
}

TEST(CheckCommand, FindsTheOnlyLayoutInWhichTheShapesFit) {
  const AttentionCase call = grouped();
  const Tensor<double> output = output_of(call);
  io::NamedTensors file;
  file.add("query", f32(time_first(call.query)));
  file.add("key", f32(time_first(call.key)));
  file.add("value", f32(time_first(call.value)));
  file.add("output", f32(time_first(output)));
  const Ended ended = checked(file, {"--causal", "none"});
  EXPECT_EQ(ended.code, 0) << ended.out << ended.err;
  EXPECT_TRUE(says(ended.err, "layout: [B, T, H, D], the only order")) << ended.err;
  // Said wrongly, it is refused rather than read as something else.
  EXPECT_EQ(checked(file, {"--causal", "none", "--layout", "bhtd"}).code, 2);
}

TEST(CheckCommand, FindsTheOutputsLayoutBesideTheInputs) {
  const AttentionCase call = grouped();
  const Tensor<double> output = output_of(call);
  for (const Tensor<double>& each : {output, time_first(output), packed(output)}) {
    const Ended ended = checked(dump_of(call, each), {"--causal", "none"});
    EXPECT_EQ(ended.code, 0) << to_string(each.shape()) << ended.out << ended.err;
  }
  const Ended other = checked(dump_of(call, Tensor<double>({2, 4, 3, 6})), {"--causal", "none"});
  EXPECT_EQ(other.code, 2);
  EXPECT_TRUE(says(other.err, "output [2, 4, 3, 6]")) << other.err;
}

TEST(CheckCommand, ReadsPackedRowsWithHeads) {
  const AttentionCase call = grouped();
  io::NamedTensors file;
  file.add("query", f32(packed(call.query)));
  file.add("key", f32(packed(call.key)));
  file.add("value", f32(packed(call.value)));
  file.add("output", f32(packed(output_of(call))));
  EXPECT_EQ(checked(file, {"--causal", "none", "--heads", "4"}).code, 0);
  EXPECT_EQ(checked(file, {"--causal", "none", "--heads", "4", "--kv-heads", "2"}).code, 0);
  const Ended none = checked(file, {"--causal", "none"});
  EXPECT_EQ(none.code, 2);
  EXPECT_TRUE(says(none.err, "--heads")) << none.err;
}

TEST(CheckCommand, CachedKeysStandBeforeTheNewOnes) {
  AttentionCase call = grouped();
  call.mask = Mask::causal_at(2);
  io::NamedTensors whole = dump_of(call, output_of(call));
  EXPECT_EQ(checked(whole, {"--causal", "--past", "2"}).code, 0);
  EXPECT_EQ(checked(whole, {"--causal", "--past", "6"}).code, 2);
  EXPECT_EQ(checked(whole, {"--causal"}).code, 2);  // T is not S
}

TEST(CheckCommand, ReadsFilesOfTheirOwn) {
  const ScratchFolder scratch;
  const AttentionCase call = grouped();
  const std::pair<const char*, Tensor<double>> parts[] = {
      {"query", call.query}, {"key", call.key}, {"value", call.value}, {"output", output_of(call)}};
  std::vector<std::string> arguments{"check", "--causal", "none"};
  for (const auto& [name, values] : parts) {
    io::NamedTensors one;
    one.add("x", f32(values));
    const std::string path = scratch.file(std::string(name) + ".npy");
    ASSERT_TRUE(io::write_tensors(path, one));
    arguments.insert(arguments.end(), {std::string("--") + name, path});
  }
  const Ended ended = run_attest(arguments);
  EXPECT_EQ(ended.code, 0) << ended.out << ended.err;
}

// ---- chains of stages ---------------------------------------------------------------------------

struct Chain {
  AttentionCase call = grouped();
  Tensor<double> scaled{{2, 4, 3, 5}}, masked{{2, 4, 3, 5}};
  lab::AttentionResult result;
  Chain() {
    call.mask = Mask::causal_bottom_right();
    result = lab::attention(call.inputs(), call.options()).value();
    for (std::int64_t b = 0; b < 2; ++b) {
      for (std::int64_t h = 0; h < 4; ++h) {
        for (std::int64_t i = 0; i < 3; ++i) {
          for (std::int64_t j = 0; j < 5; ++j) {
            double dot = 0;
            for (std::int64_t d = 0; d < 6; ++d)
              dot += call.query(b, h, i, d) * call.key(b, h / 2, j, d);
            scaled(b, h, i, j) = dot / std::sqrt(6.0);
            masked(b, h, i, j) = j <= i + 2 ? scaled(b, h, i, j) : -infinity;
          }
        }
      }
    }
  }
};

TEST(CheckCommand, JudgesAChainOfStagesWithoutInputs) {
  const Chain chain;
  io::NamedTensors file;
  file.add("scores_scaled", f32(chain.scaled));
  file.add("scores_masked", f32(chain.masked));
  file.add("attn_softmax", f32(chain.result.weights));
  const std::vector<std::string> claim{"--causal", "bottom-right"};
  const Ended right = checked(file, claim);
  EXPECT_EQ(right.code, 0) << right.out << right.err;
  Tensor<double> over = chain.result.weights;
  over(0, 1, 2, 0) += 0.01;
  file.tensors[2].second = f32(over);
  const Ended wrong = checked(file, claim);
  EXPECT_EQ(wrong.code, 1) << wrong.out;
  EXPECT_TRUE(says(wrong.out, "weights[2,0]")) << wrong.out;
}

TEST(CheckCommand, JudgesTheOutputFromWeightsAndValue) {
  const Chain chain;
  io::NamedTensors file;
  file.add("attn", f32(chain.result.weights));
  file.add("value", f32(chain.call.value));
  file.add("output", f32(chain.result.output));
  const Ended right = checked(file, {"--causal", "bottom-right"});
  EXPECT_EQ(right.code, 0) << right.out << right.err;
  EXPECT_TRUE(says(right.err, "taking 'attn' for the stage weights")) << right.err;
  Tensor<double> output = chain.result.output;
  output(0, 0, 0, 0) += 0.01;
  file.tensors[2].second = f32(output);
  EXPECT_EQ(checked(file, {"--causal", "bottom-right"}).code, 1);
}

TEST(CheckCommand, ScoresAreWhatTheOptionSays) {
  const Chain chain;
  io::NamedTensors file = dump_of(chain.call, chain.result.output);
  file.add("scores", f32(chain.scaled));
  const std::vector<std::string> claim{"--causal", "bottom-right"};
  const Ended guessed = checked(file, claim);
  EXPECT_EQ(guessed.code, 0) << guessed.out << guessed.err;
  EXPECT_TRUE(says(guessed.err, "taking 'scores' for the stage scaled")) << guessed.err;
  EXPECT_EQ(checked(file, {"--causal", "bottom-right", "--scores-are", "scaled"}).code, 0);
  EXPECT_EQ(checked(file, {"--causal", "bottom-right", "--scores-are", "dot"}).code, 1);
  EXPECT_EQ(checked(file, {"--causal", "bottom-right", "--scores-are", "nothing"}).code, 2);
}

TEST(CheckCommand, APrefixChoosesOneCallOfMany) {
  const AttentionCase call = grouped();
  io::NamedTensors file;
  for (auto& [name, tensor] : dump_of(call, output_of(call)).tensors) {
    file.add("layer1." + name, tensor);
    file.add("layer2." + name, f32(Tensor<double>(tensor.shape())));
  }
  EXPECT_EQ(checked(file, {"--causal", "none", "--prefix", "layer1."}).code, 0);
  EXPECT_EQ(checked(file, {"--causal", "none"}).code, 2);
  EXPECT_EQ(checked(file, {"--causal", "none", "--prefix", "layer3."}).code, 2);
}

// ---- rotary positions ---------------------------------------------------------------------------

/// Turns rows as --rope half means it: written down once more, for the test alone.
Tensor<double> turned(const Tensor<double>& x, double base, std::int64_t first) {
  Tensor<double> out = x;
  const std::int64_t R = x.extent(3);
  for (std::int64_t b = 0; b < x.extent(0); ++b) {
    for (std::int64_t h = 0; h < x.extent(1); ++h) {
      for (std::int64_t t = 0; t < x.extent(2); ++t) {
        for (std::int64_t i = 0; i < R / 2; ++i) {
          const double angle =
              static_cast<double>(first + t) *
              std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(R));
          const double u = x(b, h, t, i), v = x(b, h, t, i + R / 2);
          out(b, h, t, i) = u * std::cos(angle) - v * std::sin(angle);
          out(b, h, t, i + R / 2) = u * std::sin(angle) + v * std::cos(angle);
        }
      }
    }
  }
  return out;
}

TEST(CheckCommand, TurnsQueryAndKeyWhereRopeIsClaimed) {
  AttentionCase call = grouped();
  call.mask = Mask::causal_bottom_right();
  AttentionCase rotated = call;
  rotated.query = turned(call.query, 500, 2);
  rotated.key = turned(call.key, 500, 0);
  io::NamedTensors file = dump_of(call, output_of(rotated));
  const Ended right =
      checked(file, {"--causal", "bottom-right", "--rope", "half", "--rope-base", "500"});
  EXPECT_EQ(right.code, 0) << right.out << right.err;
  EXPECT_EQ(checked(file, {"--causal", "bottom-right"}).code, 1);

  // The same from the tables that the model used.
  Tensor<double> cos({8, 3}), sin({8, 3});
  for (std::int64_t p = 0; p < 8; ++p) {
    for (std::int64_t i = 0; i < 3; ++i) {
      const double angle = static_cast<double>(p) * std::pow(500.0, -static_cast<double>(i) / 3);
      cos(p, i) = std::cos(angle);
      sin(p, i) = std::sin(angle);
    }
  }
  file.add("cos", f32(cos));
  file.add("sin", f32(sin));
  const Ended tables = checked(file, {"--causal", "bottom-right"});
  EXPECT_EQ(tables.code, 0) << tables.out << tables.err;
  EXPECT_TRUE(says(tables.err, "base 500 for 6 features")) << tables.err;
  cos(3, 1) += 0.1;
  file.tensors[4].second = f32(cos);
  EXPECT_EQ(checked(file, {"--causal", "bottom-right"}).code, 2);
}

// ---- bad input ----------------------------------------------------------------------------------

void expect_refused(const Ended& ended, const std::string& id, const std::string& part) {
  EXPECT_EQ(ended.code, 2) << ended.out << ended.err;
  EXPECT_EQ(ended.out, "");
  const std::size_t at = ended.err.find("error ");
  ASSERT_NE(at, std::string::npos) << ended.err;
  const std::string line = ended.err.substr(at);
  EXPECT_TRUE(line.starts_with("error " + id + ":")) << line;
  EXPECT_TRUE(says(line, part)) << line;
  EXPECT_EQ(line.find('\n'), line.size() - 1) << line;
}

TEST(CheckCommand, SaysWhatIsMissing) {
  const AttentionCase call = grouped();
  const io::NamedTensors whole = dump_of(call, output_of(call));
  const std::pair<std::size_t, const char*> parts[] = {{0, "query is missing"},
                                                       {1, "key is missing"},
                                                       {2, "without value"},
                                                       {3, "output is missing"}};
  for (const auto& [left_out, said] : parts) {
    io::NamedTensors file;
    for (std::size_t n = 0; n < 4; ++n) {
      if (n != left_out) file.add(whole.tensors[n].first, whole.tensors[n].second);
    }
    expect_refused(checked(file, {"--causal", "none"}), "missing-tensor", said);
  }
  io::NamedTensors weights;
  weights.add("weights", f32(Tensor<double>({2, 4, 3, 5})));
  expect_refused(checked(weights, {}), "missing-tensor", "scores and weights");
  expect_refused(run_attest({"check"}), "missing-tensor", "no file");
}

TEST(CheckCommand, RefusesShapesThatCannotBe) {
  AttentionCase call = grouped();
  const Tensor<double> output = output_of(call);
  const auto refused = [&](const char* role, Shape shape) {
    io::NamedTensors file = dump_of(call, output);
    for (auto& [name, tensor] : file.tensors) {
      if (name == role) tensor = f32(bell(shape, 9));
    }
    const Ended ended = checked(file, {"--causal", "none"});
    EXPECT_EQ(ended.code, 2) << role << to_string(shape) << ended.out << ended.err;
    EXPECT_TRUE(says(ended.err, "error ")) << ended.err;
  };
  refused("key", {2, 2, 5, 5});
  refused("key", {2, 3, 5, 6});
  refused("key", {3, 2, 5, 6});
  refused("value", {2, 2, 4, 7});
  refused("value", {2, 1, 5, 7});
  refused("query", {4, 3, 6});
  refused("query", {2, 4, 3, 6, 1});
  refused("query", {6});
  refused("output", {2, 4, 3});
}

TEST(CheckCommand, RefusesWhatHoldsNoNumbers) {
  const AttentionCase call = grouped();
  io::NamedTensors file = dump_of(call, output_of(call));
  Tensor<double> nothing({2, 4, 3, 6});
  for (double& x : nothing.elements()) x = std::nan("");
  file.tensors[0].second = f32(nothing);
  expect_refused(checked(file, {"--causal", "none"}), "no-numbers", "query holds nothing but NaN");

  io::NamedTensors whole = dump_of(call, output_of(call));
  whole.tensors[1].second = AnyTensor(DType::i32, {2, 2, 5, 6});
  expect_refused(checked(whole, {"--causal", "none"}), "bad-dtype", "key holds i32");
  whole = dump_of(call, output_of(call));
  whole.tensors[3].second = AnyTensor(DType::boolean, {2, 4, 3, 7});
  expect_refused(checked(whole, {"--causal", "none"}), "bad-dtype", "output holds bool");
}

TEST(CheckCommand, NothingToCompareIsNoMatch) {
  AttentionCase call;
  call.query = Tensor<double>({2, 4, 0, 6});
  call.key = bell({2, 2, 5, 6}, 2);
  call.value = bell({2, 2, 5, 7}, 3);
  expect_refused(checked(dump_of(call, Tensor<double>({2, 4, 0, 7})), {"--causal", "none"}),
                 "nothing-to-compare", "0 rows compared");
}

TEST(CheckCommand, RefusesEveryFileThatWasCutShort) {
  const ScratchFolder scratch;
  const AttentionCase call = grouped();
  for (const char* name : {"dump.safetensors", "dump.npz", "dump.json"}) {
    const std::string path = scratch.file(name);
    ASSERT_TRUE(io::write_tensors(path, dump_of(call, output_of(call))));
    const std::string whole = read_text(path);
    for (std::size_t part = 0; part < 8; ++part) {
      write_text(path, whole.substr(0, whole.size() * part / 8));
      const Ended ended = run_attest({"check", path, "--causal", "none"});
      EXPECT_EQ(ended.code, 2) << name << " cut to " << part << "/8: " << ended.out;
      EXPECT_TRUE(says(ended.err, "error ")) << ended.err;
    }
  }
}

TEST(CheckCommand, UnusedOptionsAreRefused) {
  const AttentionCase call = grouped();
  const io::NamedTensors file = dump_of(call, output_of(call));
  for (const std::vector<std::string>& unused : {std::vector<std::string>{"--rope-base", "500"},
                                                 {"--scores-are", "dot"},
                                                 {"--seed", "3"},
                                                 {"--kv-heads", "2"},
                                                 {"--rope", "sideways"},
                                                 {"--precision", "f8"}}) {
    const Ended ended = checked(file, unused);
    EXPECT_EQ(ended.code, 2) << unused[0] << ended.out << ended.err;
  }
}

}  // namespace
}  // namespace attest::test
