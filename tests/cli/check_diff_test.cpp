// SPDX-License-Identifier: MIT
// attest diff --stages: where two implementations part, and what the second did there.
#include <gtest/gtest.h>

#include <cmath>

#include "attest/io/json.h"
#include "check_dumps.h"

namespace attest::test {
namespace {

/// Scores, weights and output of a call, each in f32, as an implementation would dump them.
io::NamedTensors stages_of(const AttentionCase& call, const Mask& mask) {
  AttentionCase meant = call;
  meant.mask = mask;
  const auto result = lab::attention(meant.inputs(), meant.options()).value();
  const std::int64_t T = call.query.extent(2), S = call.key.extent(2);
  Tensor<double> scaled({2, 4, T, S});
  for (std::int64_t b = 0; b < 2; ++b) {
    for (std::int64_t h = 0; h < 4; ++h) {
      for (std::int64_t i = 0; i < T; ++i) {
        for (std::int64_t j = 0; j < S; ++j) {
          double dot = 0;
          for (std::int64_t d = 0; d < 6; ++d)
            dot += call.query(b, h, i, d) * call.key(b, h / 2, j, d);
          scaled(b, h, i, j) = dot / std::sqrt(6.0);
        }
      }
    }
  }
  io::NamedTensors file = dump_of(call, result.output);
  file.add("scaled", f32(scaled));
  file.add("weights", f32(result.weights));
  return file;
}

Ended diffed(const io::NamedTensors& first, const io::NamedTensors& second,
             std::vector<std::string> more = {}) {
  const ScratchFolder scratch;
  EXPECT_TRUE(io::write_tensors(scratch.file("a.safetensors"), first));
  EXPECT_TRUE(io::write_tensors(scratch.file("b.safetensors"), second));
  more.insert(more.begin(),
              {"diff", "--stages", scratch.file("a.safetensors"), scratch.file("b.safetensors")});
  return run_attest(more);
}

TEST(DiffStages, RoundingIsNoDifference) {
  const AttentionCase call = grouped();
  const io::NamedTensors first = stages_of(call, Mask::causal_bottom_right());
  io::NamedTensors second = first;
  Tensor<double> output = second.find("output")->to_f64("output").value();
  for (double& x : output.elements()) x *= 1 + 0x1p-23;
  second.tensors[3].second = f32(output);
  const Ended ended = diffed(first, second, {"--causal", "bottom-right"});
  EXPECT_EQ(ended.code, 0) << ended.out << ended.err;
}

TEST(DiffStages, NumbersOfF32InF64DifferByRoundingAlone) {
  const AttentionCase call = grouped();
  const auto wide = [&](double factor) {
    Tensor<double> output = output_of(call);
    for (double& x : output.elements()) x = static_cast<float>(x * factor);
    io::NamedTensors file;
    file.add("query", AnyTensor::from_f64(call.query, DType::f64));
    file.add("key", AnyTensor::from_f64(call.key, DType::f64));
    file.add("value", AnyTensor::from_f64(call.value, DType::f64));
    file.add("output", AnyTensor::from_f64(output, DType::f64));
    return file;
  };
  const Ended same = diffed(wide(1), wide(1 + 0x1p-23), {"--causal", "none"});
  EXPECT_EQ(same.code, 0) << same.out << same.err;
  EXPECT_EQ(diffed(wide(1), wide(1.001), {"--causal", "none"}).code, 1);
}

TEST(DiffStages, InputsThatDifferAreNoMatch) {
  const AttentionCase call = grouped();
  const io::NamedTensors first = dump_of(call, output_of(call));
  io::NamedTensors second = first;
  AttentionCase other = call;
  other.key(1, 0, 2, 3) += 0.5;
  second.tensors[1].second = f32(other.key);
  const Ended ended = diffed(first, second, {"--causal", "none"});
  EXPECT_EQ(ended.code, 1) << ended.out << ended.err;
  EXPECT_TRUE(says(ended.out, "the inputs differ, key first")) << ended.out;
  EXPECT_TRUE(says(ended.out, "key[1,0,2,3]")) << ended.out;
  const auto json = io::parse_json(diffed(first, second, {"--causal", "none", "--json"}).out, "o");
  ASSERT_TRUE(json) << json.failure().message;
  EXPECT_EQ(*json->find("first_different")->string_if(), "key");
  ASSERT_NE(json->find("inputs"), nullptr);
  EXPECT_EQ(json->find("inputs")->items().size(), 3U);
  // Other masks are other inputs too.
  io::NamedTensors masked = first, unmasked = first;
  Tensor<bool> mask({1, 1, 3, 5});
  for (bool& each : mask.elements()) each = true;
  masked.add("mask", mask);
  mask(0, 0, 1, 2) = false;
  unmasked.add("mask", mask);
  const Ended by_mask = diffed(masked, unmasked, {"--causal", "none"});
  EXPECT_EQ(by_mask.code, 1) << by_mask.out;
  EXPECT_TRUE(says(by_mask.out, "mask[0,0,1,2]")) << by_mask.out;
}

TEST(DiffStages, WhatOneDumpAloneHoldsIsSaid) {
  const AttentionCase call = grouped();
  const io::NamedTensors bare = dump_of(call, output_of(call));
  io::NamedTensors masked = bare, biased = bare, padded = bare;
  Tensor<bool> mask({1, 1, 3, 5});
  for (bool& each : mask.elements()) each = true;
  masked.add("mask", mask);
  biased.add("bias", f32(Tensor<double>({1, 1, 3, 5})));
  padded.add("key_lengths", Tensor<std::int64_t>({2}, std::vector<std::int64_t>{5, 5}));
  const Ended ended = diffed(bare, masked, {"--causal", "none"});
  EXPECT_EQ(ended.code, 0) << ended.out << ended.err;
  EXPECT_TRUE(says(ended.out, "mask is in the second dump alone: whether the first was given it"))
      << ended.out;
  const Ended other = diffed(biased, bare, {"--causal", "none"});
  EXPECT_TRUE(says(other.out, "bias is in the first dump alone: whether the second was given it"))
      << other.out;
  EXPECT_TRUE(says(diffed(padded, bare).out, "key_lengths is in the first dump alone"));
  EXPECT_FALSE(says(diffed(masked, masked, {"--causal", "none"}).out, " alone"));
  const auto json = io::parse_json(diffed(bare, masked, {"--causal", "none", "--json"}).out, "o");
  ASSERT_TRUE(json) << json.failure().message;
  EXPECT_EQ(*json->find("inputs")->items().back().find("alone_in")->string_if(), "second");
}

TEST(DiffStages, LengthsThatDifferAreOtherInputs) {
  const AttentionCase call = grouped();
  const auto of = [&](std::int64_t last) {
    io::NamedTensors file = dump_of(call, output_of(call));
    file.add("key_lengths", Tensor<std::int64_t>({2}, std::vector<std::int64_t>{5, last}));
    return file;
  };
  EXPECT_EQ(diffed(of(5), of(5)).code, 0);
  const Ended ended = diffed(of(5), of(4));
  EXPECT_EQ(ended.code, 1) << ended.out << ended.err;
  EXPECT_TRUE(says(ended.out, "the inputs differ, key_lengths first")) << ended.out;
}

TEST(DiffStages, NamesTheFirstStageAndWhatTheSecondDid) {
  const AttentionCase call = grouped();
  const io::NamedTensors first = stages_of(call, Mask::causal_bottom_right());
  const io::NamedTensors second = stages_of(call, Mask::causal_top_left());
  for (const std::vector<std::string>& claim :
       {std::vector<std::string>{"--causal", "bottom-right"}, {}}) {
    const Ended ended = diffed(first, second, claim);
    EXPECT_EQ(ended.code, 1) << ended.out << ended.err;
    EXPECT_TRUE(says(ended.out, "first stage that differs: weights")) << ended.out;
    EXPECT_TRUE(says(ended.out, "causal.top_left")) << ended.out;
  }
  std::vector<std::string> json{"--causal", "bottom-right", "--json"};
  const auto report = io::parse_json(diffed(first, second, json).out, "out");
  ASSERT_TRUE(report) << report.failure().message;
  EXPECT_EQ(*report->find("first_different")->string_if(), "weights");
  EXPECT_NE(report->find("diagnosis"), nullptr);
}

TEST(DiffStages, RefusesDumpsThatHaveNothingInCommon) {
  const AttentionCase call = grouped();
  const io::NamedTensors first = stages_of(call, Mask::causal_bottom_right());
  io::NamedTensors weights;
  for (const auto& [name, tensor] : first.tensors) {
    if (name != "output" && name != "scaled") weights.add(name, tensor);
  }
  const Ended ended = diffed(dump_of(call, output_of(call)), weights, {"--causal", "none"});
  EXPECT_EQ(ended.code, 2) << ended.out;
  EXPECT_TRUE(says(ended.err, "no stage in common")) << ended.err;
  EXPECT_EQ(diffed(first, first, {"--abs", "1"}).code, 2);
}

}  // namespace
}  // namespace attest::test
