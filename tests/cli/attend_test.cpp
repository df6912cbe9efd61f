// SPDX-License-Identifier: MIT
// attest attend: files in every format and layout, every option by name, results printed or written.
#include <gtest/gtest.h>

#include "attest/base/attention_case.h"
#include "attest/base/random.h"
#include "attest/io/tensor_file.h"
#include "attest/lab/attention.h"
#include "run_program.h"

namespace attest::test {
namespace {

Tensor<double> bell(Shape shape, std::uint64_t seed) {
  Random random(seed);
  Tensor<double> out(std::move(shape));
  for (double& x : out.elements()) x = random.bell();
  return out;
}

/// B 2, H 4 over G 2, T 3, S 5, D 3, E 2.
AttentionCase grouped() {
  AttentionCase call;
  call.query = bell({2, 4, 3, 3}, 1);
  call.key = bell({2, 2, 5, 3}, 2);
  call.value = bell({2, 2, 5, 2}, 3);
  return call;
}

void write(const std::string& path, const AttentionCase& call) {
  io::NamedTensors file;
  file.add("query", call.query);
  file.add("key", call.key);
  file.add("value", call.value);
  ASSERT_TRUE(io::write_tensors(path, file));
}

/// Runs attend with --out and returns the written output.
Tensor<double> attended(std::vector<std::string> arguments, const std::string& name = "output") {
  const ScratchFolder scratch;
  arguments.insert(arguments.begin(), "attend");
  arguments.insert(arguments.end(), {"--out", scratch.file("out.safetensors")});
  const Ended ended = run_attest(arguments);
  EXPECT_EQ(ended.code, 0) << ended.err;
  const auto file = io::read_tensors(scratch.file("out.safetensors"));
  if (!file || file->find(name) == nullptr) return {};
  return file->find(name)->to_f64(name).value();
}

void expect_same_bits(const Tensor<double>& found, const Tensor<double>& expected) {
  ASSERT_EQ(found.shape(), expected.shape());
  for (std::size_t n = 0; n < found.size(); ++n) {
    EXPECT_EQ(found.elements()[n], expected.elements()[n]) << "element " << n;
  }
}

TEST(Attend, GivesTheLibrarysBitsFromEveryFormat) {
  const ScratchFolder scratch;
  const AttentionCase call = grouped();
  const auto expected = lab::attention(call.inputs()).value().output;
  for (const char* name : {"dump.safetensors", "dump.npz", "dump.json"}) {
    write(scratch.file(name), call);
    expect_same_bits(attended({scratch.file(name)}), expected);
  }
}

TEST(Attend, ReadsSeparateFiles) {
  const ScratchFolder scratch;
  const AttentionCase call = grouped();
  for (const auto& [name, tensor] :
       {std::pair("q", &call.query), {"k", &call.key}, {"v", &call.value}}) {
    io::NamedTensors file;
    file.add(name, *tensor);
    ASSERT_TRUE(io::write_tensors(scratch.file(std::string(name) + ".npy"), file));
  }
  expect_same_bits(attended({"--query", scratch.file("q.npy"), "--key", scratch.file("k.npy"),
                             "--value", scratch.file("v.npy")}),
                   lab::attention(call.inputs()).value().output);
}

TEST(Attend, EveryOptionReachesTheCalculation) {
  const ScratchFolder scratch;
  const std::string path = scratch.file("dump.safetensors");
  const AttentionCase plain = grouped();
  write(path, plain);
  const auto expect = [&](std::vector<std::string> options, const AttentionCase& call) {
    options.insert(options.begin(), path);
    expect_same_bits(attended(options),
                     lab::attention(call.inputs(), call.options()).value().output);
  };
  AttentionCase call = plain;
  call.mask = Mask::causal_bottom_right();
  expect({"--causal", "bottom-right"}, call);
  call.mask = Mask::causal_top_left();
  expect({"--causal", "top-left"}, call);
  call.mask = Mask::causal_at(1);
  expect({"--causal", "1"}, call);
  call.mask = Mask::causal_at(1);
  expect({"--causal", "--query-offset", "1"}, call);
  call.mask = {};
  call.mask.window = {1, 2};
  expect({"--window", "1,2"}, call);
  call.mask.window = {std::nullopt, 0};
  expect({"--window", ",0"}, call);
  call.mask = {};
  call.mask.key_lengths = {5, 2};
  expect({"--key-lengths", "5,2"}, call);
  call = plain;
  call.scale = -0.25;
  expect({"--scale", "-0.25"}, call);
  call = plain;
  call.softcap = 0.5;
  expect({"--softcap", "0.5"}, call);
  call = plain;
  call.sink = {0, 1, -1, 2};
  expect({"--sink", "0,1,-1,2"}, call);
}

TEST(Attend, LayoutInIsLayoutOut) {
  const ScratchFolder scratch;
  const AttentionCase call = grouped();
  const auto expected = lab::attention(call.inputs()).value().output;  // [B, H, T, E]
  const auto swapped = [](const Tensor<double>& from, bool packed) {
    const std::int64_t B = from.extent(0), H = from.extent(1), T = from.extent(2),
                       D = from.extent(3);
    Tensor<double> out({B, T, H, D});
    for (std::int64_t n = 0; n < B * T * H * D; ++n) {
      const std::int64_t b = n / (T * H * D), t = n / (H * D) % T, h = n / D % H, d = n % D;
      out(b, t, h, d) = from(b, h, t, d);
    }
    return packed ? std::move(out).reshaped({B, T, H * D}) : std::move(out);
  };
  for (const bool packed : {false, true}) {
    const std::string path = scratch.file("dump.safetensors");
    write(path, {.query = swapped(call.query, packed),
                 .key = swapped(call.key, packed),
                 .value = swapped(call.value, packed)});
    auto arguments = packed ? std::vector<std::string>{path, "--layout",   "packed", "--heads",
                                                       "4",  "--kv-heads", "2"}
                            : std::vector<std::string>{path, "--layout", "bthd"};
    expect_same_bits(attended(arguments), swapped(expected, packed));
  }
}

TEST(Attend, WeightsAndLogSumExpComeOnRequest) {
  const ScratchFolder scratch;
  const AttentionCase call = grouped();
  write(scratch.file("dump.npz"), call);
  const auto expected = lab::attention(call.inputs()).value();
  expect_same_bits(attended({scratch.file("dump.npz"), "--weights"}, "weights"), expected.weights);
  expect_same_bits(attended({scratch.file("dump.npz"), "--lse"}, "log_sum_exp"),
                   expected.log_sum_exp);
}

TEST(Attend, OracleAgreesWithExactToItsPrintedDigits) {
  const ScratchFolder scratch;
  const AttentionCase call = grouped();
  write(scratch.file("dump.npz"), call);
  const auto exact = attended({scratch.file("dump.npz")});
  const auto oracle = attended({scratch.file("dump.npz"), "--oracle"});
  ASSERT_EQ(exact.shape(), oracle.shape());
  for (std::size_t n = 0; n < exact.size(); ++n) {
    EXPECT_NEAR(exact.elements()[n], oracle.elements()[n], 0x1p-48) << n;  // values below 4 in size
  }
  const Ended printed = run_attest({"attend", scratch.file("dump.npz"), "--oracle"});
  EXPECT_NE(printed.out.find("50 digits"), std::string::npos) << printed.out;
}

TEST(Attend, MaskPolarityFollowsTheConvention) {
  const ScratchFolder scratch;
  AttentionCase call;
  call.query = bell({2, 3}, 4);
  call.key = bell({3, 3}, 5);
  call.value = bell({3, 2}, 6);
  io::NamedTensors file;
  file.add("q", call.query);
  file.add("k", call.key);
  file.add("v", call.value);
  Tensor<bool> mask({2, 3});
  mask(0, 0) = mask(1, 1) = mask(1, 2) = true;
  file.add("mask", mask);
  ASSERT_TRUE(io::write_tensors(scratch.file("a.safetensors"), file));
  for (bool& cell : mask.elements()) cell = !cell;
  file.tensors.back().second = mask;
  ASSERT_TRUE(io::write_tensors(scratch.file("b.safetensors"), file));
  const auto sdpa = attended({scratch.file("a.safetensors"), "--convention", "pytorch-sdpa"});
  expect_same_bits(attended({scratch.file("b.safetensors"), "--convention", "pytorch-mha"}), sdpa);
  expect_same_bits(attended({scratch.file("a.safetensors")}), sdpa);
}

TEST(Attend, SaysWhatItTookForGrantedAndWhatItLeft) {
  const ScratchFolder scratch;
  io::NamedTensors file;
  for (const char* name : {"q", "k", "v", "logits"}) file.add(name, bell({2, 2}, 7));
  ASSERT_TRUE(io::write_tensors(scratch.file("dump.npz"), file));
  const Ended ended = run_attest({"attend", scratch.file("dump.npz")});
  EXPECT_EQ(ended.code, 0);
  EXPECT_NE(ended.err.find("reading 'q' as query"), std::string::npos) << ended.err;
  EXPECT_NE(ended.err.find("not used: logits"), std::string::npos) << ended.err;
}

TEST(Attend, BadInputIsOneSentenceAndExitTwo) {
  const ScratchFolder scratch;
  const std::string path = scratch.file("dump.safetensors");
  write(path, grouped());
  write_text(scratch.file("page.html"), "<!DOCTYPE html><html></html>");
  write_text(scratch.file("empty.npz"), "");
  const std::vector<std::pair<std::vector<std::string>, std::string>> wrong = {
      {{path, "--causal"}, "causal-needs-square"},
      {{path, "--key-lengths", "6"}, "bad-option"},
      {{path, "--window", "x"}, "bad-window"},
      {{path, "--window", "3"}, "bad-window"},
      {{path, "--softcap", "0"}, "bad-option"},
      {{path, "--layout", "zigzag"}, "bad-layout"},
      {{path, "--layout", "packed"}, "bad-rank"},
      {{path, "--sink", "1"}, "shape-mismatch"},
      {{path, "--empty-row", "mean"}, "bad-option"},
      {{path, "--convention", "tensorfish"}, "unknown-convention"},
      {{path, "--out", scratch.file("x.txt")}, "unknown-format"},
      {{path, "--out", scratch.file("none/x.npz")}, "cannot-write"},
      {{path, "--out", scratch.file("x.npz"), "--dtype", "i8"}, "bad-dtype"},
      {{path, "--out", scratch.file("x.npy"), "--dtype", "bf16"}, "unsupported-dtype"},
      {{path, "--out", scratch.file("x.npz"), "--dtype", "bf16"}, "unsupported-dtype"},
      {{path, "--query-starts", "0,7", "--key-starts", "0,7"},
       "bad-option: [attention] query_starts must"},
      {{scratch.file("nothing.npz")}, ""},
      {{scratch.file("page.html")}, "html-page"},
      {{scratch.file("empty.npz")}, ""}};
  for (const auto& [options, id] : wrong) {
    auto arguments = options;
    arguments.insert(arguments.begin(), "attend");
    const Ended ended = run_attest(arguments);
    EXPECT_EQ(ended.code, 2) << ended.out;
    EXPECT_EQ(ended.out, "");
    EXPECT_TRUE(ended.err.find("error " + id) != std::string::npos) << id << ": " << ended.err;
  }
}

TEST(Attend, WhatCannotBeWrittenIsRefusedBeforeAnythingIsComputed) {
  // The oracle would fail too, with another id: a query that sees no key. It is not asked.
  const ScratchFolder scratch;
  write(scratch.file("dump.npz"), grouped());
  const Ended ended = run_attest({"attend", scratch.file("dump.npz"), "--causal", "-1", "--oracle",
                                  "--dtype", "bf16", "--out", scratch.file("o.npy")});
  EXPECT_EQ(ended.code, 2);
  EXPECT_TRUE(ended.err.starts_with("error unsupported-dtype: ")) << ended.err;
  io::NamedTensors file;
  for (const char* name : {"query", "key", "value"}) {
    file.add(name, AnyTensor::from_f64(bell({2, 2}, 7), DType::bf16));
  }
  ASSERT_TRUE(io::write_tensors(scratch.file("bf16.safetensors"), file));
  const Ended engine = run_attest({"attend", scratch.file("bf16.safetensors"), "--causal", "-1",
                                   "--engine", "--out", scratch.file("o.npz")});
  EXPECT_EQ(engine.code, 2);
  EXPECT_TRUE(engine.err.starts_with("error unsupported-dtype: ")) << engine.err;
}

TEST(Attend, TheOracleRefusesWhatWouldTakeForEver) {
  const ScratchFolder scratch;
  AttentionCase call;  // 2^26 pairs
  call.query = bell({1, 1, 8192, 1}, 1);
  call.key = bell({1, 1, 8192, 1}, 2);
  call.value = bell({1, 1, 8192, 1}, 3);
  write(scratch.file("dump.npz"), call);
  const Ended ended = run_attest({"attend", scratch.file("dump.npz"), "--oracle"});
  EXPECT_EQ(ended.code, 2);
  EXPECT_EQ(ended.out, "");
  EXPECT_TRUE(ended.err.starts_with("error too-large: ")) << ended.err;
  EXPECT_NE(ended.err.find("about 11 minutes"), std::string::npos) << ended.err;
  EXPECT_NE(ended.err.find("--compare"), std::string::npos) << ended.err;
}

TEST(Attend, ASeedIsAnyNumberOf64Bits) {
  const ScratchFolder scratch;
  AttentionCase call = grouped();
  write(scratch.file("dump.npz"), call);
  call.dropout = {0.5, UINT64_MAX};
  expect_same_bits(
      attended({scratch.file("dump.npz"), "--dropout", "0.5", "--seed", "18446744073709551615"}),
      lab::attention(call.inputs(), call.options()).value().output);
}

TEST(Attend, AnEmptyRowIsAnErrorUnlessToldOtherwise) {
  const ScratchFolder scratch;
  write(scratch.file("dump.npz"), grouped());
  const Ended ended = run_attest({"attend", scratch.file("dump.npz"), "--causal", "-1"});
  EXPECT_EQ(ended.code, 2);
  EXPECT_TRUE(ended.err.starts_with("error no-visible-key: ")) << ended.err;
  const auto zero = attended({scratch.file("dump.npz"), "--causal", "-1", "--empty-row", "zero"});
  EXPECT_EQ(zero(0, 0, 0, 0), 0);
  EXPECT_NE(zero(0, 0, 1, 0), 0);
}

}  // namespace
}  // namespace attest::test
