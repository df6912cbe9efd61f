// SPDX-License-Identifier: MIT
// The ONNX project's tests of the layers that a transformer needs beside attention.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "attest/io/json.h"
#include "attest/io/safetensors.h"
#include "attest/linalg/norms.h"
#include "attest/linalg/rope.h"
#include "attest/linalg/softmax.h"
#include "tests/support/onnx_nodes.h"

namespace attest {
namespace {

// What the folder's README states for float32, absolute: the project's own.
constexpr double tolerance = 1e-5;

using test::OnnxNode;

Tensor<float> numbers(const OnnxNode& node, const char* tensor) {
  const AnyTensor& from = *node.file.find(tensor);
  Tensor<float> out(from.shape());
  for (std::size_t n = 0; n < out.size(); ++n) out.data()[n] = static_cast<float>(from.number(n));
  return out;
}

void expect_near(const Tensor<float>& found, const Tensor<float>& expected, const OnnxNode& node) {
  ASSERT_EQ(found.size(), expected.size()) << node.name;
  for (std::size_t n = 0; n < found.size(); ++n) {
    EXPECT_NEAR(found.data()[n], expected.data()[n], tolerance) << node.name << ", number " << n;
  }
}

/// LayerNormalization and RMSNormalization: over all axes from `axis` on.
void check_norm(const OnnxNode& node, Norm kind) {
  const Tensor<float> x = numbers(node, "in.X");
  const Tensor<float> gain = numbers(node, "in.W");
  const Tensor<float> bias = node.has("in.B") ? numbers(node, "in.B") : Tensor<float>();
  std::int64_t N = 1;
  for (std::size_t a = 0; a < node.axis(x.rank()); ++a) N *= x.extent(a);
  const std::int64_t C = static_cast<std::int64_t>(x.size()) / N;
  ASSERT_EQ(static_cast<std::int64_t>(gain.size()), C) << node.name;
  Tensor<float> y(x.shape()), mean(Shape{N}), inverse_deviation(Shape{N});
  NormOptions<float> options{.kind = kind,
                             .gain = {gain.data(), {C}},
                             .epsilon = node.attribute("epsilon", 1e-5),
                             .inverse_deviation = {inverse_deviation.data(), {N}}};
  if (node.has("in.B")) options.bias = {bias.data(), {C}};
  if (kind == Norm::layer_norm) options.mean = {mean.data(), {N}};
  norm(View<float, 2>(y.data(), {N, C}), View<const float, 2>(x.data(), {N, C}), options);
  expect_near(y, numbers(node, "out.Y"), node);
  if (node.has("out.Mean")) expect_near(mean, numbers(node, "out.Mean"), node);
  if (node.has("out.InvStdDev"))
    expect_near(inverse_deviation, numbers(node, "out.InvStdDev"), node);
}

/// Softmax and LogSoftmax along one axis: its numbers are laid beside each other, and back.
template <class Function>
void check_softmax(const OnnxNode& node, const Function& function) {
  const Tensor<float> x = numbers(node, "in.x");
  const std::size_t axis = node.axis(x.rank());
  const std::int64_t C = x.extent(axis);
  std::int64_t inner = 1;
  for (std::size_t a = axis + 1; a < x.rank(); ++a) inner *= x.extent(a);
  const std::int64_t N = static_cast<std::int64_t>(x.size()) / C;
  const auto place = [&](std::int64_t row, std::int64_t c) {
    return static_cast<std::size_t>(row / inner * C * inner + c * inner + row % inner);
  };
  Tensor<float> rows({N, C}), y(x.shape());
  for (std::int64_t n = 0; n < N; ++n) {
    for (std::int64_t c = 0; c < C; ++c) rows(n, c) = x.data()[place(n, c)];
  }
  function(rows.view<2>());
  for (std::int64_t n = 0; n < N; ++n) {
    for (std::int64_t c = 0; c < C; ++c) y.data()[place(n, c)] = rows(n, c);
  }
  expect_near(y, numbers(node, "out.y"), node);
}

/// RotaryEmbedding: y = cos·x + sin·x', where x' is x with each pair (a, b) turned to (−b, a). The node's
/// cosines and sines are any numbers, and rope calculates its own; but which features are paired, which
/// are turned at all and where the heads lie is rope's. So x' is had from rope, by a turn of all pairs
/// by one radian, cos 1·x + sin 1·x', and what the node asks for is made from it.
void check_rotary(const OnnxNode& node) {
  Tensor<float> x = numbers(node, "in.input");
  const Tensor<float> cosines = numbers(node, "in.cos_cache"),
                      sines = numbers(node, "in.sin_cache");
  const bool flat = x.rank() == 3;  // [B, T, H·D], else [B, H, T, D]
  const std::int64_t heads = flat ? static_cast<std::int64_t>(node.attribute("num_heads", 0)) : 0;
  const auto view_of = [&](Tensor<float>& tensor) {
    if (!flat) return tensor.view<4>();
    const std::int64_t D = tensor.extent(2) / heads;
    return View<float, 4>(tensor.data(), {tensor.extent(0), tensor.extent(1), heads, D})
        .swapped(1, 2);
  };
  const View<float, 4> from = view_of(x);
  const auto [B, H, T, D] = from.extents;
  const auto chosen = static_cast<std::int64_t>(node.attribute("rotary_embedding_dim", 0));
  const std::int64_t R = chosen == 0 ? D : chosen;
  const bool interleaved = node.attribute("interleaved", 0) == 1;
  RopeConfig one_radian;
  one_radian.pairing = interleaved ? RopePairing::interleaved : RopePairing::half;
  one_radian.base = 1;
  one_radian.rotary_dim = chosen;
  const std::vector<std::int64_t> ones(static_cast<std::size_t>(T), 1);
  Tensor<float> y(x.shape());
  const View<float, 4> turned = view_of(y);
  rope(turned, from, one_radian, {.positions = {ones.data(), {1, T}}});
  for (std::int64_t n = 0; n < B * H * T * D; ++n) {
    const std::int64_t b = n / (H * T * D), h = n / (T * D) % H, t = n / D % T, d = n % D;
    if (d >= R) continue;  // copied by rope
    const std::int64_t pair = interleaved ? d / 2 : d % (R / 2);
    const bool by_place = node.has("in.position_ids");
    const auto row = static_cast<std::int64_t>(by_place ? numbers(node, "in.position_ids")(b, t)
                                                        : static_cast<float>(b * T + t));
    const auto at = static_cast<std::size_t>(row * (R / 2) + pair);
    const double own = static_cast<double>(from(b, h, t, d));
    const double other =
        (static_cast<double>(turned(b, h, t, d)) - std::cos(1.0) * own) / std::sin(1.0);
    turned(b, h, t, d) = static_cast<float>(static_cast<double>(cosines.data()[at]) * own +
                                            static_cast<double>(sines.data()[at]) * other);
  }
  expect_near(y, numbers(node, "out.output"), node);
}

/// Runs the check on every node of a folder, of which there must be so many.
template <class Check>
void on_all(const std::string& operation, std::size_t count, const Check& check) {
  const auto nodes = test::onnx_nodes(operation);
  if (nodes.empty()) GTEST_SKIP() << test::not_shared;
  EXPECT_EQ(nodes.size(), count);
  for (const OnnxNode& node : nodes) check(node);
}

TEST(OnnxLayers, LayerNormalizationPasses19Of19) {
  on_all("layer_normalization", 19,
         [](const OnnxNode& node) { check_norm(node, Norm::layer_norm); });
}

TEST(OnnxLayers, RmsNormalizationPasses19Of19) {
  on_all("rms_normalization", 19, [](const OnnxNode& node) { check_norm(node, Norm::rms_norm); });
}

TEST(OnnxLayers, RotaryEmbeddingPasses8Of8) { on_all("rotary_embedding", 8, check_rotary); }

TEST(OnnxLayers, SoftmaxPasses7Of7) {
  on_all("softmax", 7, [](const OnnxNode& node) {
    check_softmax(node, [](View<float, 2> rows) { softmax(rows, rows); });
  });
}

TEST(OnnxLayers, LogSoftmaxPasses2Of2) {
  on_all("log_softmax", 2, [](const OnnxNode& node) {
    check_softmax(node, [](View<float, 2> rows) { log_softmax(rows, rows); });
  });
}

}  // namespace
}  // namespace attest
