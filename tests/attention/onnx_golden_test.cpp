// SPDX-License-Identifier: MIT
// The ONNX project's own tests of `Attention`, and the expectations that it published and took back.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "attest/attention/onnx_attention.h"
#include "attest/io/json.h"
#include "attest/io/safetensors.h"
#include "tests/support/onnx_nodes.h"

namespace attest {
namespace {

/// One node with its inputs and the outputs that are expected of it.
struct Node : test::OnnxNode {
  OnnxAttentionInputs inputs{};
  OnnxAttentionAttributes attributes{};
  std::vector<std::string> recorded{};
};

void read_attributes(Node& node) {
  OnnxAttentionAttributes& how = node.attributes;
  how.opset = std::stoi(node.text("opset"));
  const auto json = io::parse_json(node.text("attributes"), node.name).value();
  const std::map<std::string, std::int64_t*> whole = {
      {"q_num_heads", &how.q_num_heads},
      {"kv_num_heads", &how.kv_num_heads},
      {"is_causal", &how.is_causal},
      {"qk_matmul_output_mode", &how.qk_matmul_output_mode},
      {"softmax_precision", &how.softmax_precision},
      {"left_window_size", &how.left_window_size},
      {"right_window_size", &how.right_window_size}};
  for (const io::Json::Member& member : json.members()) {
    const std::int64_t* const integer = member.value.integer_if();
    const double* const number = member.value.double_if();
    if (member.name == "scale" && number != nullptr) {
      how.scale = *number;
    } else if (member.name == "softcap" && number != nullptr) {
      how.softcap = *number;
    } else if (whole.contains(member.name) && integer != nullptr) {
      *whole.at(member.name) = *integer;
    } else {
      ADD_FAILURE() << node.name
                    << " has an attribute that this test does not know: " << member.name;
    }
  }
}

/// Every node of an operation. Tensors stay where they are once read.
std::vector<Node> nodes_of(const std::string& operation) {
  std::vector<Node> out;
  for (test::OnnxNode& node : test::onnx_nodes(operation)) {
    out.push_back({std::move(node), {}, {}, {}});
  }
  for (Node& node : out) {
    const io::NamedTensors& file = node.file;
    node.inputs = {file.find("in.Q"),
                   file.find("in.K"),
                   file.find("in.V"),
                   file.find("in.attn_mask"),
                   file.find("in.past_key"),
                   file.find("in.past_value"),
                   file.find("in.nonpad_kv_seqlen")};
    read_attributes(node);
    node.recorded = node.mistakes();
  }
  return out;
}

/// What the folder's README states, absolute: the project's own 1e-5, or 1e-2 with float16 inside.
double tolerance_of(const Node& node) {
  for (const auto& [name, tensor] : node.file.tensors) {
    if (tensor.dtype() == DType::f16) return 1e-2;
  }
  return 1e-5;
}

/// The largest distance; infinite where the shapes, the types, the NaN or the infinities differ.
double distance(const AnyTensor* found, const AnyTensor& expected) {
  constexpr double infinite = std::numeric_limits<double>::infinity();
  if (found == nullptr || found->shape() != expected.shape() ||
      found->dtype() != expected.dtype()) {
    return infinite;
  }
  double worst = 0;
  for (std::size_t n = 0; n < expected.size(); ++n) {
    const double a = found->number(n), b = expected.number(n);
    if (a == b || (std::isnan(a) && std::isnan(b))) continue;
    const double apart = std::fabs(a - b);
    worst = std::max(worst, std::isnan(apart) ? infinite : apart);
  }
  return worst;
}

/// The distance of each expected output from what the adapter says, by name.
std::map<std::string, double> distances(const Node& node,
                                        const OnnxAttentionAttributes& attributes) {
  const auto has = [&](const char* name) { return node.file.find(name) != nullptr; };
  const auto out = try_onnx_attention(
      node.inputs, attributes,
      {.present = has("out.present_key"), .qk_matmul_output = has("out.qk_matmul_output")});
  if (!out) {
    ADD_FAILURE() << node.name << ": " << out.failure().message;
    return {};
  }
  const auto pointer = [](const auto& tensor) { return tensor ? &*tensor : nullptr; };
  const std::map<std::string, const AnyTensor*> found = {
      {"out.Y", &out->Y},
      {"out.present_key", pointer(out->present_key)},
      {"out.present_value", pointer(out->present_value)},
      {"out.qk_matmul_output", pointer(out->qk_matmul_output)}};
  std::map<std::string, double> worst;
  for (const auto& [name, tensor] : node.file.tensors) {
    if (name.rfind("out.", 0) == 0) worst[name] = distance(found.at(name), tensor);
  }
  return worst;
}

double largest(const std::map<std::string, double>& all) {
  double out = 0;
  for (const auto& [name, value] : all) out = std::max(out, value);
  return out;
}

TEST(OnnxAttention, Passes87Of87PublishedTests) {
  const std::vector<Node> nodes = nodes_of("attention");
  if (nodes.empty()) GTEST_SKIP() << test::not_shared;
  EXPECT_EQ(nodes.size(), 87U);
  double worst32 = 0, worst16 = 0;
  for (const Node& node : nodes) {
    const double allowed = tolerance_of(node);
    for (const auto& [name, apart] : distances(node, node.attributes)) {
      EXPECT_LE(apart, allowed) << node.name << ", " << name;
      // Keys and values are only moved: they are the expected ones, bit for bit.
      if (name.rfind("out.present", 0) == 0) {
        EXPECT_EQ(apart, 0) << node.name << ", " << name;
      }
      double& worst = allowed > 1e-5 ? worst16 : worst32;
      worst = std::max(worst, apart);
    }
  }
  std::printf("[   used   ] largest difference %.2g with float32, %.2g with float16\n", worst32,
              worst16);
}

TEST(OnnxAttention, DisagreesWithEverySupersededExpectation) {
  const std::vector<Node> nodes = nodes_of("attention_errata");
  if (nodes.empty()) GTEST_SKIP() << test::not_shared;
  EXPECT_EQ(nodes.size(), 48U);
  for (const Node& node : nodes) {
    ASSERT_FALSE(node.recorded.empty()) << node.name;
    EXPECT_GT(largest(distances(node, node.attributes)), tolerance_of(node))
        << node.name << " was published with " << node.recorded.front()
        << ", and is what the adapter says";
  }
}

TEST(OnnxAttention, ExplainsTheExpectationsWithModesOneAndTwoSwapped) {
  const std::vector<Node> nodes = nodes_of("attention_errata");
  if (nodes.empty()) GTEST_SKIP() << test::not_shared;
  int explained = 0;
  for (const Node& node : nodes) {
    if (node.recorded != std::vector<std::string>{"qk_output_modes_1_2_swapped"}) continue;
    OnnxAttentionAttributes swapped = node.attributes;
    swapped.qk_matmul_output_mode = 3 - swapped.qk_matmul_output_mode;
    EXPECT_LE(largest(distances(node, swapped)), tolerance_of(node)) << node.name;
    ++explained;
  }
  EXPECT_GT(explained, 0);
}

}  // namespace
}  // namespace attest
