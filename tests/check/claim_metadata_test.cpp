// SPDX-License-Identifier: MIT
// A claim's options survive the way through every format of file, and what is no option is refused.
#include "attest/check/probe/claim_metadata.h"

#include <gtest/gtest.h>

#include "attest/io/tensor_file.h"
#include "run_program.h"

namespace attest::test {
namespace {

using check::ClaimWords;

/// Every option said.
ClaimWords full() {
  return {.convention = "pytorch-sdpa",
          .layout = "packed",
          .heads = 6,
          .kv_heads = 2,
          .causal = "bottom-right",
          .window = "3,",
          .query_offset = {4, -2},
          .scale = 0.1,
          .softcap = 1e-300,
          .alibi = true,
          .dropout = 0.25,
          .seed = UINT64_MAX,
          .empty_row = "zero",
          .precision = "bf16",
          .rope = "interleaved",
          .rope_dim = 8,
          .rope_base = 5e5,
          .past = 7};
}

io::NamedTensors with_metadata(const std::string& name, const std::string& text) {
  io::NamedTensors file;
  file.metadata.emplace_back(name, text);
  return file;
}

TEST(ClaimMetadata, SurvivesEveryFormat) {
  const ScratchFolder scratch;
  for (const char* name : {"probe.safetensors", "probe.json"}) {
    io::NamedTensors file;
    file.add("query", Tensor<double>({1, 2}));
    write_claim(full(), file);
    ASSERT_TRUE(io::write_tensors(scratch.file(name), file)) << name;
    EXPECT_EQ(check::read_claim(io::read_tensors(scratch.file(name)).value()).value(), full())
        << name;
  }
  io::NamedTensors file;
  write_claim_as_tensor(full(), file);
  ASSERT_TRUE(io::write_tensors(scratch.file("probe.npz"), file));
  EXPECT_EQ(check::read_claim(io::read_tensors(scratch.file("probe.npz")).value()).value(), full());
}

TEST(ClaimMetadata, EveryOptionIsWrittenUnderItsFlag) {
  const auto texts = texts_of(full());
  EXPECT_EQ(texts.size(), 18u);
  for (const auto& [name, text] : texts) {
    EXPECT_EQ(name.find('_'), std::string::npos) << name;
    const std::pair<std::string, std::string> one[] = {{name, text}};
    EXPECT_EQ(texts_of(check::claim_of(one).value()).at(0), one[0]);
  }
}

TEST(ClaimMetadata, NothingSaidIsNothingWritten) {
  io::NamedTensors file;
  check::write_claim({}, file);
  check::write_claim_as_tensor({}, file);
  EXPECT_TRUE(file.metadata.empty());
  EXPECT_TRUE(file.tensors.empty());
  file.metadata.emplace_back("format", "pt");
  file.metadata.emplace_back("attest.made_by", "attest probe");
  EXPECT_EQ(check::read_claim(file).value(), ClaimWords{});
}

TEST(ClaimMetadata, RefusesWhatNoOptionSays) {
  const std::pair<const char*, const char*> wrong[] = {
      {"attest.casual", "top-left"},  {"attest.causal", "topleft"},  {"attest.causal", ""},
      {"attest.window", "3,x"},       {"attest.window", ""},         {"attest.scale", "0.1x"},
      {"attest.scale", "inf"},        {"attest.alibi", "maybe"},     {"attest.seed", "-1"},
      {"attest.convention", "torch"}, {"attest.query_offset", "3,"}, {"attest.rope", "pairs"},
      {"attest.precision", "i8"},     {"attest.empty_row", "one"},   {"attest.layout", "bhdt"},
      {"attest.heads", "6.5"},        {"attest.dropout", "nan"},     {"attest.", "1"}};
  for (const auto& [name, text] : wrong) {
    const auto claim = check::read_claim(with_metadata(name, text));
    ASSERT_FALSE(claim) << name << " = " << text;
    EXPECT_EQ(claim.failure().id, "bad-claim");
    EXPECT_NE(claim.failure().message.find(name), std::string::npos) << claim.failure().message;
  }
}

TEST(ClaimMetadata, RefusesTwoClaimsInOneFile) {
  io::NamedTensors file = with_metadata("attest.causal", "square");
  check::write_claim_as_tensor({.softcap = 3}, file);
  EXPECT_EQ(check::read_claim(file).failure().id, "bad-claim");
  const std::pair<std::string, std::string> twice[] = {{"rope-dim", "4"}, {"rope_dim", "6"}};
  EXPECT_EQ(check::claim_of(twice).failure().id, "bad-claim");
}

TEST(ClaimMetadata, RefusesATensorThatIsNoText) {
  io::NamedTensors numbers;
  numbers.add("attest_claim", Tensor<double>({3}));
  EXPECT_EQ(check::read_claim(numbers).failure().id, "bad-claim");
  io::NamedTensors line;
  line.add("attest_claim", Tensor<std::uint8_t>({3}));
  EXPECT_EQ(check::read_claim(line).failure().id, "bad-claim");
}

}  // namespace
}  // namespace attest::test
