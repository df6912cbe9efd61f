// SPDX-License-Identifier: MIT
// attest attend --compare: the report, its JSON, and how the command ends.
#include <gtest/gtest.h>

#include <algorithm>

#include "attest/base/random.h"
#include "attest/io/json.h"
#include "attest/io/tensor_file.h"
#include "attest/linalg/isa.h"
#include "run_program.h"

namespace attest::test {
namespace {

std::string dump(const ScratchFolder& scratch, const Shape& query, const Shape& key,
                 DType dtype = DType::f32) {
  Random random(1);
  io::NamedTensors file;
  for (const auto& [name, shape] : {std::pair("query", query), {"key", key}, {"value", key}}) {
    Tensor<double> numbers(shape);
    for (double& x : numbers.elements()) x = random.bell();
    file.add(name, AnyTensor::from_f64(numbers, dtype));
  }
  std::string path = scratch.file("dump.safetensors");
  EXPECT_TRUE(io::write_tensors(path, file));
  return path;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(Compare, RunsEveryTierAndSetAndStatesErrorAndBound) {
  const ScratchFolder scratch;
  const std::string path = dump(scratch, {1, 4, 5, 8}, {1, 2, 7, 8});
  const Ended ended = run_attest({"attend", path, "--compare", "--causal", "bottom-right"});
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(ended.err, "");
  for (const char* part :
       {"B 1  H 4  G 2  T 5  S 7  D 8  E 8  in f32; all 20 rows", " error ", " bound ", " used at ",
        "exact ", "oracle", "plain loop", "same bits", "within", ".output[", "match: "}) {
    EXPECT_TRUE(contains(ended.out, part)) << part << "\n" << ended.out;
  }
  for (const IsaState& set : instruction_sets()) {
    EXPECT_EQ(contains(ended.out, "engine " + std::string(name_of(set.isa)) + " "), set.present)
        << ended.out;
  }
}

TEST(Compare, JsonHoldsEveryNumber) {
  const ScratchFolder scratch;
  const std::string path = dump(scratch, {5, 8}, {7, 8}, DType::bf16);
  const Ended ended =
      run_attest({"attend", path, "--compare", "--json", "--isa", "portable", "--threads", "3"});
  EXPECT_EQ(ended.code, 0) << ended.err;
  const auto report = io::parse_json(ended.out, "report");
  ASSERT_TRUE(report) << ended.out;
  EXPECT_EQ(*report->find("verdict")->string_if(), "match");
  EXPECT_EQ(*report->find("dtype")->string_if(), "bf16");
  EXPECT_EQ(*report->find("rows_compared")->integer_if(), 5);
  EXPECT_EQ(*report->find("threads")->items()[1].integer_if(), 3);
  const auto tiers = report->find("tiers")->items();
  ASSERT_EQ(tiers.size(), 3U);
  EXPECT_EQ(*tiers[2].find("tier")->string_if(), "engine portable");
  const auto& output = tiers[2].find("stages")->items()[0];
  EXPECT_EQ(*output.find("numbers")->integer_if(), 40);
  EXPECT_GT(*output.find("largest_error")->double_if(), 0);
  EXPECT_GT(*output.find("bound_there")->double_if(), *output.find("largest_error")->double_if());
  EXPECT_LE(*output.find("used")->double_if(), 1);
}

TEST(Compare, LargeCallsAreSampledAndItSaysSo) {
  const ScratchFolder scratch;
  const std::string path = dump(scratch, {1, 2, 64, 8}, {1, 2, 64, 8});
  const Ended ended = run_attest({"attend", path, "--compare", "--rows", "7"});
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_TRUE(contains(ended.out, "; 7 of 128 rows against the exact tier")) << ended.out;
}

TEST(Compare, EndsWithThreeIfNothingIsPromised) {
  const ScratchFolder scratch;
  write_text(scratch.file("nan.json"),
             R"({"query": {"dtype": "f32", "shape": [1, 1], "data": ["nan"]},
                 "key": {"dtype": "f32", "shape": [1, 1], "data": [1]},
                 "value": {"dtype": "f32", "shape": [1, 1], "data": [1]}})");
  const Ended ended = run_attest({"attend", scratch.file("nan.json"), "--compare"});
  EXPECT_EQ(ended.code, 3) << ended.out << ended.err;
  EXPECT_TRUE(contains(ended.out, "undecided: ")) << ended.out;
}

TEST(Compare, ADumpOfMixedTypesIsComparedInOneThatHoldsThem) {
  const ScratchFolder scratch;
  const std::string path = dump(scratch, {5, 8}, {7, 8}, DType::f16);
  io::NamedTensors file = io::read_tensors(path).value();
  file.tensors[0].second =
      AnyTensor::from_f64(file.tensors[0].second.to_f64("query").value(), DType::f32);
  ASSERT_TRUE(io::write_tensors(path, file));
  const Ended ended = run_attest({"attend", path, "--compare"});
  EXPECT_EQ(ended.code, 0);
  EXPECT_TRUE(contains(ended.out, " in f32; ")) << ended.out;
  EXPECT_TRUE(contains(ended.err, "note: comparing in f32: query is f32, key f16")) << ended.err;
}

TEST(Compare, OneThreadIsComparedWithNothing) {
  const ScratchFolder scratch;
  const std::string path = dump(scratch, {5, 8}, {7, 8});
  const Ended ended = run_attest({"attend", path, "--compare", "--threads", "1"});
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_TRUE(contains(ended.out, "numbers of threads were not compared")) << ended.out;
  EXPECT_FALSE(contains(ended.out, "same bits")) << ended.out;
  EXPECT_FALSE(contains(ended.out, "change no bit")) << ended.out;
  const Ended json = run_attest({"attend", path, "--compare", "--threads", "1", "--json"});
  const auto report = io::parse_json(json.out, "report");
  ASSERT_TRUE(report) << json.out;
  EXPECT_EQ(report->find("threads")->items().size(), 1U);
  EXPECT_TRUE(report->find("tiers")->items().back().find("same_bits")->is(io::Json::Kind::null));
}

TEST(Compare, HeadsWiderThanTheEngineTakesAreComparedWithoutIt) {
  const ScratchFolder scratch;
  const std::string path = dump(scratch, {2, 513}, {2, 513});
  const Ended ended = run_attest({"attend", path, "--compare"});
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_TRUE(contains(ended.out, "not run: its heads have 512 numbers at most")) << ended.out;
  EXPECT_TRUE(contains(ended.out, "match: ")) << ended.out;
}

TEST(Compare, AnEmptyRowIsToldInTheWordsOfTheCommandLine) {
  const ScratchFolder scratch;
  const std::string path = dump(scratch, {2, 3}, {2, 3});
  for (const char* tier : {"--compare", "--engine", "--exact", "--oracle"}) {
    const Ended ended = run_attest({"attend", path, "--causal", "-1", tier});
    EXPECT_EQ(ended.code, 2);
    EXPECT_TRUE(ended.err.starts_with("error no-visible-key: ")) << ended.err;
    EXPECT_TRUE(contains(ended.err, "--empty-row zero")) << ended.err;
    EXPECT_FALSE(contains(ended.err, "EmptyRow")) << ended.err;
    EXPECT_EQ(contains(ended.err, "oracle"), std::string(tier) == "--oracle") << ended.err;
  }
}

TEST(Compare, RefusesWhatItWouldIgnore) {
  const ScratchFolder scratch;
  const std::string path = dump(scratch, {5, 8}, {7, 8});
  const std::vector<std::vector<std::string>> wrong = {{"--compare", "--exact"},
                                                       {"--compare", "--engine"},
                                                       {"--compare", "--oracle"},
                                                       {"--compare", "--weights"},
                                                       {"--compare", "--lse"},
                                                       {"--compare", "--out", "x.npz"},
                                                       {"--compare", "--full"},
                                                       {"--compare", "--digits", "3"},
                                                       {"--compare", "--dtype", "f32"},
                                                       {"--json"},
                                                       {"--rows", "3"},
                                                       {"--compare", "--rows", "0"},
                                                       {"--exact", "--engine"},
                                                       {"--oracle", "--engine"},
                                                       {"--exact", "--oracle"},
                                                       {"--exact", "--isa", "avx2"},
                                                       {"--oracle", "--threads", "2"},
                                                       {"--threads", "0"},
                                                       {"--threads", "1025"},
                                                       {"--isa", ""}};
  for (std::vector<std::string> arguments : wrong) {
    const std::string shown = arguments[0] + " " + arguments.back();
    arguments.insert(arguments.begin(), {"attend", path});
    const Ended ended = run_attest(arguments);
    EXPECT_EQ(ended.code, 2) << shown;
    EXPECT_EQ(ended.out, "") << shown;
    EXPECT_TRUE(ended.err.starts_with("error usage: ")) << shown << ": " << ended.err;
    EXPECT_EQ(std::count(ended.err.begin(), ended.err.end(), '\n'), 1) << ended.err;
  }
  for (const char* tier : {"--compare", "--engine"}) {
    const Ended ended = run_attest({"attend", path, tier, "--isa", "avx9"});
    EXPECT_EQ(ended.code, 2);
    EXPECT_TRUE(ended.err.starts_with("error bad-isa: ")) << ended.err;
    EXPECT_TRUE(contains(ended.err, "it has portable")) << ended.err;
  }
  EXPECT_EQ(run_attest({"attend", path, "--compare", "--causal"}).code, 2);
}

}  // namespace
}  // namespace attest::test
