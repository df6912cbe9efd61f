// SPDX-License-Identifier: MIT
// attest check: how it ends, what it says, and the reports it writes.
#include <gtest/gtest.h>

#include "attest/io/json.h"
#include "check_dumps.h"

namespace attest::test {
namespace {

// ---- verdicts -----------------------------------------------------------------------------------

TEST(CheckCommand, EndsWith0ForRightAttention) {
  AttentionCase call = grouped();
  EXPECT_EQ(checked(dump_of(call, output_of(call)), {"--causal", "none"}).code, 0);
  call.mask = Mask::causal_bottom_right();
  for (const char* name : {"dump.safetensors", "dump.npz", "dump.json"}) {
    const Ended ended = checked(dump_of(call, output_of(call)), {"--causal", "bottom-right"}, name);
    EXPECT_EQ(ended.code, 0) << name << ended.out << ended.err;
    EXPECT_TRUE(ended.out.starts_with("RIGHT")) << ended.out;
  }
}

TEST(CheckCommand, EndsWith1AndNamesTheMistake) {
  AttentionCase call = grouped();
  call.mask = Mask::causal_top_left();
  const Ended ended = checked(dump_of(call, output_of(call)), {"--causal", "bottom-right"});
  EXPECT_EQ(ended.code, 1) << ended.out << ended.err;
  EXPECT_TRUE(says(ended.out, "causal.top_left")) << ended.out;
}

TEST(CheckCommand, OneWrongNumberIsEnough) {
  const AttentionCase call = grouped();
  Tensor<double> output = output_of(call);
  output(1, 2, 0, 3) += 0.001;
  const Ended ended = checked(dump_of(call, output), {"--causal", "none"});
  EXPECT_EQ(ended.code, 1) << ended.out;
  EXPECT_TRUE(says(ended.out, "batch1.h2.output[0,3]")) << ended.out;
}

TEST(CheckCommand, ANaNNeverPasses) {
  const AttentionCase call = grouped();
  Tensor<double> output = output_of(call);
  output(0, 0, 0, 0) = std::nan("");
  EXPECT_EQ(checked(dump_of(call, output), {"--causal", "none"}).code, 1);
}

TEST(CheckCommand, WithoutAClaimTheUsualReadingsAreListed) {
  AttentionCase call = grouped();
  call.mask = Mask::causal_bottom_right();
  const Ended ended = checked(dump_of(call, output_of(call)), {});
  EXPECT_EQ(ended.code, 3) << ended.out << ended.err;
  EXPECT_TRUE(says(ended.out, "gives them    causal, the last query at the last key")) << ended.out;
  EXPECT_TRUE(says(ended.out, "--causal top-left")) << ended.out;
  const auto json = io::parse_json(checked(dump_of(call, output_of(call)), {"--json"}).out, "out");
  ASSERT_TRUE(json) << json.failure().message;
  std::size_t reproducing = 0;
  for (const io::Json& each : json->find("readings")->items()) {
    reproducing += *each.find("reproduces")->boolean_if() ? 1 : 0;
  }
  EXPECT_EQ(json->find("readings")->items().size(), 3U);
  EXPECT_EQ(reproducing, 1U);
}

TEST(CheckCommand, WithoutAClaimAllReadingsMayAgree) {
  AttentionCase call;  // one query and one key: no mask changes anything
  call.query = bell({1, 2, 1, 4}, 1);
  call.key = bell({1, 2, 1, 4}, 2);
  call.value = bell({1, 2, 1, 3}, 3);
  const Ended ended = checked(dump_of(call, output_of(call)), {});
  EXPECT_EQ(ended.code, 0) << ended.out << ended.err;
}

TEST(CheckCommand, ReadsAMaskOfEitherPolarityAsTheFrameworkDoes) {
  AttentionCase call = grouped();
  call.visible = Tensor<bool>({2, 1, 3, 5});
  Tensor<bool> hidden({2, 1, 3, 5});
  for (std::size_t n = 0; n < hidden.size(); ++n) {
    call.visible->elements()[n] = n % 3 != 1;
    hidden.elements()[n] = n % 3 == 1;
  }
  io::NamedTensors file = dump_of(call, output_of(call));
  file.add("attn_mask", hidden);
  EXPECT_EQ(checked(file, {"--convention", "pytorch-mha", "--layout", "bhtd"}).code, 0);
  const Ended wrong = checked(file, {"--convention", "pytorch-sdpa"});
  EXPECT_EQ(wrong.code, 1) << wrong.out << wrong.err;
  EXPECT_TRUE(says(wrong.out, "mask.inverted")) << wrong.out;
  const Ended open = checked(file, {});
  EXPECT_EQ(open.code, 3);
  EXPECT_TRUE(says(open.out, "mask: true = hidden")) << open.out;
}

// ---- what the file says of itself ---------------------------------------------------------------

TEST(CheckCommand, ReadsTheFilesClaimAndTheCommandLineWins) {
  AttentionCase call = grouped();
  call.mask = Mask::causal_bottom_right();
  call.scale = 0.25;
  io::NamedTensors file = dump_of(call, output_of(call));
  file.metadata = {{"attest.causal", "bottom-right"}, {"attest.scale", "0.25"}};
  const Ended right = checked(file, {});
  EXPECT_EQ(right.code, 0) << right.out << right.err;
  EXPECT_TRUE(says(right.err, "--causal=bottom-right")) << right.err;
  EXPECT_EQ(checked(file, {"--scale", "0.5"}).code, 1);
  file.metadata[0].second = "upside-down";
  EXPECT_EQ(checked(file, {}).code, 2);
}

TEST(CheckCommand, ReadsAnOnnxNode) {
  // A mask that is shorter than the keys, cached keys, grouped packed heads: opset 24.
  AttentionCase call = grouped();
  call.mask = Mask::causal_at(2);
  call.visible = Tensor<bool>({1, 1, 3, 5});
  Tensor<bool> mask({3, 4});
  for (std::int64_t i = 0; i < 3; ++i) {
    for (std::int64_t j = 0; j < 4; ++j) {
      mask(i, j) = i + j != 2;
      (*call.visible)(0, 0, i, j) = i + j != 2;
    }
  }
  io::NamedTensors file;
  const auto part = [](const Tensor<double>& x, std::int64_t from, std::int64_t to) {
    Tensor<double> out({x.extent(0), x.extent(1), to - from, x.extent(3)});
    for (std::int64_t b = 0; b < x.extent(0); ++b) {
      for (std::int64_t h = 0; h < x.extent(1); ++h) {
        for (std::int64_t t = from; t < to; ++t) {
          for (std::int64_t d = 0; d < x.extent(3); ++d) out(b, h, t - from, d) = x(b, h, t, d);
        }
      }
    }
    return out;
  };
  file.add("in.Q", f32(packed(call.query)));
  file.add("in.K", f32(packed(part(call.key, 2, 5))));
  file.add("in.V", f32(packed(part(call.value, 2, 5))));
  file.add("in.past_key", f32(part(call.key, 0, 2)));
  file.add("in.past_value", f32(part(call.value, 0, 2)));
  file.add("in.attn_mask", mask);
  file.add("out.Y", f32(packed(output_of(call))));
  file.metadata = {{"op", "Attention"},
                   {"opset", "24"},
                   {"attributes", R"({"is_causal":1,"q_num_heads":4,"kv_num_heads":2})"}};
  const Ended right = checked(file, {});
  EXPECT_EQ(right.code, 0) << right.out << right.err;
  file.metadata[2].second = R"({"is_causal":0,"q_num_heads":4,"kv_num_heads":2})";
  EXPECT_EQ(checked(file, {}).code, 1);
  file.metadata[1].second = "9";
  EXPECT_EQ(checked(file, {}).code, 2);
}

// ---- reports ------------------------------------------------------------------------------------

TEST(CheckCommand, JsonIsJson) {
  AttentionCase call = grouped();
  call.mask = Mask::causal_top_left();
  const Ended ended =
      checked(dump_of(call, output_of(call)), {"--causal", "bottom-right", "--json"});
  EXPECT_EQ(ended.code, 1);
  const auto json = io::parse_json(ended.out, "out");
  ASSERT_TRUE(json) << json.failure().message;
  ASSERT_NE(json->find("verdict"), nullptr) << ended.out;
  EXPECT_EQ(*json->find("verdict")->string_if(), "wrong, and named");
}

TEST(CheckCommand, ThePageLeavesForNowhere) {
  const ScratchFolder scratch;
  AttentionCase call = grouped();
  call.mask = Mask::causal_top_left();
  io::NamedTensors file = dump_of(call, output_of(call));
  file.tensors[3].first = "</script><img src=x>";
  const std::string path = scratch.file("report.html");
  const Ended ended = checked(
      file, {"--causal", "bottom-right", "--output", "</script><img src=x>", "--html", path});
  EXPECT_EQ(ended.code, 1) << ended.err;
  const std::string page = read_text(path);
  ASSERT_TRUE(says(page, "</html>"));
  for (const char* address :
       {"http:", "https:", "url(", "@import", "<link", "href", "<img src=x"}) {
    EXPECT_FALSE(says(page, address)) << address;
  }
  for (std::size_t at = page.find("src="); at != std::string::npos;
       at = page.find("src=", at + 1)) {
    const std::string source = page.substr(at, 16);
    EXPECT_TRUE(source.starts_with("src=\"data:image") || source.starts_with("src=x")) << source;
  }
  // A picture for each of 2 x 4 heads, and the scale.
  std::size_t pictures = 0;
  for (std::size_t at = page.find("<img "); at != std::string::npos;
       at = page.find("<img ", at + 1)) {
    ++pictures;
  }
  EXPECT_EQ(pictures, 9U);
  EXPECT_EQ(checked(file, {"--html", "/nowhere/report.html"}).code, 2);
}

TEST(CheckCommand, ThePageOfMistakesIsThatOfTheCatalogue) {
  const Ended ended = run_attest({"check", "--mistakes"});
  EXPECT_EQ(ended.code, 0);
  EXPECT_TRUE(ended.out == read_text(ATTEST_SOURCE_DIR "/docs/mistakes.md"))
      << "write it anew: attest check --mistakes > docs/mistakes.md";
}

TEST(CheckCommand, ListsAndExplainsMistakes) {
  const Ended list = run_attest({"check", "--list"});
  EXPECT_EQ(list.code, 0);
  EXPECT_TRUE(says(list.out, "causal.top_left"));
  const Ended one = run_attest({"check", "--explain", "causal.top_left"});
  EXPECT_EQ(one.code, 0);
  EXPECT_TRUE(says(one.out, "look for: "));
  const Ended none = run_attest({"check", "--explain", "causal.sideways"});
  EXPECT_EQ(none.code, 2);
  EXPECT_TRUE(says(none.err, "causal.top_left")) << none.err;
}

}  // namespace
}  // namespace attest::test
