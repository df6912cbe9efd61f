// SPDX-License-Identifier: MIT
// attest demo and attest exact: the workbook on the command line, and what its edge refuses.
#include <gtest/gtest.h>

#include <algorithm>

#include "run_program.h"

namespace attest::test {
namespace {

/// One line in, one line out.
std::string answer(const std::string& operation, const std::string& line) {
  const Ended ended = run_attest({"exact", operation}, line + "\n");
  EXPECT_EQ(ended.err, "") << line;
  return ended.out;
}

/// The id of the error that a line is answered with, or "" if it is answered.
std::string error_of(const std::string& operation, const std::string& line) {
  const std::string out = answer(operation, line);
  const std::string begin = "{\"error\": {\"id\": \"";
  if (!out.starts_with(begin)) return "";
  return out.substr(begin.size(), out.find('"', begin.size()) - begin.size());
}

TEST(Demo, PrintsTheWorkbooksListingByteForByte) {
  const Ended ended = run_attest({"demo"});
  EXPECT_EQ(ended.code, 0);
  EXPECT_EQ(ended.out, read_text(ATTEST_SOURCE_DIR "/tests/golden/demo_output.txt"));
  EXPECT_NE(ended.out, "");
}

TEST(Exact, AnswersEachOperation) {
  EXPECT_EQ(answer("matmul", R"({"left": [[1, 2]], "right": [[3, 4], [5, 6]]})"),
            "{\"product\": [[13.0, 16.0]]}\n");
  EXPECT_EQ(answer("softmax", R"({"scores": [10000, 10000, null]})"),
            "{\"weights\": [0.5, 0.5, 0.0]}\n");
  EXPECT_EQ(
      answer(
          "attention",
          R"({"query": [[1,0],[0,1]], "key": [[1,0],[0,1]], "value": [[10,0],[0,20]], "allow": [[true,false],[true,true]]})"),
      answer(
          "attention",
          R"({"query": [[1,0],[0,1]], "key": [[1,0],[0,1]], "value": [[10,0],[0,20]], "causal": true})"));
  EXPECT_EQ(answer("block", R"({"rows": [[1, 2, 3, 4]]})").substr(0, 12), "{\"output\": [");
}

TEST(Exact, PrintsShortestRoundTripNumbers) {
  EXPECT_EQ(answer("matmul", R"({"left": [[0.1]], "right": [[3]]})"),
            "{\"product\": [[0.30000000000000004]]}\n");
  EXPECT_EQ(answer("softmax", R"({"scores": [0, -0.7071067811865475]})"),
            "{\"weights\": [0.6697615493266569, 0.3302384506733431]}\n");
}

TEST(Exact, IgnoresRecordedAnswersAndRefusesUnknownKeys) {
  EXPECT_EQ(
      answer("matmul", R"({"op": "x", "expect": 1, "error": true, "left": [[2]], "right": [[3]]})"),
      "{\"product\": [[6.0]]}\n");
  EXPECT_EQ(error_of("matmul", R"({"left": [[2]], "right": [[3]], "extra": 1})"), "unknown-key");
  EXPECT_EQ(error_of("softmax", R"({"scores": [1], "causal": true})"), "unknown-key");
}

TEST(Exact, GoesOnAfterAnErrorAndSaysSoInItsExitCode) {
  const Ended ended =
      run_attest({"exact", "matmul"}, "not json\n{\"left\":[[1]],\"right\":[[1]]}\n\n[]\n");
  EXPECT_EQ(ended.code, 2);
  EXPECT_NE(ended.out.find("{\"product\": [[1.0]]}\n"), std::string::npos) << ended.out;
  EXPECT_EQ(std::count(ended.out.begin(), ended.out.end(), '\n'), 3) << ended.out;
  EXPECT_EQ(run_attest({"exact", "matmul"}, "{\"left\":[[1]],\"right\":[[1]]}").code, 0);
}

TEST(Exact, RefusesWhatPythonsTypesWouldLetThrough) {
  const char* bad[] = {R"([[true, 0]])",   R"([["1", 0]])", R"([[null, 0]])",
                       R"([1, 2])",        R"("rows")",     R"(null)",
                       R"([[1], [1, 2]])", R"({})",         R"([[[1]]])"};
  for (const char* matrix : bad) {
    const std::string line = std::string(R"({"right": [[1],[2]], "left": )") + matrix + "}";
    const std::string id = error_of("matmul", line);
    EXPECT_TRUE(id == "bad-type" || id == "ragged-rows") << line << " gave " << id;
  }
  EXPECT_EQ(error_of("matmul", R"({"left": [[1e7]], "right": [[1]]})"), "bad-matrix");
  EXPECT_EQ(error_of("matmul", R"({"left": [[123456789012345678901234567890]], "right": [[1]]})"),
            "bad-matrix");
  EXPECT_EQ(error_of("matmul", R"({"left": [[1e999]], "right": [[1]]})"), "bad-number");
  EXPECT_EQ(error_of("matmul", R"({"left": [[NaN]], "right": [[1]]})"), "bad-number");
  EXPECT_EQ(error_of("matmul", R"({"left": [], "right": [[1]]})"), "bad-matrix");
  EXPECT_EQ(error_of("matmul", R"({"left": [[]], "right": [[1]]})"), "bad-matrix");
  EXPECT_EQ(error_of("matmul", R"({"left": [[1, 2]], "right": [[1]]})"), "shape-mismatch");
  EXPECT_EQ(error_of("matmul", R"({"left": [[1, 2]]})"), "missing-key");
  EXPECT_EQ(error_of("matmul", R"({"left": [[1]], "left": [[2]], "right": [[1]]})"),
            "duplicate-key");
}

TEST(Exact, NamesTheArgumentAndTheIndex) {
  const std::string out = answer("matmul", R"({"left": [[1, 2], [3, true]], "right": [[1],[2]]})");
  EXPECT_NE(out.find("left[1,1]"), std::string::npos) << out;
  const std::string mask =
      answer("attention", R"({"query": [[1]], "key": [[1]], "value": [[1]], "allow": [[1]]})");
  EXPECT_NE(mask.find("allow[0,0]"), std::string::npos) << mask;
}

TEST(Exact, RefusesWrongMasks) {
  const std::string inputs = R"("query": [[1],[2]], "key": [[1],[2]], "value": [[1],[2]])";
  const auto with = [&](const std::string& rest) { return "{" + inputs + ", " + rest + "}"; };
  EXPECT_EQ(error_of("attention", with(R"("allow": [[1, 1], [1, 1]])")), "bad-type");
  EXPECT_EQ(error_of("attention", with(R"("allow": [[true]])")), "bad-allow");
  EXPECT_EQ(error_of("attention", with(R"("allow": "all")")), "bad-type");
  EXPECT_EQ(error_of("attention", with(R"("causal": 1)")), "bad-type");
  EXPECT_EQ(error_of("attention", with(R"("causal": null)")), "bad-type");
  EXPECT_EQ(
      error_of("attention", with(R"("allow": [[false, true], [true, true]], "causal": true)")),
      "no-visible-key");
  EXPECT_EQ(error_of("attention", with(R"("allow": null)")), "");
}

TEST(Exact, RefusesScoresThatMakeNoDistribution) {
  EXPECT_EQ(error_of("softmax", R"({"scores": [null, null]})"), "no-visible-key");
  EXPECT_EQ(error_of("softmax", R"({"scores": []})"), "bad-scores");
  EXPECT_EQ(error_of("softmax", R"({"scores": [[1]]})"), "bad-type");
}

TEST(Exact, BlockTakesItsParametersFromTheLine) {
  const std::string rows = R"("rows": [[1, 2, 3, 5], [2, 0, 1, -1]])";
  const std::string plain = answer("block", "{" + rows + "}");
  EXPECT_NE(plain, answer("block", "{" + rows + R"(, "epsilon": 1})"));
  EXPECT_NE(plain, answer("block", "{" + rows + R"(, "causal": false})"));
  EXPECT_EQ(error_of("block", "{" + rows + R"(, "epsilon": 0})"), "bad-value");
  EXPECT_EQ(error_of("block", R"({"rows": [[1, 2, 3]]})"), "block-width");
  EXPECT_EQ(error_of("block", "{" + rows + R"(, "WO": [[1, 2]]})"), "shape-mismatch");
}

TEST(Exact, RefusesUnknownOperations) {
  const Ended ended = run_attest({"exact", "conv"}, "");
  EXPECT_EQ(ended.code, 2);
  EXPECT_EQ(ended.out, "");
  EXPECT_TRUE(ended.err.starts_with("error unknown-operation: ")) << ended.err;
}

TEST(Command, UsageErrorsAreOneSentenceAndExitTwo) {
  const std::vector<std::vector<std::string>> wrong = {
      {}, {"nonsense"}, {"demo", "--frobnicate"}, {"why"}, {"attend", "--digits", "x"}};
  for (const auto& arguments : wrong) {
    const Ended ended = run_attest(arguments);
    EXPECT_EQ(ended.code, 2);
    EXPECT_EQ(ended.out, "");
    EXPECT_TRUE(ended.err.starts_with("error usage: ")) << ended.err;
    EXPECT_EQ(std::count(ended.err.begin(), ended.err.end(), '\n'), 1) << ended.err;
  }
}

TEST(Command, HelpIsThereForEveryCommandWithExamples) {
  EXPECT_EQ(run_attest({"--version"}).out.substr(0, 7), "attest ");
  for (const char* command : {"demo", "exact", "attend", "trace", "why", "diff", "verify"}) {
    const Ended ended = run_attest({command, "--help"});
    EXPECT_EQ(ended.code, 0) << command;
    EXPECT_NE(ended.out.find("Examples:"), std::string::npos) << command;
  }
}

}  // namespace
}  // namespace attest::test
