// SPDX-License-Identifier: MIT
// Faults that people met, as the dumps that they would have: the right ones are cleared, and the wrong
// ones named. The inputs are chosen so that the output spells out which keys were seen.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "attest/io/json.h"
#include "run_program.h"

using namespace attest;
using namespace attest::test;

namespace {

/// What a dump is to be called. `names`: any one of them, alone or among those that give the same
/// numbers on this input.
struct FieldCase {
  std::string name;
  std::string dump;  ///< JSON tensors
  std::vector<std::string> flags{};
  int code = 0;
  std::vector<std::string> names{};
};

std::string with(const std::string& inputs, const std::string& output) {
  return "{" + inputs + ", \"output\": " + output + "}";
}

const std::string a01 =
    R"("query": [[1,0],[0,1]], "key": [[1,0],[0,1],[1,1]], "value": [[1,2],[3,4],[5,6]],
       "mask": [[true,false,true],[false,false,false]])";
const std::string a05 =
    R"("query": [[0],[0]], "key": [[0],[0],[0],[0],[0]],
       "value": [[1],[10],[100],[1000],[10000]])";
const std::string a06 =
    R"("query": [[0]], "key": [[0],[0],[0],[0],["nan"],["nan"],["nan"],["nan"]],
       "value": [[1],[2],[3],[4],["nan"],["nan"],["nan"],["nan"]], "key_lengths": [4])";
const std::string a06_zeros =
    R"("query": [[0]], "key": [[0],[0],[0],[0],[0],[0],[0],[0]],
       "value": [[1],[2],[3],[4],[0],[0],[0],[0]], "key_lengths": [4])";
const std::string a08 =
    R"("query": [[0],[0],[0]], "key": [[0],[0],[0]], "value": [[1],[10],[100]],
       "mask": [[true,false,false],[true,true,false],[true,true,true]])";
const std::string a11 =
    R"("query": [[1,0],[0,1]], "key": [[1,0],[0,1],["inf","nan"]],
       "value": [[1,2],[3,4],["nan","-inf"]], "mask": [[true,true,false],[true,false,false]])";
const std::string a12 =
    R"("query": [[[1]],[[1]],[[1]],[[1]]], "key": [[[1]],[[1]]], "value": [[[10]],[[20]]])";
const std::string a12_six =
    R"("query": [[[1]],[[1]],[[1]],[[1]],[[1]],[[1]]], "key": [[[1]],[[1]]],
       "value": [[[10]],[[20]]])";
const std::string a13 =
    R"("query": [[0],[0],[0],[0],[0]], "key": [[0],[0],[0],[0],[0]],
       "value": [[1],[10],[100],[1000],[10000]])";
const std::string a19 =
    R"("query": [[[0.125,0.25],[1.625,1.75],[3.125,3.25]],[[0.375,0.5],[1.875,2],[3.375,3.5]]],
       "key": [[[0.625,0.75],[2.125,2.25],[3.625,3.75]],[[0.875,1],[2.375,2.5],[3.875,4]]],
       "value": [[[1.125,1.25],[2.625,2.75],[4.125,4.25]],[[1.375,1.5],[2.875,3],[4.375,4.5]]])";
const std::string a24 = R"("query": [[0]], "key": [[0],[0],[0],[0]], "value": [[1],[2],[3],[4]])";
const std::string a28 =
    R"("query": [[1,0],[0,1]], "key": [[0,0],[1.5536723984241867,0]], "value": [[0],[1]])";

const std::string a16 =
    R"("query": [[1]], "key": [[0], [0], [1.3862943611198906]], "value": [[1], [3], [10]])";
const std::string a18 =
    R"("query": [[[0], [0], [0]], [[0], [0], [0]], [[0], [0], [0]], [[0], [0], [0]], [[0],
       [0], [0]], [[0], [0], [0]]], "key": [[[0], [0], [0]], [[0], [0], [0]], [[0], [0],
       [0]], [[0], [0], [0]], [[0], [0], [0]], [[0], [0], [0]]], "value": [[[1], [10],
       [100]], [[1], [10], [100]], [[1], [10], [100]], [[1], [10], [100]], [[1], [10],
       [100]], [[1], [10], [100]]])";
