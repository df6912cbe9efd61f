// SPDX-License-Identifier: MIT
// What the ONNX project's own tests leave open, and what the adapter refuses.

#include "attest/attention/onnx_attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "attest/attention/attention.h"
#include "tests/support/matrices.h"
#include "tests/support/outcome.h"

namespace attest {
namespace {

using test::failure_id;
using test::random_tensor;

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

/// One node whose tensors can be changed: two batches, four heads over two, T = 3, S = 5.
struct Node {
  explicit Node(std::uint64_t seed, DType dtype = DType::f64) {
    Random random(seed);
    Q = AnyTensor::from_f64(random_tensor(random, {2, 4, 3, 8}), dtype);
    K = AnyTensor::from_f64(random_tensor(random, {2, 2, 5, 8}), dtype);
    V = AnyTensor::from_f64(random_tensor(random, {2, 2, 5, 6}), dtype);
    inputs = {.Q = &Q, .K = &K, .V = &V};
  }
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;
  ~Node() = default;

  [[nodiscard]] Result<OnnxAttentionOutputs> run() const {
    return try_onnx_attention(inputs, how, {.present = true, .qk_matmul_output = true});
  }
  [[nodiscard]] OnnxAttentionOutputs out() const { return run().value(); }
  [[nodiscard]] std::string id() const { return failure_id(run()); }

