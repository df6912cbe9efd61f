// SPDX-License-Identifier: MIT
// attest check: what a new user brings, and stumbles over.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "check_dumps.h"

namespace attest::test {
namespace {

AnyTensor f64(const Tensor<double>& values) { return AnyTensor::from_f64(values, DType::f64); }

/// query, key, value and output as f64 holds them.
io::NamedTensors wide(const AttentionCase& call, const Tensor<double>& output) {
  io::NamedTensors file;
  file.add("query", f64(call.query));
  file.add("key", f64(call.key));
  file.add("value", f64(call.value));
  file.add("output", f64(output));
  return file;
}

template <class Round>
Tensor<double> each(Tensor<double> numbers, const Round& round) {
  for (double& x : numbers.elements()) x = round(x);
  return numbers;
}

double to_f32(double x) { return static_cast<float>(x); }
double to_six_digits(double x) { return std::nearbyint(x * 1e6) / 1e6; }

// ---- number types -------------------------------------------------------------------------------

TEST(CheckWords, NumbersOfF32InAnF64FileAreJudgedAsF32) {
  const AttentionCase call = grouped();
  const Ended ended =
      checked(wide(call, each(output_of(call), to_f32)), {"--causal", "none"}, "dump.json");
  EXPECT_EQ(ended.code, 0) << ended.out << ended.err;
  EXPECT_TRUE(says(ended.out, "every number of output fits f32")) << ended.out;
  // A number that no rounding to f32 makes is wrong still.
  Tensor<double> wrong = each(output_of(call), to_f32);
  wrong(1, 2, 0, 3) = to_f32(wrong(1, 2, 0, 3) + 0.001);
  EXPECT_EQ(checked(wide(call, wrong), {"--causal", "none"}).code, 1);
}

TEST(CheckWords, DecimalsWithinF32WaitForTheClaim) {
  AttentionCase call = grouped();
  call.query = each(call.query, to_six_digits);
  const io::NamedTensors file = wide(call, each(output_of(call), to_six_digits));
  const Ended open = checked(file, {"--causal", "none"});
  EXPECT_EQ(open.code, 3) << open.out << open.err;
  EXPECT_TRUE(says(open.out, "--precision f32 claims it")) << open.out;
  EXPECT_EQ(checked(file, {"--causal", "none", "--precision", "f32"}).code, 0);
  // Whoever claims f64 is held to it.
  EXPECT_EQ(checked(file, {"--causal", "none", "--precision", "f64"}).code, 1);
}

// ---- what nothing reads -------------------------------------------------------------------------

/// The last keys of the first batch entry are padding.
AttentionCase padded() {
  AttentionCase call = grouped();
  call.mask.key_lengths = {3, 5};
  return call;
}

TEST(CheckWords, RightCodeIsNotConvictedForAMaskThatNothingRead) {
  io::NamedTensors file = dump_of(padded(), output_of(padded()));
  Tensor<bool> hidden({2, 5});
  hidden(0, 3) = hidden(0, 4) = true;
  file.add("key_padding_mask", hidden);
  const Ended ended = checked(file, {"--causal", "none"});
  EXPECT_EQ(ended.code, 3) << ended.out << ended.err;
  EXPECT_TRUE(says(ended.out, "CANNOT TELL: 'key_padding_mask' [2, 5] was not read")) << ended.out;
  EXPECT_TRUE(says(ended.out, "[B, 1, 1, S]")) << ended.out;
}

TEST(CheckWords, TheOptionThatMakesEveryNumberRightIsNamed) {
  io::NamedTensors file = dump_of(padded(), output_of(padded()));
  Tensor<std::int64_t> lengths({2});
  lengths(0) = 3;
  lengths(1) = 5;
  file.add("valid_len", lengths);
  const Ended ended = checked(file, {"--causal", "none"});
  EXPECT_EQ(ended.code, 3) << ended.out << ended.err;
  EXPECT_TRUE(says(ended.out, "with --key-lengths-tensor valid_len every number is right"))
      << ended.out;
  EXPECT_EQ(checked(file, {"--causal", "none", "--key-lengths-tensor", "valid_len"}).code, 0);
}

TEST(CheckWords, WhatSpeaksOfNothingThatAttentionHasExcusesNothing) {
  io::NamedTensors file = dump_of(padded(), output_of(padded()));
  file.add("logits", Tensor<double>({2, 5}));
  EXPECT_EQ(checked(file, {"--causal", "none"}).code, 1);
  // And a mistake that is known stays one.
  AttentionCase wrong = grouped();
  wrong.scale = 1.0 / 6;
  file = dump_of(grouped(), output_of(wrong));
  file.add("lengths", Tensor<double>({2}));
  EXPECT_EQ(checked(file, {"--causal", "none"}).code, 1);
}

// ---- layouts ------------------------------------------------------------------------------------

/// B 2, H 3, T 7, S 11, D 8, packed to rank 3: [2, 7, 24] fits [H, T, D] too.
io::NamedTensors packed_dump(const Mask& mask) {
  AttentionCase call;
  call.query = bell({2, 3, 7, 8}, 1);
  call.key = bell({2, 3, 11, 8}, 2);
  call.value = bell({2, 3, 11, 8}, 3);
  call.mask = mask;
  const Tensor<double> output = output_of(call);
  io::NamedTensors file;
  file.add("query", f32(packed(call.query)));
  file.add("key", f32(packed(call.key)));
  file.add("value", f32(packed(call.value)));
  file.add("output", f32(packed(output)));
  return file;
}

TEST(CheckWords, RankThreeThatIsPackedIsNotConvicted) {
  const io::NamedTensors file = packed_dump(Mask::causal_top_left());
  for (const std::vector<std::string>& claim :
       {std::vector<std::string>{"--causal", "top-left"},
        {"--causal", "top-left", "--convention", "pytorch-sdpa"}}) {
    const Ended ended = checked(file, claim);
    EXPECT_EQ(ended.code, 3) << ended.out << ended.err;
    EXPECT_TRUE(says(ended.err, "could be [B, T, H*D] too: --heads")) << ended.err;
    EXPECT_FALSE(says(ended.err, "the only order")) << ended.err;
    EXPECT_TRUE(says(ended.out, "--heads 3: read as packed rows")) << ended.out;
  }
  EXPECT_EQ(checked(file, {"--causal", "top-left", "--heads", "3"}).code, 0);
  // A mistake in packed rows is no reason to say so.
  EXPECT_EQ(checked(file, {"--causal", "bottom-right", "--layout", "bhtd"}).code, 1);
}

TEST(CheckWords, WherePackedIsTheConventionHeadsAreAskedFor) {
  const io::NamedTensors file = packed_dump(Mask::causal_top_left());
  for (const char* name : {"onnx-24", "onnxruntime-mha", "pytorch-mha"}) {
    const Ended ended = checked(file, {"--causal", "top-left", "--convention", name});
    EXPECT_EQ(ended.code, 2) << name << ended.out << ended.err;
    EXPECT_TRUE(says(ended.err, "--heads")) << ended.err;
  }
  const Ended ended =
      checked(file, {"--causal", "top-left", "--convention", "onnx-24", "--heads", "3"});
  EXPECT_EQ(ended.code, 0) << ended.out << ended.err;
}

// ---- what is missing or does not fit ------------------------------------------------------------

TEST(CheckWords, DotAndScaledNeedAScale) {
  const Tensor<double> dot = bell({1, 2, 3, 5}, 4);
  io::NamedTensors file;
  file.add("dot", f32(dot));
  file.add("scaled", f32(each(dot, [](double x) { return x / 4; })));
  const Ended ended = checked(file, {"--causal", "none"});
  EXPECT_EQ(ended.code, 2) << ended.out << ended.err;
  EXPECT_TRUE(says(ended.err, "--scale says it")) << ended.err;
  EXPECT_EQ(checked(file, {"--causal", "none", "--scale", "0.25"}).code, 0);
  EXPECT_EQ(checked(file, {"--causal", "none", "--scale", "0.5"}).code, 1);
}

TEST(CheckWords, SaysWhichSizesDoNotFit) {
  AttentionCase call = grouped();
  io::NamedTensors file = dump_of(call, output_of(call));
  file.tensors[2].second = f32(bell({2, 2, 6, 7}, 5));
  const Ended ended = checked(file, {"--causal", "none"});
  EXPECT_EQ(ended.code, 2) << ended.out << ended.err;
  EXPECT_TRUE(says(ended.err, "key and value must have the same S; key has 5, value has 6"))
      << ended.err;
}

// ---- the verdict --------------------------------------------------------------------------------

TEST(CheckWords, ALogarithmToBase2IsNamedWithoutQueryAndKey) {
  const Tensor<double> masked = bell({1, 2, 3, 5}, 6);
  Tensor<double> sums({1, 2, 3});
  for (std::int64_t h = 0; h < 2; ++h) {
    for (std::int64_t i = 0; i < 3; ++i) {
      double sum = 0;
      for (std::int64_t j = 0; j < 5; ++j) sum += std::exp(masked(0, h, i, j));
      sums(0, h, i) = std::log2(sum);
    }
  }
  io::NamedTensors file;
  file.add("masked", f32(masked));
  file.add("lse", f32(sums));
  const Ended ended = checked(file, {"--causal", "none"});
  EXPECT_EQ(ended.code, 1) << ended.out << ended.err;
  EXPECT_TRUE(says(ended.out, "WRONG: label.lse_base2")) << ended.out;
}

TEST(CheckWords, WhatExplainsNothingIsNotCalledNearest) {
  const AttentionCase call = grouped();
  Tensor<double> wrong = output_of(call);
  wrong(0, 1, 2, 3) += 0.3;
  wrong(1, 3, 0, 2) -= 0.2;
  const Ended ended = checked(dump_of(call, wrong), {"--causal", "none"});
  EXPECT_EQ(ended.code, 1) << ended.out;
  EXPECT_FALSE(says(ended.out, "nearest")) << ended.out;
  EXPECT_TRUE(says(ended.out, "the right number: batch0.h1.output[2,3] = ")) << ended.out;
}

TEST(CheckWords, WhereAConventionSaysNothingTheOptionIsNamed) {
  const AttentionCase call = grouped();
  const io::NamedTensors file = dump_of(call, output_of(call));
  const auto err = [&](std::vector<std::string> words) {
    words.insert(words.begin(), "--convention");
    const Ended ended = checked(file, words);
    EXPECT_FALSE(says(ended.err, "own options")) << ended.err;
    return ended.err;
  };
  EXPECT_TRUE(says(err({"ggml", "--causal", "--scale", "1"}), "say --causal top-left"));
  EXPECT_TRUE(says(err({"mlx", "--window", "3,0"}), "say --window LEFT,RIGHT"));
  EXPECT_TRUE(says(err({"mlx", "--causal", "none"}), "--scale says another"));
}

TEST(CheckWords, ANanHasNoNearestMistake) {
  const AttentionCase call = grouped();
  Tensor<double> wrong = output_of(call);
  wrong(0, 1, 2, 3) = std::nan("");
  const Ended ended = checked(dump_of(call, wrong), {"--causal", "none"});
  EXPECT_EQ(ended.code, 1) << ended.out;
  EXPECT_FALSE(says(ended.out, "nearest")) << ended.out;
}

TEST(CheckWords, WithoutAClaimAMistakeIsToldBesideTheReadingThatNeedsIt) {
  const AttentionCase call = grouped();
  AttentionCase wrong = call;
  wrong.scale = 1.0 / 6;  // 1/D
  const ScratchFolder scratch;
  const std::string path = scratch.file("report.html");
  const Ended ended = checked(dump_of(call, output_of(wrong)), {"--html", path});
  EXPECT_EQ(ended.code, 3) << ended.out << ended.err;
  EXPECT_TRUE(says(ended.out, "CANNOT TELL: nothing says what is meant")) << ended.out;
  EXPECT_TRUE(says(ended.out, "with scale.twice it does")) << ended.out;
  const std::string page = read_text(path);
  EXPECT_TRUE(says(page, "<code>scale.twice</code> it does")) << page;
  EXPECT_FALSE(says(checked(dump_of(call, output_of(call)), {}).out, "it does"));
}

TEST(CheckWords, ThePageBeginsWithTheVerdictAndSaysWhatWasAsked) {
  AttentionCase call = grouped();
  call.mask = Mask::causal_top_left();
  const ScratchFolder scratch;
  const std::string path = scratch.file("report.html");
  const Ended ended =
      checked(dump_of(call, output_of(call)),
              {"--causal", "bottom-right", "--alibi-slopes", "0,0,0,0", "--html", path});
  EXPECT_EQ(ended.code, 1) << ended.out << ended.err;
  const std::string page = read_text(path);
  EXPECT_TRUE(says(page, ">WRONG: causal.top_left gives these numbers</h1>")) << page;
  EXPECT_TRUE(says(page, "asked: attest check ")) << page;
  EXPECT_TRUE(says(page, " --causal bottom-right --alibi-slopes 0,0,0,0</li>")) << page;
}

/// A probe's file says what it claims.
io::NamedTensors claimed(io::NamedTensors file) {
  file.metadata.emplace_back("attest.causal", "none");
  return file;
}

TEST(CheckWords, AProbeIsAdvisedOnlyWhereItHelps) {
  AttentionCase call = grouped();
  for (Tensor<double>* each : {&call.key, &call.value}) {  // which head is read cannot be seen
    const std::size_t head = each->size() / 4;
    for (std::size_t n = 0; n < each->size(); ++n) {
      each->data()[n] = each->data()[n % head + n / (2 * head) * 2 * head];
    }
  }
  const io::NamedTensors file = dump_of(call, output_of(call));
  const Ended own = checked(file, {"--causal", "none"});
  EXPECT_TRUE(says(own.out, "`attest probe` they differ")) << own.out;
  const Ended probe = checked(claimed(file), {});
  EXPECT_EQ(probe.code, 0) << probe.out << probe.err;
  EXPECT_FALSE(says(probe.out, "attest probe")) << probe.out;
}

TEST(CheckWords, MistakesThatNoInputOfTheseSizesTellsAreCalledSo) {
  AttentionCase call;  // as many queries as keys: every corner is the same
  call.query = bell({2, 2, 5, 6}, 1);
  call.key = bell({2, 2, 5, 6}, 2);
  call.value = bell({2, 2, 5, 7}, 3);
  call.mask = Mask::causal();
  const Ended ended = checked(dump_of(call, output_of(call)), {"--causal"});
  EXPECT_EQ(ended.code, 0) << ended.out << ended.err;
  EXPECT_TRUE(says(ended.out, "no finite numbers of these sizes would show: ")) << ended.out;
  EXPECT_FALSE(says(ended.out, "attest probe")) << ended.out;
}

TEST(CheckWords, NothingOfTheseSizesTellsTwoNamesOfOneThing) {
  AttentionCase call;  // four queries more than keys: top-left is an offset of 4
  call.query = bell({1, 2, 9, 6}, 1);
  call.key = bell({1, 2, 5, 6}, 2);
  call.value = bell({1, 2, 5, 7}, 3);
  call.mask = Mask::causal_top_left();
  const Ended ended =
      checked(dump_of(call, output_of(call)), {"--causal", "bottom-right", "--empty-row", "zero"});
  EXPECT_EQ(ended.code, 1) << ended.out << ended.err;
  EXPECT_TRUE(says(ended.out, "nothing of these sizes: for all finite numbers")) << ended.out;
  EXPECT_FALSE(says(ended.out, "another input")) << ended.out;
}

TEST(CheckWords, AFittedConstantHasACauseAndWhatToLookFor) {
  const Tensor<double> masked = bell({1, 2, 6, 9}, 7);
  Tensor<double> weights(masked.shape());
  for (std::int64_t h = 0; h < 2; ++h) {
    for (std::int64_t i = 0; i < 6; ++i) {
      double sum = 0;
      for (std::int64_t j = 0; j < 9; ++j) sum += std::exp(1.7 * masked(0, h, i, j));
      for (std::int64_t j = 0; j < 9; ++j) {
        weights(0, h, i, j) = std::exp(1.7 * masked(0, h, i, j)) / sum;
      }
    }
  }
  io::NamedTensors file;
  file.add("masked", f32(masked));
  file.add("weights", f32(weights));
  const Ended ended = checked(file, {"--causal", "none"});
  EXPECT_EQ(ended.code, 1) << ended.out << ended.err;
  EXPECT_TRUE(says(ended.out, "cause       factor of the exponent = 1.7")) << ended.out;
  EXPECT_TRUE(says(ended.out, "look for    everything that multiplies the scores")) << ended.out;
}

TEST(CheckWords, ExplainsAMistakeAsItIsPrinted) {
  const Ended ended = run_attest({"check", "--explain", "scale.other_constant (0.2)"});
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_TRUE(ended.out.starts_with("scale.other_constant\n")) << ended.out;
  // A name that attention and blocks both have is suggested once.
  const Ended unknown = run_attest({"check", "--explain", "rope"});
  EXPECT_EQ(unknown.code, 2);
  std::string word;
  std::set<std::string> seen;
  for (const char c : unknown.err.substr(unknown.err.find("there are")) + ",") {
    if (c != ',') {
      word += c;
      continue;
    }
    EXPECT_TRUE(seen.insert(word).second) << word << " in " << unknown.err;
    word.clear();
  }
  EXPECT_GT(seen.size(), 5U);
}

// ---- what to do instead -------------------------------------------------------------------------

TEST(CheckWords, SuggestsThePrefixOrTheBlock) {
  const AttentionCase call = grouped();
  io::NamedTensors several;
  for (const auto& [name, tensor] : dump_of(call, output_of(call)).tensors) {
    several.add("layer3.attn." + name, tensor);
  }
  const Ended prefixed = checked(several, {"--causal", "none"});
  EXPECT_EQ(prefixed.code, 2);
  EXPECT_TRUE(says(prefixed.err, "--prefix layer3.attn. takes")) << prefixed.err;
  EXPECT_EQ(checked(several, {"--causal", "none", "--prefix", "layer3.attn."}).code, 0);
  io::NamedTensors block;
  block.add("h.0.attn.c_attn.weight", f32(bell({6, 18}, 1)));
  block.add("h.0.mlp.c_fc.weight", f32(bell({6, 24}, 2)));
  block.add("x", f32(bell({3, 6}, 3)));
  const Ended whole = checked(block, {"--causal"});
  EXPECT_EQ(whole.code, 2);
  EXPECT_TRUE(says(whole.err, "transformer block: --block")) << whole.err;
}

TEST(CheckWords, FilesOfTheirOwnAreListed) {
  const AttentionCase call = grouped();
  const ScratchFolder scratch;
  std::vector<std::string> arguments{"check"};
  for (const auto& [name, tensor] : dump_of(call, output_of(call)).tensors) {
    if (name == "output") continue;
    io::NamedTensors alone;
    alone.add(name, tensor);
    const std::string path = scratch.file(name + ".safetensors");
    ASSERT_TRUE(io::write_tensors(path, alone));
    arguments.insert(arguments.end(), {"--" + name, path});
  }
  const Ended ended = run_attest(arguments);
  EXPECT_EQ(ended.code, 2) << ended.out;
  EXPECT_TRUE(says(ended.err, "there is --key ")) << ended.err;
  EXPECT_FALSE(says(ended.err, "there is nothing")) << ended.err;
}

TEST(CheckWords, ACornerThatIsNoneIsOffered) {
  const AttentionCase call = grouped();
  const Ended ended = checked(dump_of(call, output_of(call)), {"--causal", "bottomright"});
  EXPECT_EQ(ended.code, 2);
  EXPECT_TRUE(says(ended.err, "top-left, bottom-right, none or")) << ended.err;
}

}  // namespace
}  // namespace attest::test