const std::string a18_eight =
    R"("query": [[[0], [0], [0]], [[0], [0], [0]], [[0], [0], [0]], [[0], [0], [0]], [[0],
       [0], [0]], [[0], [0], [0]], [[0], [0], [0]], [[0], [0], [0]]], "key": [[[0], [0],
       [0]], [[0], [0], [0]], [[0], [0], [0]], [[0], [0], [0]], [[0], [0], [0]], [[0], [0],
       [0]], [[0], [0], [0]], [[0], [0], [0]]], "value": [[[1], [10], [100]], [[1], [10],
       [100]], [[1], [10], [100]], [[1], [10], [100]], [[1], [10], [100]], [[1], [10],
       [100]], [[1], [10], [100]], [[1], [10], [100]]])";
const std::string a22 =
    R"("query": [[0], [0], [0]], "key": [[0], [0], [0], [0], [0], [0], [0]], "value": [[1],
       [2], [6], [1], [1], [1], [1]], "query_starts": [0, 2, 2, 3],
       "key_starts": [0, 3, 7, 7])";

/// 64 features of 48 in half precision: the products leave its range, the scores do not.
std::string a10() {
  const auto row = [](const std::string& x) {
    std::string out = x;
    for (int d = 1; d < 64; ++d) out += "," + x;
    return out;
  };
  return R"("query": {"dtype": "f16", "shape": [1,64], "data": [)" + row("48") +
         R"(]}, "key": {"dtype": "f16", "shape": [2,64], "data": [)" + row("48") + "," +
         row("47.96875") + R"(]}, "value": {"dtype": "f16", "shape": [2,1], "data": [0,1]})";
}
std::string half(const std::string& x) {
  return R"({"dtype": "f16", "shape": [1,1], "data": [)" + x + "]}";
}

std::string equal_rows(std::size_t width, double query, double key) {
  std::string q, k, zero;
  for (std::size_t d = 0; d < width; ++d) {
    const char* comma = d == 0 ? "" : ",";
    q += comma + std::to_string(query);
    k += comma + std::to_string(key);
    zero += std::string(comma) + "0";
  }
  return "\"query\": [[" + q + "]], \"key\": [[" + k + "],[" + zero + "]], \"value\": [[1],[0]]";
}

/// The same in four equal heads, so that the model's width is 64.
std::string four_heads() {
  std::string q, k, zero, heads_q, heads_k, heads_v;
  for (int d = 0; d < 16; ++d) {
    const char* comma = d == 0 ? "" : ",";
    q += std::string(comma) + "2";
    k += std::string(comma) + "0.5";
    zero += std::string(comma) + "0";
  }
  for (int h = 0; h < 4; ++h) {
    const char* comma = h == 0 ? "" : ",";
    heads_q.append(comma).append("[[").append(q).append("]]");
    heads_k.append(comma).append("[[").append(k).append("],[").append(zero).append("]]");
    heads_v += std::string(comma) + "[[1],[0]]";
  }
  return "\"query\": [" + heads_q + "], \"key\": [" + heads_k + "], \"value\": [" + heads_v + "]";
}

std::string four(const std::string& x) {
  return "[[[" + x + "]],[[" + x + "]],[[" + x + "]],[[" + x + "]]]";
}

const std::vector<std::string> window{"--causal", "--window", "1,"};

