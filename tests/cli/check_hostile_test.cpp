// SPDX-License-Identifier: MIT
// attest check, attest probe and attest diff --stages on input that somebody got wrong.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "check_dumps.h"

namespace attest::test {
namespace {

const std::vector<std::string> plain{"--causal", "none"};

Tensor<double> filled(Shape shape, double value) {
  Tensor<double> out(std::move(shape));
  for (double& x : out.elements()) x = value;
  return out;
}

void expect_refused(const Ended& ended, const std::string& id, const std::string& part) {
  EXPECT_EQ(ended.code, 2) << ended.out << ended.err;
  EXPECT_EQ(ended.out, "");
  EXPECT_TRUE(says(ended.err, "error " + id + ":")) << ended.err;
  EXPECT_TRUE(says(ended.err, part)) << ended.err;
}

// ---- what cannot be told --------------------------------------------------------------------------

TEST(HostileCheck, ScoresTooLargeForTheirTypeTellNothing) {
  AttentionCase call = grouped();
  for (double& x : call.query.elements()) x = static_cast<float>(x * 1e10);
  // Right or wrong, nothing is beyond what rounding may do to such scores.
  for (const Tensor<double>& output : {output_of(call), Tensor<double>({2, 4, 3, 7})}) {
    const Ended ended = checked(dump_of(call, output), plain);
    EXPECT_EQ(ended.code, 3) << ended.out;
    EXPECT_TRUE(says(ended.out, "CANNOT TELL")) << ended.out;
  }
  const Ended unclaimed = checked(dump_of(call, output_of(call)), {});
  EXPECT_EQ(unclaimed.code, 3) << unclaimed.out;
  EXPECT_TRUE(says(unclaimed.out, "zeros would not be either")) << unclaimed.out;
}

TEST(HostileCheck, NothingButZerosTellsNothing) {
  AttentionCase call;
  call.query = Tensor<double>({2, 4, 3, 6});
  call.key = Tensor<double>({2, 2, 5, 6});
  call.value = Tensor<double>({2, 2, 5, 7});
  const io::NamedTensors file = dump_of(call, Tensor<double>({2, 4, 3, 7}));
  EXPECT_EQ(checked(file, plain).code, 3);
  EXPECT_EQ(checked(file, {}).code, 3);
}

TEST(HostileCheck, RowsWithoutKeysAreZeroAndRight) {
  AttentionCase call = grouped();
  call.mask.key_lengths = {0, 0};
  call.empty_row = EmptyRow::zero;
  io::NamedTensors file = dump_of(call, output_of(call));
  const Ended ended =
      checked(file, {"--causal", "none", "--key-lengths", "0", "--empty-row", "zero"});
  EXPECT_EQ(ended.code, 0) << ended.out << ended.err;
}

// ---- what is missing ------------------------------------------------------------------------------

TEST(HostileCheck, SumsDoNotFollowFromWeights) {
  const AttentionCase call = grouped();
  const auto result = lab::attention(call.inputs(), call.options()).value();
  io::NamedTensors file;
  file.add("weights", f32(result.weights));
  file.add("log_sum_exp", f32(result.log_sum_exp));
  expect_refused(checked(file, plain), "missing-tensor", "scores and weights");
  file.add("value", f32(call.value));
  file.add("output", f32(result.output));
  const Ended ended = checked(file, plain);
  EXPECT_EQ(ended.code, 0) << ended.out;
  EXPECT_TRUE(says(ended.err, "'log_sum_exp' is not judged")) << ended.err;
}

TEST(HostileCheck, OutputsAndSumsAloneSayWhatIsWanted) {
  const AttentionCase call = grouped();
  const auto result = lab::attention(call.inputs(), call.options()).value();
  io::NamedTensors file;
  file.add("log_sum_exp", f32(result.log_sum_exp));
  expect_refused(checked(file, plain), "missing-tensor", "query and key are missing");
  file.add("value", f32(call.value));
  file.add("output", f32(result.output));
  expect_refused(checked(file, plain), "missing-tensor", "query and key are missing");
}

TEST(HostileCheck, SaysWhichTensorIsEmpty) {
  AttentionCase call = grouped();
  call.key = Tensor<double>({2, 2, 0, 6});
  call.value = Tensor<double>({2, 2, 0, 7});
  expect_refused(checked(dump_of(call, Tensor<double>({2, 4, 3, 7})), plain), "nothing-to-compare",
                 "key is empty, [2, 2, 0, 6]");
}

TEST(HostileCheck, SaysWhatDoesNotFit) {
  AttentionCase call = grouped();
  const Tensor<double> output = output_of(call);
  io::NamedTensors file = dump_of(call, output);
  file.tensors[2].second = f32(bell({2, 2, 6, 7}, 3));
  const Ended value = checked(file, plain);
  EXPECT_TRUE(says(value.err, "value")) << value.err;
  EXPECT_EQ(value.code, 2);
  file = dump_of(call, output);
  file.add("mask", AnyTensor(DType::boolean, {2, 2, 3, 5}));
  const Ended mask = checked(file, plain);
  EXPECT_EQ(mask.code, 2);
  EXPECT_TRUE(says(mask.err, "mask")) << mask.err;
  const Ended slopes = checked(dump_of(call, output), {"--alibi-slopes", "1,2"});
  EXPECT_EQ(slopes.code, 2);
  EXPECT_TRUE(says(slopes.err, "alibi")) << slopes.err;
}

// ---- gradients ------------------------------------------------------------------------------------

TEST(HostileCheck, GradientsNeedNumbersThatCameIn) {
  const AttentionCase call = grouped();
  io::NamedTensors file = dump_of(call, output_of(call));
  file.add("d_value", f32(bell({2, 2, 5, 7}, 8)));
  file.add("d_output", f32(filled({2, 4, 3, 7}, std::nan(""))));
  expect_refused(checked(file, plain), "no-numbers", "d_output holds nothing but NaN");
  file.tensors.back().second = AnyTensor(DType::i32, {2, 4, 3, 7});
  expect_refused(checked(file, plain), "bad-dtype", "d_output holds i32");
}

// ---- names and files ------------------------------------------------------------------------------

TEST(HostileCheck, NamesReachNoTerminalAsTheyAre) {
  const ScratchFolder scratch;
  const AttentionCase call = grouped();
  const std::string turned = "\xE2\x80\xAE";  // U+202E: what follows runs from right to left
  const std::string name = "out\x1b[2J\x07<b>" + turned;
  io::NamedTensors file = dump_of(call, bell({2, 4, 3, 7}, 9));
  file.tensors[3].first = name;
  const std::string page = scratch.file("page.html");
  const Ended ended = checked(file, {"--causal", "none", "--output", name, "--html", page});
  EXPECT_EQ(ended.code, 1) << ended.err;
  for (const std::string& text : {ended.out, ended.err, read_text(page)}) {
    EXPECT_EQ(text.find_first_of("\x1b\x07"), std::string::npos) << text;
    EXPECT_FALSE(says(text, turned)) << text;
  }
  EXPECT_FALSE(says(read_text(page), "<b>"));
  EXPECT_TRUE(says(ended.out, "out\\x1b[2J\\x07")) << ended.out;
}

TEST(HostileCheck, APageNeverTakesThePlaceOfADump) {
  const ScratchFolder scratch;
  const AttentionCase call = grouped();
  const std::string path = scratch.file("dump.safetensors");
  ASSERT_TRUE(io::write_tensors(path, dump_of(call, output_of(call))));
  const std::string before = read_text(path);
  expect_refused(run_attest({"check", path, "--causal", "none", "--html", path}), "bad-option",
                 "is a file that is read");
  expect_refused(run_attest({"check", path, "--block", "--html", path}), "bad-option",
                 "is a file that is read");
  EXPECT_TRUE(read_text(path) == before);
}

TEST(HostileCheck, APageStandsNeitherAmongTensorsNorInTheVerdict) {
  const ScratchFolder scratch;
  const AttentionCase call = grouped();
  const std::string folder = scratch.file("dump");
  ASSERT_TRUE(std::filesystem::create_directory(folder));
  for (const auto& [name, tensor] : dump_of(call, output_of(call)).tensors) {
    io::NamedTensors one;
    one.add(name, tensor);
    ASSERT_TRUE(io::write_tensors(folder + "/" + name + ".npy", one));
  }
  const std::string query = folder + "/query.npy", before = read_text(query);
  expect_refused(run_attest({"check", folder, "--causal", "none", "--html", query}), "bad-option",
                 "is a file that is read");
  EXPECT_TRUE(read_text(query) == before);
  const std::string page = folder + "/page.html";
  EXPECT_EQ(run_attest({"check", folder, "--causal", "none", "--html", page}).code, 0);
  expect_refused(run_attest({"check", folder, "--causal", "none", "--html", "-"}), "bad-option",
                 "name a file");
}

TEST(HostileCheck, OptionsThatNoCallTakesAreRefusedFirst) {
  const AttentionCase call = grouped();
  const std::string far = "9223372036854775807";
  const std::pair<std::vector<std::string>, std::string> all[] = {
      {{"--causal", "none", "--dropout", "1"}, "must lie in [0, 1); found 1"},
      {{"--causal", "none", "--dropout", "1.5"}, "must lie in [0, 1); found 1.5"},
      {{"--causal", far}, "must stay below 2^61"},
      {{"--causal", "none", "--window", far + "," + far}, "between 0 and 2^61"}};
  const auto result = lab::attention(call.inputs(), call.options()).value();
  io::NamedTensors chain;
  chain.add("weights", f32(result.weights));
  chain.add("value", f32(call.value));
  chain.add("output", f32(result.output));
  for (const auto& [options, part] : all) {
    expect_refused(checked(dump_of(call, output_of(call)), options), "bad-option", part);
    expect_refused(checked(chain, options), "bad-option", part);
  }
}

TEST(HostileCheck, SaysTheShapesThatTheFileHas) {
  const AttentionCase call = grouped();
  io::NamedTensors file = dump_of(call, output_of(call));
  expect_refused(checked(file, {"--causal", "none", "--mask", "query"}), "two-roles",
                 "--mask query");
  file.add("mask", AnyTensor(DType::boolean, {2, 3, 5}));
  expect_refused(checked(file, plain), "shape-mismatch",
                 "it has shape [2, 3, 5], read as [H, T, S]: if it is [B, T, S], store it as");
  file.tensors.back() = {"mask", AnyTensor(DType::boolean, {2, 5})};
  expect_refused(checked(file, plain), "shape-mismatch",
                 "it has shape [2, 5], read as [T, S]: if it is [B, S], store it as [B, 1, 1, S]");
  file.tensors.back() = {"mask", AnyTensor(DType::i64, {2, 1, 1, 5})};
  expect_refused(checked(file, plain), "wrong-dtype", "store it as such");
  file.tensors.back() = {"cu_seqlens", AnyTensor(DType::i32, {0})};
  expect_refused(checked(file, plain), "bad-rank", "query_starts is empty");
}

TEST(HostileCheck, ThePageQuotesWhatWasAsked) {
  const ScratchFolder scratch;
  const AttentionCase call = grouped();
  io::NamedTensors file = dump_of(call, output_of(call));
  file.tensors[3].first = "it's";
  const std::string page = scratch.file("page.html");
  const Ended ended = checked(file, {"--causal", "none", "--output", "it's", "--html", page});
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_TRUE(says(read_text(page), "--output &#39;it&#39;\\&#39;&#39;s&#39;"));
}

TEST(HostileCheck, NoOptionIsReadAndForgotten) {
  const AttentionCase call = grouped();
  expect_refused(run_attest({"check", "--list", "--scale", "2"}), "usage", "--scale");
  expect_refused(run_attest({"check", "--explain", "causal.top_left", "--causal", "none"}), "usage",
                 "--causal");
  expect_refused(checked(dump_of(call, output_of(call)), {"--most-mistakes", "2"}), "not-used",
                 "--most-mistakes");
}

// ---- two dumps ------------------------------------------------------------------------------------

Ended diffed(const io::NamedTensors& first, const io::NamedTensors& second,
             std::vector<std::string> arguments = plain) {
  const ScratchFolder scratch;
  const std::string a = scratch.file("a.safetensors"), b = scratch.file("b.safetensors");
  EXPECT_TRUE(io::write_tensors(a, first));
  EXPECT_TRUE(io::write_tensors(b, second));
  arguments.insert(arguments.begin(), {"diff", "--stages", a, b});
  return run_attest(arguments);
}

TEST(HostileDiff, ANaNInBothIsNoMatch) {
  const AttentionCase call = grouped();
  Tensor<double> output = output_of(call);
  output(1, 2, 0, 3) = std::nan("");
  const io::NamedTensors dump = dump_of(call, output);
  const Ended ended = diffed(dump, dump);
  EXPECT_EQ(ended.code, 3) << ended.out;
  EXPECT_TRUE(says(ended.out, "cannot tell: 1 numbers are NaN in both")) << ended.out;
}

TEST(HostileDiff, SumsThatDifferAreToldWithoutScores) {
  const AttentionCase call = grouped();
  const auto result = lab::attention(call.inputs(), call.options()).value();
  io::NamedTensors first;
  first.add("weights", f32(result.weights));
  first.add("log_sum_exp", f32(result.log_sum_exp));
  first.add("value", f32(call.value));
  first.add("output", f32(result.output));
  io::NamedTensors second = first;
  second.tensors[1].second = f32(bell({2, 4, 3}, 4));
  const Ended ended = diffed(first, second);
  EXPECT_EQ(ended.code, 1) << ended.out << ended.err;
  EXPECT_TRUE(says(ended.out, "log_sum_exp")) << ended.out;
}

TEST(HostileDiff, GradientsAreNotDroppedInSilence) {
  const AttentionCase call = grouped();
  io::NamedTensors dump = dump_of(call, output_of(call));
  dump.add("d_value", f32(bell({2, 2, 5, 7}, 8)));
  dump.add("d_output", f32(bell({2, 4, 3, 7}, 9)));
  const Ended said = diffed(dump, dump);
  EXPECT_EQ(said.code, 0) << said.out << said.err;
  EXPECT_TRUE(says(said.err, "gradients are not compared")) << said.err;
  expect_refused(diffed(dump, dump, {"--causal", "none", "--d-value", "d_value"}), "not-used",
                 "--d-value");
}

// ---- probes ---------------------------------------------------------------------------------------

TEST(HostileProbe, FeaturesThatExcludeEachOtherAreRefused) {
  const ScratchFolder scratch;
  const std::string path = scratch.file("probe.safetensors");
  for (const char* both : {"top-left,bottom-right", "rope,rope-interleaved"}) {
    expect_refused(run_attest({"probe", path, "--features", both}), "features-conflict",
                   "name one");
  }
  expect_refused(run_attest({"probe", path, "--force"}), "usage", "--snippet");
}

TEST(HostileProbe, ItsNameIsFitForAProgram) {
  const ScratchFolder scratch;
  for (const char* name : {"a\"b.safetensors", "a\\.safetensors", "a\nb.safetensors",
                           "a\x1b[2J.safetensors", "a\xff.safetensors"}) {
    expect_refused(run_attest({"probe", scratch.file(name), "--seed", "1"}), "bad-option",
                   "stands in programs");
  }
}

TEST(HostileProbe, TensorsOfAnotherProbeDoNotStayBesideIt) {
  const ScratchFolder scratch;
  const std::string folder = scratch.file("probe");
  ASSERT_EQ(run_attest({"probe", folder, "--seed", "1", "--features", "mask"}).code, 0);
  EXPECT_EQ(run_attest({"probe", folder, "--seed", "2", "--features", "mask"}).code, 0);
  expect_refused(run_attest({"probe", folder, "--seed", "1"}), "file-exists", "holds mask.npy");
}

}  // namespace
}  // namespace attest::test
