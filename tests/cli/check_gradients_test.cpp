// SPDX-License-Identifier: MIT
// attest check on a backward pass: gradients beside the output, or alone.
#include <gtest/gtest.h>

#include <cmath>

#include "attest/io/json.h"
#include "attest/lab/attention_backward.h"
#include "check_dumps.h"

namespace attest::test {
namespace {

struct Backward {
  AttentionCase call = grouped();
  Tensor<double> d_output = bell({2, 4, 3, 7}, 4);
  lab::AttentionGradients gradients;
  Backward() {
    call.mask = Mask::causal_bottom_right();
    gradients =
        lab::attention_backward(call.inputs(), call.options(), {.d_output = d_output.view<4>()})
            .value();
  }
  [[nodiscard]] io::NamedTensors file() const {
    io::NamedTensors out = dump_of(call, output_of(call));
    out.add("grad_output", f32(d_output));
    out.add("dq", f32(gradients.d_query));
    out.add("dk", f32(gradients.d_key));
    out.add("dv", f32(gradients.d_value));
    return out;
  }
};

const std::vector<std::string> claim{"--causal", "bottom-right"};

TEST(CheckGradients, JudgesThemBesideTheOutput) {
  const Backward pass;
  const Ended right = checked(pass.file(), claim);
  EXPECT_EQ(right.code, 0) << right.out << right.err;
  EXPECT_TRUE(says(right.out, "dk")) << right.out;

  io::NamedTensors file = pass.file();
  Tensor<double> unscaled = pass.gradients.d_query;
  for (double& x : unscaled.elements()) x *= std::sqrt(6.0);
  file.tensors[5].second = f32(unscaled);
  const Ended wrong = checked(file, claim);
  EXPECT_EQ(wrong.code, 1) << wrong.out << wrong.err;
  EXPECT_TRUE(says(wrong.out, "scale")) << wrong.out;
  const auto json =
      io::parse_json(checked(file, {"--causal", "bottom-right", "--json"}).out, "out");
  ASSERT_TRUE(json) << json.failure().message;
  EXPECT_EQ(json->find("stages")->items().size(), 4U);
}

TEST(CheckGradients, AFactorThatNothingElseGivesIsSaid) {
  const Backward pass;
  io::NamedTensors file = pass.file();
  for (const std::size_t n : {5U, 6U, 7U}) {
    Tensor<double> less = file.tensors[n].second.to_f64("").value();
    for (double& x : less.elements()) x *= 0.371;
    file.tensors[n].second = f32(less);
  }
  const Ended ended = checked(file, claim);
  EXPECT_EQ(ended.code, 1) << ended.out << ended.err;
  EXPECT_TRUE(says(ended.out, "WRONG: gradient.other_factor (0.371) gives")) << ended.out;
  EXPECT_TRUE(says(checked(file, {"--causal", "bottom-right", "--json"}).out,
                   "\"label\":\"gradient.other_factor (0.371)\""));
}

TEST(CheckGradients, NumbersOfF32InAnF64FileAreJudgedAsF32) {
  const Backward pass;
  io::NamedTensors wide;
  for (const auto& [name, tensor] : pass.file().tensors) {
    wide.add(name, AnyTensor::from_f64(tensor.to_f64(name).value(), DType::f64));
  }
  const Ended right = checked(wide, claim);
  EXPECT_EQ(right.code, 0) << right.out << right.err;
  EXPECT_TRUE(says(right.err, "of the gradients fits f32")) << right.err;
  // All that is judged is said to be.
  EXPECT_TRUE(says(right.out, "output (f64), dq, dk, dv against")) << right.out;
}

TEST(CheckGradients, JudgesThemAlone) {
  const Backward pass;
  io::NamedTensors file;
  for (auto& [name, tensor] : pass.file().tensors) {
    if (name != "output") file.add(name, tensor);
  }
  const Ended right = checked(file, claim);
  EXPECT_EQ(right.code, 0) << right.out << right.err;
}

TEST(CheckGradients, AWrongOutputIsNamedBeforeThem) {
  Backward pass;
  io::NamedTensors file = pass.file();
  AttentionCase top_left = pass.call;
  top_left.mask = Mask::causal_top_left();
  file.tensors[3].second = f32(output_of(top_left));
  const Ended ended = checked(file, claim);
  EXPECT_EQ(ended.code, 1);
  EXPECT_TRUE(says(ended.out, "causal.top_left")) << ended.out;
}

TEST(CheckGradients, NeedWhatTheyComeFrom) {
  const Backward pass;
  io::NamedTensors file = pass.file();
  file.tensors.erase(file.tensors.begin() + 4);
  const Ended alone = checked(file, claim);
  EXPECT_EQ(alone.code, 2) << alone.out;
  EXPECT_TRUE(says(alone.err, "without d_output")) << alone.err;
}

/// Where nothing is claimed the usual readings are compared, as of an output.
TEST(CheckGradients, WithoutAClaimAreReadInAllUsualWays) {
  const Backward pass;
  const Ended beside = checked(pass.file(), {});
  EXPECT_EQ(beside.code, 3) << beside.out << beside.err;
  EXPECT_TRUE(says(beside.out, "gives them    causal, the last query at the last key"))
      << beside.out;
  io::NamedTensors alone;
  for (auto& [name, tensor] : pass.file().tensors) {
    if (name != "output") alone.add(name, tensor);
  }
  const Ended one = checked(alone, {});
  EXPECT_EQ(one.code, 3) << one.out << one.err;
  EXPECT_TRUE(says(one.out, "gives them    causal, the last query at the last key")) << one.out;
  EXPECT_TRUE(says(one.out, "does not      every query sees every key")) << one.out;
  EXPECT_FALSE(says(one.out, "gives them    every query")) << one.out;

  // One query that sees all keys: there plain and causal are one.
  AttentionCase call = grouped();
  call.query = bell({2, 4, 1, 6}, 1);
  const Tensor<double> d_output = bell({2, 4, 1, 7}, 4);
  const auto gradients =
      lab::attention_backward(call.inputs(), call.options(), {.d_output = d_output.view<4>()})
          .value();
  io::NamedTensors file;
  file.add("query", f32(call.query));
  file.add("key", f32(call.key));
  file.add("value", f32(call.value));
  file.add("d_output", f32(d_output));
  file.add("d_query", f32(gradients.d_query));
  const Ended cannot = checked(file, {});
  EXPECT_EQ(cannot.code, 3) << cannot.out;  // top-left sees one key
  call.key = call.value = bell({2, 2, 1, 6}, 2);
  Tensor<double> flow = bell({2, 4, 1, 6}, 4);
  const auto only =
      lab::attention_backward(call.inputs(), call.options(), {.d_output = flow.view<4>()}).value();
  file = {};
  file.add("query", f32(call.query));
  file.add("key", f32(call.key));
  file.add("value", f32(call.value));
  file.add("d_output", f32(flow));
  file.add("d_value", f32(only.d_value));
  const Ended all = checked(file, {});
  EXPECT_EQ(all.code, 0) << all.out << all.err;
  EXPECT_TRUE(says(all.out, "RIGHT: every usual reading")) << all.out;
}

Tensor<double> keys(const Tensor<double>& x, std::int64_t begin, std::int64_t end) {
  Tensor<double> out({x.extent(0), x.extent(1), end - begin, x.extent(3)});
  for (std::int64_t b = 0; b < x.extent(0); ++b) {
    for (std::int64_t g = 0; g < x.extent(1); ++g) {
      for (std::int64_t j = begin; j < end; ++j) {
        for (std::int64_t d = 0; d < x.extent(3); ++d) out(b, g, j - begin, d) = x(b, g, j, d);
      }
    }
  }
  return out;
}

/// Two keys of five came from a cache: gradients may be of all keys, or of the new ones.
TEST(CheckGradients, BehindACacheMayBeOfAllKeysOrOfTheNewOnes) {
  const Backward pass;
  const auto file = [&](const Tensor<double>& d_key, const Tensor<double>& d_value) {
    io::NamedTensors out;
    out.add("query", f32(pass.call.query));
    out.add("key", f32(keys(pass.call.key, 2, 5)));
    out.add("value", f32(keys(pass.call.value, 2, 5)));
    out.add("past_key", f32(keys(pass.call.key, 0, 2)));
    out.add("past_value", f32(keys(pass.call.value, 0, 2)));
    out.add("output", f32(output_of(pass.call)));
    out.add("d_output", f32(pass.d_output));
    out.add("d_query", f32(pass.gradients.d_query));
    out.add("d_key", f32(d_key));
    out.add("d_value", f32(d_value));
    return out;
  };
  const Tensor<double>&d_key = pass.gradients.d_key, &d_value = pass.gradients.d_value;
  const Ended whole = checked(file(d_key, d_value), claim);
  EXPECT_EQ(whole.code, 0) << whole.out << whole.err;
  EXPECT_TRUE(says(whole.err, "d_key has all 5 keys, the 2 cached ones first")) << whole.err;
  const Ended fresh = checked(file(keys(d_key, 2, 5), keys(d_value, 2, 5)), claim);
  EXPECT_EQ(fresh.code, 0) << fresh.out << fresh.err;
  EXPECT_TRUE(says(fresh.err, "d_key has 3 keys: the new ones, behind 2 cached ones")) << fresh.err;
  EXPECT_TRUE(says(fresh.out, "72 numbers compared")) << fresh.out;  // 2 · 2 · 3 · 6 of d_key
  // The cached keys' in the place of the new ones'.
  const Ended first = checked(file(keys(d_key, 0, 3), keys(d_value, 0, 3)), claim);
  EXPECT_EQ(first.code, 1) << first.out;
  Tensor<double> unscaled = keys(d_key, 2, 5);
  for (double& x : unscaled.elements()) x *= std::sqrt(6.0);
  const Ended named = checked(file(unscaled, keys(d_value, 2, 5)), claim);
  EXPECT_EQ(named.code, 1) << named.out;
  EXPECT_TRUE(says(named.out, "gradient.scale_missing_in_d_key gives")) << named.out;
  EXPECT_TRUE(says(named.out, "d_key: everywhere")) << named.out;
  const Ended odd = checked(file(keys(d_key, 1, 5), d_value), claim);
  EXPECT_EQ(odd.code, 2) << odd.out;
  EXPECT_TRUE(says(odd.err, "shape-mismatch")) << odd.err;
}

}  // namespace
}  // namespace attest::test