std::vector<FieldCase> field_cases() {
  const std::vector<std::string> all_seen{"--causal", "none"};
  const std::vector<std::string> zero{"--empty-row", "zero"};
  const std::vector<std::string> corner{"--causal", "bottom-right"};
  const std::vector<std::string> alibi{"--causal", "--alibi"};
  return {
      {"A01 right", with(a01, "[[3,4],[0,0]]"), zero, 0},
      {"A01 NaN row", with(a01, R"([[3,4],["nan","nan"]])"), zero, 1, {"empty_rows.nan"}},
      {"A03 mean of value", with(a01, "[[3,4],[3,4]]"), zero, 1, {"empty_rows.uniform"}},
      {"A05 right", with(a05, "[[277.75],[2222.2]]"), corner, 0},
      {"A05 top-left", with(a05, "[[1],[5.5]]"), corner, 1, {"causal.top_left"}},
      {"A06 right", with(a06, "[[2.5]]"), all_seen, 0},
      {"A06 stale NaN",
       with(a06, R"([["nan"]])"),
       all_seen,
       1,
       {"mask.ignored", "nan_behind_mask"}},
      {"A06 stale zeros", with(a06_zeros, "[[1.25]]"), all_seen, 1, {"mask.ignored"}},
      {"A08 right", with(a08, "[[1],[5.5],[37]]"), zero, 0},
      {"A08 inverted", with(a08, "[[55],[100],[0]]"), zero, 1, {"mask.inverted"}},
      {"A08 inverted, NaN",
       with(a08, R"([[55],[100],["nan"]])"),
       zero,
       1,
       {"mask.inverted + empty_rows.nan"}},
      {"A10 right", with(a10(), half("6.139278411865234e-06")), all_seen, 0},
      {"A10 overflow", with(a10(), half("\"nan\"")), all_seen, 1, {"num.dot_f16_overflow"}},
      {"A10 clipped", with(a10(), half("0.5")), all_seen, 1, {"num.dot_f16_clipped"}},
      {"A16 right", with(a16, R"([[7.333333333333333]], "log_sum_exp": [1.791759469228055])"),
       all_seen, 0},
      {"A16 base 2",
       with(a16, R"([[7.333333333333333]], "log_sum_exp": [2.5849625007211562])"),
       all_seen,
       1,
       {"label.lse_base2"}},
      {"A16 merged", with(a16, "[[7.848468629040039]]"), all_seen, 1, {"split.lse_base"}},
      {"A18 right",
       with(a18,
            "[[[1.0],[6.059588507972183],[45.442128731558604]],[[1.0],[5.64057924150714],[39."
            "07871933651973]],[[1.0],[5.535155534761724],[37.5167025860359]],[[1.0],[5."
            "508789051324146],[37.12897458646439]],[[1.0],[6.602133980816691],[53.90632168597623]],"
            "[[1.0],[5.780884360363806],[41.1843328913054]]]"),
       alibi, 0},
      {"A18 geometric",
       with(a18,
            "[[[1.0],[6.381376005448709],[50.44542834174454]],[[1.0],[5.853622185496227],[42."
            "28673079558678]],[[1.0],[5.64057924150714],[39.07871933651973]],[[1.0],[5."
            "555804207386306],[37.82118771076617]],[[1.0],[5.522146870892982],[37.32525413273766]],"
            "[[1.0],[5.508789051324146],[37.12897458646439]]]"),
       alibi,
       1,
       {"alibi.geometric_non_pow2"}},
      {"A18 exponent from 0",
       with(a18_eight,
            "[[[1.0],[7.579527207670044],[69.06141086120054]],[[1.0],[6.602133980816691],[53."
            "90632168597623]],[[1.0],[6.059588507972183],[45.442128731558604]],[[1.0],[5."
            "780884360363806],[41.1843328913054]],[[1.0],[5.64057924150714],[39.07871933651973]],[["
            "1.0],[5.57030677851284],[38.03547564743774]],[[1.0],[5.535155534761724],[37."
            "5167025860359]],[[1.0],[5.517578035593578],[37.25808453144255]]]"),
       alibi,
       1,
       {"alibi.exponent_off_by_one"}},
      {"A22 right",
       with(a22, R"([[3],[3],[0]], "log_sum_exp": [1.0986122886681098,1.0986122886681098,"-inf"])"),
       zero, 0},
      {"A22 NaN", with(a22, R"([[3],[3],["nan"]])"), zero, 1, {"empty_rows.nan"}},
      {"A24 dropout",
       with(a24, R"([[3.5]], "weights": [[0.5,0.5,0,0.5]])"),
       all_seen,
       1,
       {"dropout.on"}},
      {"E10 weights of other heads",
       R"({"weights": [[[0.25,0.75]],[[0.75,0.25]]], "value": [[[1],[2]],[[3],[4]]],
           "output": [[[1.5]],[[3.5]]]})",
       all_seen, 1},
      {"A11 right", with(a11, "[[1.6604769013466861,2.6604769013466861],[1,2]]"), all_seen, 0},
      {"A11 all NaN",
       with(a11, R"([["nan","nan"],["nan","nan"]])"),
       all_seen,
       1,
       {"nan_behind_mask", "mask.ignored"}},
      {"A12 right", with(a12, "[[[10]],[[10]],[[20]],[[20]]]"), all_seen, 0},
      {"A12 tiled", with(a12, "[[[10]],[[20]],[[10]],[[20]]]"), all_seen, 1, {"gqa.tile"}},
      {"A12 six heads", with(a12_six, "[[[10]],[[10]],[[10]],[[20]],[[20]],[[20]]]"), all_seen, 0},
      {"A12 six tiled",
       with(a12_six, "[[[10]],[[20]],[[10]],[[20]],[[10]],[[20]]]"),
       all_seen,
       1,
       {"gqa.tile"}},
      {"A13 right", with(a13, "[[1],[5.5],[55],[550],[5500]]"), window, 0},
      {"A13 one more", with(a13, "[[1],[5.5],[37],[370],[3700]]"), window, 1, {"window.W+1_keys"}},
      {"A13 symmetric",
       with(a13, "[[5.5],[37],[370],[3700],[5500]]"),
       window,
       1,
       {"window.symmetric", "window.only_no_causal"}},
      {"A19 right",
       with(a19,
            "[[[1.125,1.25],[2.5843096612007801,2.7093096612007801],[4.1232621204871039,"
            "4.2482621204871039]],[[1.375,1.5],[2.8507870276063675,2.9757870276063675],["
            "4.3739778978004074,4.4989778978004074]]]"),
       {"--causal"},
       0},
      {"A21 right", with(equal_rows(5, 1, 1), "[[0.90344199375317724]]"), all_seen, 0},
      {"A21 padded size",
       with(equal_rows(5, 1, 1), "[[0.85417975000638069]]"),
       all_seen,
       1,
       {"scale.padded_head_dim"}},
      {"A24 right", with(a24, "[[2.5]]"), all_seen, 0},
      {"A24 scaled up", with(a24, "[[5]]"), all_seen, 1, {"dropout.scale_only"}},
      {"A26 right", with(four_heads(), four("0.98201379003790844")), all_seen, 0},
      {"A26 width",
       with(four_heads(), four("0.88079707797788244")),
       all_seen,
       1,
       {"scale.sqrt_d_model"}},
      {"A26 twice", with(four_heads(), four("0.73105857863000488")), all_seen, 1, {"scale.twice"}},
      {"A26 multiplied", with(four_heads(), four("1")), all_seen, 1, {"scale.multiplied"}},
      {"A26 none", with(four_heads(), four("0.99999988746483794")), all_seen, 1, {"scale.none"}},
      {"A28 right", with(a28, "[[0.75],[0.5]]"), all_seen, 0},
      {"A28 columns", with(a28, "[[0.75],[0.25]]"), all_seen, 1, {"softmax.over_queries"}},
  };
}

