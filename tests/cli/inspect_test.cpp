// SPDX-License-Identifier: MIT
// attest inspect --isa: what this machine gives the engine.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "attest/io/json.h"
#include "attest/linalg/isa.h"
#include "run_program.h"

namespace attest::test {
namespace {

/// With ATTEST_ISA set to that, or not at all.
Ended inspected(const std::string& environment, bool json = false) {
  if (environment.empty()) {
    unsetenv("ATTEST_ISA");
  } else {
    setenv("ATTEST_ISA", environment.c_str(), 1);
  }
  std::vector<std::string> arguments{"inspect", "--isa"};
  if (json) arguments.emplace_back("--json");
  Ended ended = run_attest(arguments);
  unsetenv("ATTEST_ISA");
  return ended;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    out.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return out;
}

Isa preferred() {
  for (const IsaState& set : instruction_sets()) {
    if (set.preferred) return set.isa;
  }
  return Isa::portable;
}

TEST(Inspect, ListsEverySetWithItsState) {
  const Ended ended = inspected("");
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(ended.err, "");
  const auto lines = lines_of(ended.out);
  ASSERT_EQ(lines.size(), 7U) << ended.out;
  for (std::size_t n = 0; n < 5; ++n) {
    const IsaState& set = instruction_sets()[n];
    const std::string& line = lines[n + 1];
    EXPECT_TRUE(line.starts_with(std::string(name_of(set.isa)) + " ")) << line;
    EXPECT_EQ(line.substr(12, 3), set.present ? "yes" : "no ") << line;
    EXPECT_TRUE(set.present || !set.remark.empty()) << line;
    EXPECT_TRUE(set.preferred || line.find(set.remark) != std::string::npos) << line;
    EXPECT_EQ(line.find("preferred here") != std::string::npos, set.preferred) << line;
  }
  EXPECT_EQ(lines[6], "calls use " + std::string(name_of(preferred())) + "; ATTEST_ISA is not set");
}

/// The number types of each set, by its name.
std::map<std::string, std::vector<std::string>> used_for(const io::Json& report) {
  std::map<std::string, std::vector<std::string>> out;
  for (const io::Json& set : report.find("sets")->items()) {
    auto& types = out[std::string(*set.find("name")->string_if())];
    for (const io::Json& type : set.find("used_for")->items()) {
      types.emplace_back(*type.string_if());
    }
  }
  return out;
}

TEST(Inspect, JsonSaysWhichSetEachTypeUses) {
  for (const IsaState& set : instruction_sets()) {
    if (!set.present) continue;
    const Ended ended = inspected(std::string(name_of(set.isa)), true);
    EXPECT_EQ(ended.code, 0) << ended.err;
    const auto report = io::parse_json(ended.out, "report");
    ASSERT_TRUE(report) << ended.out;
    EXPECT_EQ(*report->find("calls_use")->string_if(), name_of(set.isa));
    EXPECT_EQ(*report->find("ATTEST_ISA")->string_if(), name_of(set.isa));
    auto types = used_for(*report);
    EXPECT_EQ(types.size(), 5U);
    const std::vector<std::string> wide{"f32", "f64", "f16"};
    if (set.isa <= Isa::avx512) {
      EXPECT_EQ(types[std::string(name_of(set.isa))],
                (std::vector<std::string>{"f32", "f64", "f16", "bf16"}));
    } else {
      EXPECT_EQ(types["avx512"], wide);
      EXPECT_EQ(types[std::string(name_of(set.isa))], (std::vector<std::string>{"bf16"}));
    }
  }
  const auto report = io::parse_json(inspected("", true).out, "report");
  ASSERT_TRUE(report);
  EXPECT_EQ(*report->find("calls_use")->string_if(), name_of(preferred()));
  EXPECT_TRUE(report->find("ATTEST_ISA")->is(io::Json::Kind::null));
}

TEST(Inspect, ASetThatCannotBeHadIsAnErrorBelowTheList) {
  for (const std::string wrong : {"avx9", "AVX2", "portable ", "a\n\"b"}) {
    const Ended ended = inspected(wrong);
    EXPECT_EQ(ended.code, 2) << wrong;
    EXPECT_EQ(lines_of(ended.out).size(), 7U) << ended.out;
    EXPECT_NE(ended.out.find("a call that names no set fails"), std::string::npos) << ended.out;
    EXPECT_TRUE(ended.err.starts_with("error bad-isa: ")) << ended.err;
    EXPECT_EQ(std::count(ended.err.begin(), ended.err.end(), '\n'), 1) << ended.err;
    const auto report = io::parse_json(inspected(wrong, true).out, "report");
    ASSERT_TRUE(report) << wrong;
    EXPECT_TRUE(report->find("calls_use")->is(io::Json::Kind::null));
  }
}

TEST(Inspect, WantsToBeToldWhat) {
  for (const auto& arguments : {std::vector<std::string>{"inspect"},
                                {"inspect", "--json"},
                                {"inspect", "--isa", "avx2"},
                                {"inspect", "--is"}}) {
    const Ended ended = run_attest(arguments);
    EXPECT_EQ(ended.code, 2) << arguments.back();
    EXPECT_TRUE(ended.err.starts_with("error usage: ")) << ended.err;
  }
}

}  // namespace
}  // namespace attest::test