  AnyTensor Q, K, V, mask, past_key, past_value, lengths;
  OnnxAttentionInputs inputs{};
  OnnxAttentionAttributes how{};
};

AnyTensor booleans(Shape shape, const std::vector<int>& values) {
  Tensor<bool> out(std::move(shape));
  for (std::size_t n = 0; n < values.size(); ++n) out.data()[n] = values[n] != 0;
  return out;
}

bool same(const AnyTensor& a, const AnyTensor& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() &&
         std::equal(a.bytes().begin(), a.bytes().end(), b.bytes().begin());
}

void set(AnyTensor& tensor, std::size_t n, double x) {
  ASSERT_EQ(tensor.dtype(), DType::f64);
  reinterpret_cast<double*>(tensor.bytes().data())[n] = x;
}

TEST(OnnxAttention, HiddenNaNReachesNobody) {
  for (const double poison : {not_a_number, infinity, -infinity}) {
    Node node(1);
    node.mask = booleans({5}, {1, 1, 0, 1, 0});
    node.inputs.attn_mask = &node.mask;
    node.how.qk_matmul_output_mode = 3;
    const auto clean = node.out();
    for (const std::size_t j : {2U, 4U}) {
      for (std::size_t bg = 0; bg < 4; ++bg) {
        set(node.K, (bg * 5 + j) * 8 + 1, poison);
        set(node.V, (bg * 5 + j) * 6 + 2, poison);
      }
    }
    const auto poisoned = node.out();
    EXPECT_TRUE(same(poisoned.Y, clean.Y)) << poison;
    EXPECT_TRUE(same(*poisoned.qk_matmul_output, *clean.qk_matmul_output)) << poison;
    node.how.qk_matmul_output_mode = 2;
    EXPECT_EQ(node.out().qk_matmul_output->number(2), -infinity) << poison;
  }
}

TEST(OnnxAttention, ARowThatSeesNothingIsZero) {
  Node node(2);
  node.mask = booleans({3, 5}, {1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 1, 0, 1, 0, 1});
  node.inputs.attn_mask = &node.mask;
  node.how.qk_matmul_output_mode = 3;
  const auto out = node.out();
  for (std::size_t e = 0; e < 6; ++e) {
    EXPECT_NE(out.Y.number(0 * 6 + e), 0);
    EXPECT_EQ(out.Y.number(1 * 6 + e), 0);
    EXPECT_NE(out.Y.number(2 * 6 + e), 0);
  }
  for (std::size_t j = 0; j < 5; ++j) EXPECT_EQ(out.qk_matmul_output->number(5 + j), 0);
}

/// A last axis of 1 repeats in opset 23, and is a mask that ends after key 0 from 24 on.
TEST(OnnxAttention, AShorterMaskIsPaddedFromOpset24On) {
  Node node(3);
  node.mask = booleans({1}, {1});
  node.inputs.attn_mask = &node.mask;
  node.how.qk_matmul_output_mode = 3;
  node.how.opset = 23;
  const auto repeated = node.out();
  EXPECT_NE(repeated.qk_matmul_output->number(4), 0);
  node.how.opset = 24;
  const auto padded = node.out();
  EXPECT_EQ(padded.qk_matmul_output->number(0), 1);
  for (std::size_t j = 1; j < 5; ++j) EXPECT_EQ(padded.qk_matmul_output->number(j), 0);
  for (std::size_t e = 0; e < 6; ++e) EXPECT_EQ(padded.Y.number(e), node.V.number(e));

  node.mask = booleans({3}, {1, 0, 1});
  EXPECT_EQ(failure_id(node.run()), "(no failure)");
  node.how.opset = 23;
  EXPECT_EQ(
      test::failure_message(node.run()),
      "[onnx_attention] attn_mask must broadcast to [B, H, T, S] = [2, 4, 3, 5]; it has shape "
      "[3]");
}

/// The operator's text, where its own reference caps the raw scores too.
TEST(OnnxAttention, ModeZeroIsRawWhateverTheSoftcap) {
  Node node(4);
  const auto raw = node.out();
  node.how.softcap = 0.5;
  EXPECT_TRUE(same(*node.out().qk_matmul_output, *raw.qk_matmul_output));
  node.how.qk_matmul_output_mode = 1;
  const auto capped = node.out();
  for (std::size_t n = 0; n < raw.qk_matmul_output->size(); ++n) {
    const double wanted = 0.5 * std::tanh(raw.qk_matmul_output->number(n) / 0.5);
    EXPECT_EQ(capped.qk_matmul_output->number(n), wanted);
  }
  node.how.softcap = -0.5;  // even in c
  EXPECT_TRUE(same(node.out().Y, capped.Y));
}

TEST(OnnxAttention, SoftmaxPrecisionOfF64IsTheCallInF64) {
  Node narrow(5, DType::f32);
  narrow.how.softmax_precision = 11;
  Node wide(5, DType::f64);
  for (AnyTensor* tensor : {&wide.Q, &wide.K, &wide.V}) {
    const AnyTensor& from = tensor == &wide.Q ? narrow.Q : tensor == &wide.K ? narrow.K : narrow.V;
    *tensor = from.to_f64("tensor").value();
  }
  const AnyTensor in_f64 = wide.out().Y;
  EXPECT_TRUE(same(narrow.out().Y, AnyTensor::from_f64(in_f64.to_f64("Y").value(), DType::f32)));
}

TEST(OnnxAttention, OutputsHaveTheTypesOfTheirInputs) {
  for (const DType own : {DType::f32, DType::f64, DType::f16, DType::bf16}) {
    for (const DType other : {DType::f32, DType::f64, DType::f16, DType::bf16}) {
      Node node(6, own);
      node.V = AnyTensor::from_f64(node.V.to_f64("V").value(), other);
      const auto out = node.out();
      EXPECT_EQ(out.Y.dtype(), own);
      EXPECT_EQ(out.qk_matmul_output->dtype(), own);
      EXPECT_EQ(out.present_key->dtype(), own);
      EXPECT_EQ(out.present_value->dtype(), other);
      EXPECT_TRUE(same(*out.present_key, node.K));
      EXPECT_TRUE(same(*out.present_value, node.V));
    }
  }
}

TEST(OnnxAttention, ANodeWithoutPairsIsZeroOrEmpty) {
  for (const Shape& keys : {Shape{2, 2, 0, 8}, Shape{2, 2, 5, 8}}) {
    Node node(7);
    node.K = AnyTensor(DType::f64, keys);
    node.V = AnyTensor(DType::f64, keys);
    if (keys[2] != 0) node.Q = AnyTensor(DType::f64, {2, 4, 0, 8});
    node.mask = booleans({1}, {1});
    node.inputs.attn_mask = keys[2] == 0 ? nullptr : &node.mask;
    const auto out = node.out();
    for (std::size_t n = 0; n < out.Y.size(); ++n) EXPECT_EQ(out.Y.number(n), 0);
    EXPECT_EQ(out.qk_matmul_output->size(), 0U);
  }
}

/// One thing made wrong, and the id of what is said about it.
struct Wrong {
  const char* what;
  void (*make)(Node&);
  const char* id;
};

void give_past(Node& node, DType dtype, const Shape& key, const Shape& value) {
  node.past_key = AnyTensor(dtype, key);
  node.past_value = AnyTensor(dtype, value);
  node.inputs.past_key = &node.past_key;
  node.inputs.past_value = &node.past_value;
}
void give_lengths(Node& node, const std::vector<std::int64_t>& lengths) {
  node.lengths = Tensor<std::int64_t>(Shape{static_cast<std::int64_t>(lengths.size())}, lengths);
  node.inputs.nonpad_kv_seqlen = &node.lengths;
}
void give_mask(Node& node, DType dtype, const Shape& shape) {
  node.mask = AnyTensor(dtype, shape);
  node.inputs.attn_mask = &node.mask;
}

TEST(OnnxAttention, RefusesWhatTheOperatorLacks) {
  const std::vector<Wrong> all = {
      {"opset", [](Node& n) { n.how.opset = 22; }, "bad-option"},
      {"causal", [](Node& n) { n.how.is_causal = 2; }, "bad-option"},
      {"mode", [](Node& n) { n.how.qk_matmul_output_mode = 4; }, "bad-option"},
      {"precision", [](Node& n) { n.how.softmax_precision = 7; }, "bad-option"},
      {"negative scale", [](Node& n) { n.how.scale = -1; }, "bad-option"},
      {"NaN scale", [](Node& n) { n.how.scale = not_a_number; }, "bad-option"},
      {"softcap", [](Node& n) { n.how.softcap = infinity; }, "bad-option"},
      {"window", [](Node& n) { n.how.left_window_size = -2; }, "bad-option"},
      {"window in 24",
       [](Node& n) {
         n.how.opset = 24;
         n.how.right_window_size = 1;
       },
       "bad-option"},
      {"lengths in 23",
       [](Node& n) {
         n.how.opset = 23;
         give_lengths(n, {5, 5});
       },
       "bad-option"},
      {"heads of rank 4", [](Node& n) { n.how.q_num_heads = 4; }, "bad-option"},
      {"no Q", [](Node& n) { n.inputs.Q = nullptr; }, "shape-mismatch"},
      {"rank 2",
       [](Node& n) {
         n.V = AnyTensor(DType::f64, {5, 6});
       },
       "shape-mismatch"},
      {"two ranks",
       [](Node& n) {
         n.Q = AnyTensor(DType::f64, {2, 3, 32});
       },
       "shape-mismatch"},
      {"integers",
       [](Node& n) {
         n.Q = AnyTensor(DType::i32, {2, 4, 3, 8});
       },
       "unsupported-dtype"},
      {"two types",
       [](Node& n) {
         n.K = AnyTensor(DType::f32, {2, 2, 5, 8});
       },
       "unsupported-dtype"},
      {"other S",
       [](Node& n) {
         n.V = AnyTensor(DType::f64, {2, 2, 4, 6});
       },
       "shape-mismatch"},
      {"other B",
       [](Node& n) {
         n.Q = AnyTensor(DType::f64, {1, 4, 3, 8});
       },
       "shape-mismatch"},
      {"other D",
       [](Node& n) {
         n.Q = AnyTensor(DType::f64, {2, 4, 3, 7});
       },
       "shape-mismatch"},
      {"3 heads over 2",
       [](Node& n) {
         n.Q = AnyTensor(DType::f64, {2, 3, 3, 8});
       },
       "shape-mismatch"},
      {"past alone",
       [](Node& n) {
         give_past(n, DType::f64, {2, 2, 1, 8}, {2, 2, 1, 6});
         n.inputs.past_value = nullptr;
       },
       "shape-mismatch"},
      {"past of another type",
       [](Node& n) {
         give_past(n, DType::f32, {2, 2, 1, 8}, {2, 2, 1, 6});
       },
       "unsupported-dtype"},
      {"past of another width",
       [](Node& n) {
         give_past(n, DType::f64, {2, 2, 1, 8}, {2, 2, 1, 8});
       },
       "shape-mismatch"},
      {"pasts of two lengths",
       [](Node& n) {
         give_past(n, DType::f64, {2, 2, 1, 8}, {2, 2, 2, 6});
       },
       "shape-mismatch"},
      {"past and lengths",
       [](Node& n) {
         give_past(n, DType::f64, {2, 2, 1, 8}, {2, 2, 1, 6});
         give_lengths(n, {5, 5});
       },
       "bad-option"},
      {"three lengths",
       [](Node& n) {
         give_lengths(n, {5, 5, 5});
       },
       "shape-mismatch"},
      {"length 6",
       [](Node& n) {
         give_lengths(n, {5, 6});
       },
       "bad-option"},
      {"length -1",
       [](Node& n) {
         give_lengths(n, {-1, 5});
       },
       "bad-option"},
      {"lengths in f64",
       [](Node& n) {
         n.lengths = AnyTensor(DType::f64, {2});
         n.inputs.nonpad_kv_seqlen = &n.lengths;
       },
       "unsupported-dtype"},
      {"mask of whole numbers", [](Node& n) { give_mask(n, DType::i64, {5}); },
       "unsupported-dtype"},
      {"mask of rank 0", [](Node& n) { give_mask(n, DType::f64, {}); }, "shape-mismatch"},
      {"mask of rank 5",
       [](Node& n) {
         give_mask(n, DType::f64, {1, 1, 1, 1, 5});
       },
       "shape-mismatch"},
      {"mask for batches",
       [](Node& n) {
         give_mask(n, DType::f64, {2, 3, 5});
       },
       "shape-mismatch"},
      {"longer mask", [](Node& n) { give_mask(n, DType::f64, {6}); }, "shape-mismatch"}};
  for (const Wrong& wrong : all) {
    Node node(8);
    wrong.make(node);
    EXPECT_EQ(node.id(), wrong.id) << wrong.what << ": " << test::failure_message(node.run());
  }
}

TEST(OnnxAttention, HugeExtentsBesideAZeroOverflowNothing) {
  constexpr std::int64_t huge = std::int64_t{1} << 59U;  // 8·huge is a count, 8·2·huge is none
  Node node(9);
  node.Q = AnyTensor(DType::f64, {0, 1, 1, 8});
  node.K = AnyTensor(DType::f64, {0, 1, huge, 8});
  node.V = AnyTensor(DType::f64, {0, 1, huge, 8});
  give_past(node, DType::f64, {0, 1, huge, 8}, {0, 1, huge, 8});
  EXPECT_EQ(node.id(), "too-large");
}

/// Whoever walked over 2^40 batches would not come back.
TEST(OnnxAttention, ANodeWithoutNumbersWalksOverNothing) {
  constexpr std::int64_t countless = std::int64_t{1} << 40U;
  const Shape nothing{countless, 1, 0, 8};
  Node node(10);
  node.Q = AnyTensor(DType::f64, nothing);
  node.K = AnyTensor(DType::f64, nothing);
  node.V = AnyTensor(DType::f64, nothing);
  give_past(node, DType::f64, nothing, nothing);
  const auto out = node.out();
  EXPECT_EQ(out.Y.shape(), nothing);
  EXPECT_EQ(out.present_key->shape(), nothing);
}

TEST(OnnxAttention, ThrowsAtTheEdge) {
  EXPECT_THROW(static_cast<void>(onnx_attention({})), ShapeError);
  const Node node(10);
  EXPECT_THROW(static_cast<void>(onnx_attention(node.inputs, {.opset = 1})), ValueError);
}

}  // namespace
}  // namespace attest