/// The labels of an explanation: of what was made, and of what gives the same numbers here.
std::vector<std::string> labels_of(const io::Json& explanation) {
  std::vector<std::string> out;
  std::string made;
  for (const auto& mistake : explanation.find("mistakes")->items()) {
    made += (made.empty() ? "" : " + ") + *mistake.find("name")->string_if();
  }
  out.push_back(made);
  if (const auto* same = explanation.find("same")) {
    for (const auto& label : same->items()) out.push_back(*label.string_if());
  }
  return out;
}

}  // namespace

class CheckCases : public testing::TestWithParam<FieldCase> {};

TEST_P(CheckCases, IsClearedOrNamed) {
  const FieldCase& c = GetParam();
  const ScratchFolder scratch;
  write_text(scratch.file("dump.json"), c.dump);
  std::vector<std::string> arguments{"check", scratch.file("dump.json"), "--json"};
  arguments.insert(arguments.end(), c.flags.begin(), c.flags.end());
  const Ended ended = run_attest(arguments);
  EXPECT_EQ(ended.code, c.code) << ended.err << ended.out;
  if (c.names.empty()) return;
  const auto report = io::parse_json(ended.out, "report");
  ASSERT_TRUE(report) << ended.out << ended.err;
  const auto* explanations = report->find("explanations");
  ASSERT_NE(explanations, nullptr);
  ASSERT_FALSE(explanations->items().empty());
  const auto labels = labels_of(explanations->items().front());
  const bool named = std::any_of(labels.begin(), labels.end(), [&](const std::string& label) {
    return std::any_of(c.names.begin(), c.names.end(), [&](const std::string& name) {
      return label == name || label.rfind(name + " (", 0) == 0;
    });
  });
  EXPECT_TRUE(named) << "found " << labels.front() << "\n" << ended.out;
}

INSTANTIATE_TEST_SUITE_P(Field, CheckCases, testing::ValuesIn(field_cases()),
                         [](const testing::TestParamInfo<FieldCase>& field) {
                           std::string name = field.param.name;
                           std::replace_if(
                               name.begin(), name.end(), [](char c) { return !std::isalnum(c); },
                               '_');
                           return name;
                         });
