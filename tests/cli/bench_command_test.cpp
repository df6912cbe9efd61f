// SPDX-License-Identifier: MIT
// attest bench as a command: its list, the forms of its report for the smallest row, and what it
// refuses. Times are not judged here.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "attest/io/json.h"
#include "run_program.h"

namespace attest::test {
namespace {

const char* const smallest = "1x2x16x16 full f32 forward";

/// Measures the smallest row, quickly.
Ended measured(std::vector<std::string> more) {
  std::vector<std::string> arguments{"bench", "--rows",    smallest, "--rounds",
                                     "1",     "--threads", "1"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return run_attest(arguments);
}

TEST(BenchCommand, ListsTheRowsOfTheTable) {
  const Ended all = run_attest({"bench", "--list"});
  EXPECT_EQ(all.code, 0) << all.err;
  std::set<std::string> names;
  std::size_t lines = 0;
  for (std::size_t at = 0; at < all.out.size(); ++lines) {
    const std::size_t end = all.out.find('\n', at);
    ASSERT_NE(end, std::string::npos);
    names.insert(all.out.substr(at, end - at));
    at = end + 1;
  }
  EXPECT_EQ(names.size(), lines) << "two rows have one name";
  EXPECT_GE(lines, 32U);
  for (const char* row :
       {smallest, "1x12x4096x64 full f32 forward", "1x12x4096x64 causal bf16 forward",
        "1x32kv8x2048x128 causal f32 backward", "8x4x128x32 full bf16 forward",
        "decode_1x32kv8x4096x128 full f32 forward", "1x4x16384x64 window512 f32 forward",
        "1x4x16384x64 documents64 f32 backward"}) {
    EXPECT_TRUE(names.contains(row)) << row;
  }
  const Ended some = run_attest({"bench", "--list", "--rows", "causal 4096x64 backward"});
  EXPECT_EQ(some.out, "1x12x4096x64 causal f32 backward\n");
}

TEST(BenchCommand, AMeasuredRowIsAValidJsonReport) {
  const Ended ended = measured({"--json", "-", "--isa", "portable"});
  EXPECT_EQ(ended.code, 0) << ended.err;
  const auto report = io::parse_json(ended.out, "report");
  ASSERT_TRUE(report) << ended.out;
  EXPECT_EQ(*report->find("isa")->string_if(), "portable");
  const auto results = report->find("results")->items();
  ASSERT_EQ(results.size(), 1U);
  EXPECT_EQ(*results[0].find("threads")->integer_if(), 1);
  EXPECT_GT(*results[0].find("median_ms")->double_if(), 0);
  EXPECT_GT(*results[0].find("gflops")->double_if(), 0);
  const double error = *results[0].find("max_error")->double_if();
  EXPECT_GT(error, 0);
  EXPECT_LT(error, 1e-5);  // of f32; the bound of such rows is tested elsewhere
  EXPECT_EQ(results[0].find("rounds")->items().size(), 1U);
}

/// This test is compiled as the command is.
TEST(BenchCommand, AReportSaysWhichBuildMeasured) {
  const Ended ended = measured({"--json", "-"});
  EXPECT_EQ(ended.code, 0) << ended.err;
  const auto report = io::parse_json(ended.out, "report");
  ASSERT_TRUE(report) << ended.out;
  const io::Json* build = report->find("build");
  ASSERT_NE(build, nullptr) << ended.out;
  const auto word = [&](const char* member) { return *build->find(member)->string_if(); };
  EXPECT_EQ("attest " + word("version") + "\n", run_attest({"--version"}).out);
#if defined(__clang__)
  const std::string compiler =
      "Clang " + std::to_string(__clang_major__) + "." + std::to_string(__clang_minor__) + ".";
#else
  const std::string compiler =
      "GNU " + std::to_string(__GNUC__) + "." + std::to_string(__GNUC_MINOR__) + ".";
#endif
  EXPECT_NE(word("compiler").find(compiler), std::string::npos) << word("compiler");
#if defined(NDEBUG)
  constexpr bool without_asserts = true;
#else
  constexpr bool without_asserts = false;
#endif
  EXPECT_EQ(word("flags").find("-DNDEBUG") != std::string::npos, without_asserts) << word("flags");
  EXPECT_EQ(word("flags").find('$'), std::string::npos) << word("flags");
}

/// Whether every element that is opened is closed, in order.
::testing::AssertionResult is_balanced(const std::string& page) {
  const std::set<std::string> without_end{"meta", "br", "hr"};
  std::vector<std::string> open;
  for (std::size_t at = page.find('<'); at != std::string::npos; at = page.find('<', at + 1)) {
    const std::size_t end = page.find('>', at);
    if (end == std::string::npos) return ::testing::AssertionFailure() << "a tag does not end";
    std::string tag = page.substr(at + 1, end - at - 1);
    if (tag.starts_with('!')) continue;
    const bool closes = tag.starts_with('/');
    const bool closed = tag.ends_with('/');
    tag = tag.substr(closes ? 1 : 0);
    tag = tag.substr(0, tag.find_first_of(" /\n"));
    if (!closes && !closed && !without_end.contains(tag)) open.push_back(tag);
    if (!closes) continue;
    if (open.empty() || open.back() != tag) {
      return ::testing::AssertionFailure() << "</" << tag << "> closes nothing";
    }
    open.pop_back();
  }
  if (!open.empty()) return ::testing::AssertionFailure() << "<" << open.back() << "> is left open";
  return ::testing::AssertionSuccess();
}

TEST(BenchCommand, ThePageIsWholeAndStandsAlone) {
  const ScratchFolder scratch;
  const Ended ended =
      measured({"--html", scratch.file("bench.html"), "--json", scratch.file("bench.json")});
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_NE(ended.out.find("1x2x16x16"), std::string::npos) << ended.out;
  EXPECT_NE(ended.out.find("not compared"), std::string::npos) << ended.out;
  EXPECT_TRUE(io::parse_json(read_text(scratch.file("bench.json")), "bench.json"));
  const std::string page = read_text(scratch.file("bench.html"));
  EXPECT_TRUE(page.starts_with("<!doctype html>")) << page.substr(0, 40);
  EXPECT_TRUE(is_balanced(page));
  EXPECT_FALSE(is_balanced(page.substr(0, page.size() / 2)));  // so half a page would be noticed
  EXPECT_NE(page.find("1x2x16x16"), std::string::npos);
  EXPECT_NE(page.find("<svg"), std::string::npos);
  for (const char* outside : {"https:", "src=", "<link", "@import", "url("}) {
    const std::size_t at = page.find(outside);
    EXPECT_EQ(at, std::string::npos) << page.substr(std::min(at, page.size()), 60);
  }
}

TEST(BenchCommand, RefusesWhatItCannotMeasure) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> wrong = {
      {{"--rows", "nonsense"}, "no-such-row"},
      {{"--isa", "avx9"}, "bad-isa"},
      {{"--threads", "0"}, "bad-option"},
      {{"--threads", "1025"}, "bad-option"},
      {{"--threads", "1,x"}, "usage"},
      {{"--threads", ""}, "usage"},
      {{"--rounds", "0"}, "usage"},
      {{"--rounds", "1001"}, "usage"},
      {{"--peers", "/no/such/folder"}, "bad-peers"},
      {{"--json", ""}, "usage"},
      {{"--bogus"}, "usage"},
      {{"row"}, "usage"}};
  for (auto [arguments, id] : wrong) {
    arguments.insert(arguments.begin(), "bench");
    const Ended ended = run_attest(arguments);
    EXPECT_EQ(ended.code, 2) << arguments[1];
    EXPECT_EQ(ended.out, "") << arguments[1];
    EXPECT_TRUE(ended.err.starts_with("error " + id + ": ")) << arguments[1] << ": " << ended.err;
    EXPECT_EQ(std::count(ended.err.begin(), ended.err.end(), '\n'), 1) << ended.err;
  }
  setenv("ATTEST_ISA", "avx9", 1);
  const Ended ended = measured({});
  unsetenv("ATTEST_ISA");
  EXPECT_EQ(ended.code, 2);
  EXPECT_TRUE(ended.err.starts_with("error bad-isa: ")) << ended.err;
}

TEST(BenchCommand, AReportThatCannotBeWrittenIsAnError) {
  // Before anything is measured: the rows that are asked for do not even exist.
  for (const char* form : {"--json", "--html", "--svg"}) {
    for (const char* path : {"/no/such/folder/bench.json", "/"}) {
      const Ended ended = run_attest({"bench", "--rows", "nonsense", form, path});
      EXPECT_EQ(ended.code, 2);
      EXPECT_TRUE(ended.err.starts_with(std::string("error cannot-write: [attest] ") + form))
          << ended.err;
    }
  }
}

}  // namespace
}  // namespace attest::test
