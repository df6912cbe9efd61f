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

TEST(CheckGradients, NeedWhatTheyComeFromAndAClaim) {
  const Backward pass;
  io::NamedTensors file = pass.file();
  const Ended unclaimed = checked(file, {});
  EXPECT_EQ(unclaimed.code, 2) << unclaimed.out;
  EXPECT_TRUE(says(unclaimed.err, "missing-claim")) << unclaimed.err;
  file.tensors.erase(file.tensors.begin() + 4);
  const Ended alone = checked(file, claim);
  EXPECT_EQ(alone.code, 2) << alone.out;
  EXPECT_TRUE(says(alone.err, "without d_output")) << alone.err;
}

}  // namespace
}  // namespace attest::test
