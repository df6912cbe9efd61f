// SPDX-License-Identifier: MIT
// attest trace, why, diff and verify.
#include <gtest/gtest.h>

#include <algorithm>

#include "attest/io/json.h"
#include "run_program.h"

namespace attest::test {
namespace {

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(Trace, ShowsEveryStageOfTheWorkbooksRow) {
  const Ended ended = run_attest({"trace", "--workbook", "two-position", "--causal", "--row", "1"});
  EXPECT_EQ(ended.code, 0) << ended.err;
  for (const char* part : {"attest-trace 1", "mode causal", "0.707107", "0.493069", "1.493069",
                           "0.330238", "0.669762", "13.395231", "0*1 + 1*0", "output-in-hull ok"}) {
    EXPECT_TRUE(contains(ended.out, part)) << part << "\n" << ended.out;
  }
  EXPECT_FALSE(contains(ended.out, "query 0")) << ended.out;
}

TEST(Trace, SaysWhichRuleHidesAKey) {
  EXPECT_TRUE(contains(run_attest({"trace", "--causal"}).out, "no: causal"));
  EXPECT_TRUE(contains(run_attest({"trace", "--window", "0,0"}).out, "no: window"));
  EXPECT_TRUE(contains(run_attest({"trace", "--key-lengths", "1"}).out, "no: length"));
  EXPECT_TRUE(contains(run_attest({"trace", "--set", "mask[0,1]=false"}).out, "no: mask"));
  EXPECT_TRUE(contains(run_attest({"trace", "--set", "bias[0,1]=-inf"}).out, "no: bias -inf"));
}

TEST(Trace, TheTitleSaysDocumentsAndDropout) {
  const auto title = [](std::vector<std::string> options) {
    options.insert(options.begin(), "trace");
    const std::string out = run_attest(options).out;
    return out.substr(0, out.find("query 0"));
  };
  EXPECT_TRUE(contains(title({}), "mode all visible "));
  const std::string packed = title({"--query-starts", "0,1,2", "--causal"});
  EXPECT_TRUE(contains(packed, "mode causal and packed documents ")) << packed;
  EXPECT_TRUE(contains(packed, "documents 2")) << packed;
  const std::string named = title({"--query-documents", "4,4"});
  EXPECT_TRUE(contains(named, "mode document names ")) << named;
  const std::string dropped = title({"--dropout", "0.5", "--seed", "3"});
  EXPECT_TRUE(contains(dropped, "dropout 0.5 seed 3")) << dropped;
}

TEST(Trace, ShowsWhatDropoutLeavesOut) {
  const Ended ended = run_attest({"trace", "--dropout", "0.5", "--seed", "3", "--row", "0"});
  EXPECT_EQ(ended.code, 0) << ended.err;
  // Key 1 is dropped: its softmax stands there, its weight is 0, and it is not mixed.
  EXPECT_TRUE(contains(ended.out, "yes, dropped")) << ended.out;
  EXPECT_TRUE(contains(ended.out, "0.330238  0.000000\n")) << ended.out;
  EXPECT_TRUE(contains(ended.out, "mix  0  1.339523*10 = 13.395231")) << ended.out;
  EXPECT_TRUE(contains(ended.out, "softmax-sums ok")) << ended.out;
  // The sum stands below the exponentials that it adds.
  const auto column_after = [&](const char* word, const char* line) {
    const std::size_t begin = ended.out.find(line);
    return ended.out.find(word, begin) + std::string_view(word).size() - begin;
  };
  EXPECT_EQ(column_after("1.493069", "  sum "), column_after(" exp", "  key ")) << ended.out;
  EXPECT_FALSE(contains(ended.out, "VIOLATED")) << ended.out;
  const Ended hidden = run_attest({"trace", "--query-documents", "1,2", "--row", "0"});
  EXPECT_TRUE(contains(hidden.out, "no: document")) << hidden.out;
}

TEST(Trace, JsonHasOneStageALineAndReadsBack) {
  for (const char* workbook : {"two-position", "block"}) {
    const Ended ended = run_attest({"trace", "--workbook", workbook, "--json"});
    ASSERT_EQ(ended.code, 0) << ended.err;
    std::string text = ended.out;
    std::size_t lines = 0;
    while (!text.empty()) {
      const std::size_t end = text.find('\n');
      EXPECT_TRUE(io::parse_json(text.substr(0, end), "line")) << text.substr(0, end);
      text.erase(0, end + 1);
      ++lines;
    }
    EXPECT_GE(lines, 15U);
  }
  EXPECT_TRUE(contains(run_attest({"trace", "--causal", "--json"}).out, "\"-inf\""));
}

TEST(Trace, CsvNamesEveryNumber) {
  const Ended ended = run_attest({"trace", "--csv", "--workbook", "block"});
  EXPECT_TRUE(contains(ended.out, "\"h0.weights[2,0]\",0.24825")) << ended.out.substr(0, 400);
  EXPECT_TRUE(contains(ended.out, "\"norm2[2,0]\",1.34714"));
}

TEST(Trace, SetChangesAnInputBeforeTheCalculation) {
  const std::string before = run_attest({"trace", "--json"}).out;
  EXPECT_NE(before, run_attest({"trace", "--json", "--set", "query[0,1]=2"}).out);
  EXPECT_NE(before, run_attest({"trace", "--json", "--set", "value[1,1]=21"}).out);
  const std::string block = run_attest({"trace", "--json", "--workbook", "block"}).out;
  for (const char* change :
       {"rows[0,0]=2", "P1[0,0]=2", "P2[2,1]=1", "WO[0,1]=1", "W1[0,1]=1", "W2[2,3]=1"}) {
    EXPECT_NE(block, run_attest({"trace", "--json", "--workbook", "block", "--set", change}).out)
        << change;
  }
}

TEST(Trace, RefusesWhatItCannotSet) {
  const std::pair<const char*, const char*> wrong[] = {
      {"weights[0,0]=1", "no-such-input"}, {"query[9,0]=1", "no-such-index"},
      {"query[0]=1", "no-such-index"},     {"query[0,0]", "bad-value"},
      {"query[0,0]=x", "bad-value"},       {"mask[0,0]=2", "bad-value"},
      {"query[0,0=1", "bad-address"},      {"h3.query[0,0]=1", "no-such-input"}};
  for (const auto& [change, id] : wrong) {
    const Ended ended = run_attest({"trace", "--set", change});
    EXPECT_EQ(ended.code, 2) << change;
    EXPECT_TRUE(ended.err.starts_with("error " + std::string(id) + ": "))
        << change << ": " << ended.err;
  }
}

TEST(Trace, PrintsFullAndHexadecimalNumbers) {
  EXPECT_TRUE(contains(run_attest({"trace", "--full"}).out, "0.6697615493266569"));
  EXPECT_TRUE(contains(run_attest({"trace", "--hex"}).out, "0x1.56eafc5cf3db4p-1"));
  EXPECT_TRUE(contains(run_attest({"trace", "--digits", "2"}).out, "0.67"));
}

TEST(Why, GivesFormulaNumbersAndOperands) {
  const Ended ended = run_attest({"why", "h0.weights[2,2]", "--workbook", "block"});
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_TRUE(contains(
      ended.out, "h0.weights[2,2] = h0.exp[2,2] / h0.sum[2] = 1.000000 / 1.986137 = 0.503490"))
      << ended.out;
  EXPECT_TRUE(contains(ended.out, "h0.exp[2,2] = exp(h0.minus_peak[2,2])")) << ended.out;
}

TEST(Why, ExplainsEveryNumberOfATrace) {
  for (const auto& source : std::vector<std::vector<std::string>>{
           {"--workbook", "block"},
           {"--softcap", "2", "--alibi", "--sink", "0.5", "--set", "bias[0,1]=1", "--causal", "0"},
           {"--dropout", "0.5", "--seed", "3", "--query-starts", "0,0,2"}}) {
    std::vector<std::string> arguments{"trace", "--csv"};
    arguments.insert(arguments.end(), source.begin(), source.end());
    std::string text = run_attest(arguments).out;
    std::string last_stage;
    while (!text.empty()) {
      const std::size_t end = text.find('\n');
      const std::string line = text.substr(0, end);
      text.erase(0, end + 1);
      if (!line.starts_with('"')) continue;
      const std::string address = line.substr(1, line.find('"', 1) - 1);
      const std::string stage = address.substr(0, address.find('['));
      if (stage == last_stage) continue;  // one number of each stage
      last_stage = stage;
      std::vector<std::string> why{"why", address, "--depth", "0"};
      why.insert(why.end(), source.begin(), source.end());
      const Ended ended = run_attest(why);
      EXPECT_EQ(ended.code, 0) << address << ended.err;
      EXPECT_TRUE(ended.out.starts_with(address + " = ")) << ended.out;
      EXPECT_TRUE(contains(ended.out, " = ")) << ended.out;
    }
    EXPECT_NE(last_stage, "");
  }
}

TEST(Why, SaysWhatThereIsWhenAnAddressIsWrong) {
  EXPECT_TRUE(run_attest({"why", "wieghts[0,0]"}).err.starts_with("error no-such-stage: "));
  EXPECT_TRUE(run_attest({"why", "weights[0,7]"}).err.starts_with("error no-such-index: "));
  EXPECT_TRUE(run_attest({"why", "weights[0"}).err.starts_with("error bad-address: "));
  EXPECT_EQ(run_attest({"why", "weights[0"}).code, 2);
}

TEST(Diff, NamesTheFirstDifferingAddress) {
  const ScratchFolder scratch;
  write_text(scratch.file("a"), run_attest({"trace", "--json"}).out);
  write_text(scratch.file("b"), run_attest({"trace", "--json", "--scale", "1"}).out);
  EXPECT_EQ(run_attest({"diff", scratch.file("a"), scratch.file("a")}).code, 0);
  const Ended ended = run_attest({"diff", scratch.file("a"), scratch.file("b")});
  EXPECT_EQ(ended.code, 1);
  EXPECT_TRUE(contains(ended.out, "scaled[0,0]")) << ended.out;
  EXPECT_EQ(
      run_attest({"diff", scratch.file("a"), scratch.file("b"), "--rel", "1e3", "--abs", "10"})
          .code,
      0);
}

TEST(Diff, NothingComparedAndNaNDecideNothing) {
  const ScratchFolder scratch;
  write_text(scratch.file("empty.json"),
             "{\"x\": {\"dtype\": \"f64\", \"shape\": [0], \"data\": []}}");
  EXPECT_EQ(run_attest({"diff", scratch.file("empty.json"), scratch.file("empty.json")}).code, 3);
  write_text(scratch.file("nan.json"),
             "{\"x\": {\"dtype\": \"f64\", \"shape\": [1], \"data\": [\"nan\"]}}");
  EXPECT_EQ(run_attest({"diff", scratch.file("nan.json"), scratch.file("nan.json")}).code, 3);
  EXPECT_EQ(run_attest({"diff", scratch.file("nan.json"), scratch.file("none.json")}).code, 2);
}

TEST(Verify, PassesAndCountsAtLeastTheReleasesAssertions) {
  const Ended ended = run_attest({"verify", "--json"});
  EXPECT_EQ(ended.code, 0) << ended.out << ended.err;
  const auto report = io::parse_json(ended.out, "report");
  ASSERT_TRUE(report);
  const io::Json* assertions = report->find("assertions");
  ASSERT_NE(assertions, nullptr) << ended.out;
  EXPECT_GE(*assertions->integer_if(), 3722);
  EXPECT_EQ(run_attest({"verify", "--cases", "5"}).code, 2);
  EXPECT_NE(run_attest({"verify", "--seed", "8"}).out, run_attest({"verify", "--seed", "9"}).out);
}

}  // namespace
}  // namespace attest::test
