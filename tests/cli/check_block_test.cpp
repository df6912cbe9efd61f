// SPDX-License-Identifier: MIT
// attest check --block: a whole transformer block by its named tensors.
#include <gtest/gtest.h>

#include "check_dumps.h"
#include "tests/check/block_dumps.h"

namespace attest::test {
namespace {

BlockConfig config() { return three_heads(17, Activation::relu); }

/// A block in our own names, matrices input × output, made with these mistakes.
io::NamedTensors block_file(const Mistakes& mistakes) {
  Random random(11);
  const BlockConfig c = config();
  const BlockWeights<double> w = drawn_weights(random, c);
  const BlockRows x = drawn_rows(random, 9, c.model_dim);
  const check::BlockDump dump = dump_of(c, w, x, mistakes);
  io::NamedTensors file;
  const std::pair<const char*, const Tensor<double>*> all[] = {
      {"query_weight", &w.query_weight},   {"query_bias", &w.query_bias},
      {"key_weight", &w.key_weight},       {"key_bias", &w.key_bias},
      {"value_weight", &w.value_weight},   {"value_bias", &w.value_bias},
      {"output_weight", &w.output_weight}, {"output_bias", &w.output_bias},
      {"norm1_gain", &w.norm1_gain},       {"norm1_bias", &w.norm1_bias},
      {"norm2_gain", &w.norm2_gain},       {"norm2_bias", &w.norm2_bias},
      {"up_weight", &w.up_weight},         {"up_bias", &w.up_bias},
      {"down_weight", &w.down_weight},     {"down_bias", &w.down_bias}};
  for (const auto& [name, tensor] : all) {
    if (tensor->size() > 0) file.add(name, f32(*tensor));
  }
  file.add("x", f32(dump.x));
  file.add("residual1", f32(dump.stages.at(check::BlockStage::residual1).values));
  file.add("output", f32(dump.stages.at(check::BlockStage::output).values));
  return file;
}

const std::vector<std::string> claim{
    "--block", "--heads",      "3",    "--placement", "pre",           "--norm",
    "layer",   "--activation", "relu", "--causal",    "--weights-are", "input-output"};

std::vector<std::string> with(std::vector<std::string> more) {
  more.insert(more.begin(), claim.begin(), claim.end());
  return more;
}

TEST(CheckBlock, ClearsARightBlockAndNamesAWrongOne) {
  const Ended right = checked(block_file({}), claim);
  EXPECT_EQ(right.code, 0) << right.out << right.err;
  EXPECT_TRUE(says(right.out, "a block of 9 rows: C 12, H 3")) << right.out;
  const Ended wrong = checked(block_file({{"block.residual1_missing", 0}}), claim);
  EXPECT_EQ(wrong.code, 1) << wrong.out << wrong.err;
  EXPECT_TRUE(says(wrong.out, "residual")) << wrong.out;
}

TEST(CheckBlock, SaysWhatWasNotSaid) {
  const std::vector<std::string> little{"--block", "--heads", "3", "--weights-are", "input-output"};
  const Ended right = checked(block_file({}), little);
  EXPECT_EQ(right.code, 0) << right.out << right.err;
  EXPECT_TRUE(says(right.out,
                   "RIGHT, if it is meant so: you did not say the activation; these numbers are "
                   "relu"))
      << right.out;
  EXPECT_TRUE(says(right.out, "--activation relu")) << right.out;
  EXPECT_TRUE(says(right.err, "assumed: the activation is GELU")) << right.err;
  std::vector<std::string> said = little;
  said.insert(said.end(), {"--activation", "relu"});
  EXPECT_EQ(checked(block_file({}), said).code, 0);
  const Ended wrong = checked(block_file({{"block.residual1_missing", 0}}), said);
  EXPECT_EQ(wrong.code, 1) << wrong.out;
}

TEST(CheckBlock, ListsTheRolesThatThereAre) {
  const Ended ended = checked(block_file({}), with({"--name", "foo=x"}));
  EXPECT_EQ(ended.code, 2);
  EXPECT_TRUE(says(ended.err, "there is no role foo")) << ended.err;
  EXPECT_TRUE(says(ended.err, "query_weight, ")) << ended.err;
  EXPECT_TRUE(says(ended.err, "projection.qkv")) << ended.err;
  EXPECT_TRUE(says(run_attest({"check", "--help"}).out, "projection.qkv"));
}

TEST(CheckBlock, RefusesWhatOnlyAttentionHas) {
  const io::NamedTensors file = block_file({});
  for (const std::vector<std::string>& other : {std::vector<std::string>{"--window", "1,0"},
                                                {"--causal", "bottom-right"},
                                                {"--output", "output"},
                                                {"--name", "x"},
                                                {"--convention", "jax"}}) {
    EXPECT_EQ(checked(file, with(other)).code, 2) << other[0];
  }
  EXPECT_EQ(checked(file, {"--norm", "rms", "--causal"}).code, 2);  // no --block
  EXPECT_EQ(run_attest({"check", "--block"}).code, 2);
}

}  // namespace
}  // namespace attest::test
