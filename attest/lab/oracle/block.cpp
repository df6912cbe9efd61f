// SPDX-License-Identifier: MIT
#include "attest/lab/oracle/block.h"

#include <cmath>
#include <optional>
#include <string_view>
#include <vector>

#include "attest/base/text.h"
#include "attest/lab/oracle.h"
#include "attest/lab/oracle/checks.h"
#include "attest/lab/oracle/evaluate.h"

namespace attest::lab::oracle {

using Gradients = std::vector<Array<Real>>;

// ---- block ------------------------------------------------------------------------------------

namespace {

/// The shape of every parameter of the formula that this config chooses; empty: not part of it.
BlockParameters<Shape> shapes_of(const BlockConfig& c) {
  BlockParameters<Shape> shapes;
  shapes.query_weight = {c.model_dim, c.heads * c.head_dim};
  shapes.query_bias = {c.heads * c.head_dim};
  shapes.key_weight = {c.model_dim, c.kv_heads * c.head_dim};
  shapes.key_bias = {c.kv_heads * c.head_dim};
  shapes.value_weight = {c.model_dim, c.kv_heads * c.value_dim};
  shapes.value_bias = {c.kv_heads * c.value_dim};
  shapes.output_weight = {c.heads * c.value_dim, c.model_dim};
  shapes.output_bias = {c.model_dim};
  const bool biased = c.norm == Norm::layer_norm;
  shapes.norm1_gain = shapes.norm2_gain = {c.model_dim};
  if (biased) shapes.norm1_bias = shapes.norm2_bias = {c.model_dim};
  if (c.placement == NormPlacement::sandwich) {
    shapes.norm1_out_gain = shapes.norm2_out_gain = {c.model_dim};
    if (biased) shapes.norm1_out_bias = shapes.norm2_out_bias = {c.model_dim};
  }
  shapes.up_weight = {c.model_dim, c.ffn_dim};
  shapes.up_bias = {c.ffn_dim};
  if (c.gated) {
    shapes.gate_weight = {c.model_dim, c.ffn_dim};
    shapes.gate_bias = {c.ffn_dim};
  }
  shapes.down_weight = {c.ffn_dim, c.model_dim};
  shapes.down_bias = {c.model_dim};
  return shapes;
}

MaybeFailure bad_config(std::string_view what) {
  return failure(ErrorKind::value, "bad-option", "block", what);
}

MaybeFailure check_config(const BlockConfig& c) {
  for (const std::int64_t extent :
       {c.model_dim, c.heads, c.kv_heads, c.head_dim, c.value_dim, c.ffn_dim}) {
    if (extent < 1 || extent > 1000000) return bad_config("every extent must be 1 to 1000000");
  }
  if (c.heads % c.kv_heads != 0) return bad_config("kv_heads must divide heads");
  if (!std::isfinite(c.epsilon) || c.epsilon < 0) return bad_config("epsilon must be at least 0");
  if (c.scale && !std::isfinite(*c.scale)) return bad_config("scale must be finite");
  if (c.softcap && !(std::isfinite(*c.softcap) && *c.softcap > 0)) {
    return bad_config("softcap must be finite and above 0");
  }
  if (c.rope) return check_rope_config("block", *c.rope, c.head_dim);
  return {};
}

MaybeFailure check_block(const Tensor<double>& x, const BlockConfig& config,
                         const BlockWeights<double>& weights) {
  if (auto wrong = check_config(config)) return wrong;
  if (auto wrong = need_rank("block", {"x", x}, 2)) return wrong;
  if (auto wrong = need_shape("block", {"x", x}, {x.extent(0), config.model_dim})) return wrong;
  const BlockParameters<Shape> shapes = shapes_of(config);
  MaybeFailure wrong;
  for_each_parameter(shapes, weights, [&](auto name, const Shape& shape, const auto& tensor) {
    if (wrong) return;
    const bool absent = tensor.shape() == Shape{0};
    if (shape.empty() && !absent) {
      wrong = failure(ErrorKind::value, "unused-parameter", "block", name,
                      " is given, but is no part of this block");
    } else if (!shape.empty() && !(absent && shape.size() == 1)) {  // a matrix must be there
      wrong = need_shape("block", {name, tensor}, shape);
    }
  });
  return wrong;
}

/// x, and after it the parameters in the order of for_each_parameter.
std::vector<Named> block_inputs(const Tensor<double>& x, const BlockWeights<double>& weights) {
  std::vector<Named> inputs{{"x", x}};
  for_each_parameter(weights, weights, [&](auto name, const auto& tensor, auto&) {
    inputs.push_back({name, tensor});
  });
  return inputs;
}

/// The block as a function of those arrays.
template <class Scalar>
formula::BlockValues<Scalar> block_of(const std::vector<Array<Scalar>>& in,
                                      const BlockConfig& config) {
  BlockParameters<Array<Scalar>> parameters;
  std::size_t k = 1;
  for_each_parameter(parameters, parameters,
                     [&](auto, Array<Scalar>& part, auto&) { part = in[k++]; });
  return formula::block(in[0], config, parameters);
}

}  // namespace

Result<Block> block(const Tensor<double>& x, const BlockConfig& config,
                    const BlockWeights<double>& weights) {
  if (auto wrong = check_block(x, config, weights)) return *wrong;
  Block values;
  Result<OracleTensor> output = evaluate("block", block_inputs(x, weights), [&](const auto& in) {
    const auto all = block_of(in, config);
    values.weights = all.weights;
    return all.output;
  });
  if (!output) return output.failure();
  values.output = *std::move(output);
  return values;
}

Result<BlockGradients> block_backward(const Tensor<double>& x, const BlockConfig& config,
                                      const BlockWeights<double>& weights,
                                      const Tensor<double>& d_output) {
  if (auto wrong = check_block(x, config, weights)) return *wrong;
  Result<Gradients> d = differentiate("block", block_inputs(x, weights), d_output, x.shape(),
                                      [&](const auto& in) { return block_of(in, config).output; });
  if (!d) return d.failure();
  BlockGradients gradients;
  gradients.d_input = (*d)[0];
  std::size_t k = 1;
  for_each_parameter(gradients.d_weights, gradients.d_weights,
                     [&](auto, OracleTensor& part, auto&) { part = (*d)[k++]; });
  return gradients;
}

// ---- the workbook's block ---------------------------------------------------------------------

namespace {

MaybeFailure check_workbook(const Tensor<double>& x, const WorkbookBlock& block) {
  constexpr std::string_view name = "workbook_block";
  if (auto wrong = need_rank(name, {"x", x}, 2)) return wrong;
  if (auto wrong = need_rows(name, {"x", x})) return wrong;
  if (auto wrong = need_rank(name, {"projection1", block.projection1}, 2)) return wrong;
  if (auto wrong = need_rank(name, {"up_weight", block.up_weight}, 2)) return wrong;
  const std::int64_t C = x.extent(1);
  const std::int64_t D = block.projection1.extent(1);
  const std::int64_t F = block.up_weight.extent(1);
  if (D < 1) return failure(ErrorKind::shape, "shape-mismatch", name, "D must be at least 1");
  if (!std::isfinite(block.epsilon) || block.epsilon < 0) {
    return failure(ErrorKind::value, "bad-option", name, "epsilon must be finite and at least 0");
  }
  if (auto wrong = need_shape(name, {"projection1", block.projection1}, {C, D})) return wrong;
  if (auto wrong = need_shape(name, {"projection2", block.projection2}, {C, D})) return wrong;
  if (auto wrong = need_shape(name, {"output_weight", block.output_weight}, {2 * D, C})) {
    return wrong;
  }
  if (auto wrong = need_shape(name, {"up_weight", block.up_weight}, {C, F})) return wrong;
  return need_shape(name, {"down_weight", block.down_weight}, {F, C});
}

std::vector<Named> workbook_inputs(const Tensor<double>& x, const WorkbookBlock& block) {
  return {{"x", x},
          {"projection1", block.projection1},
          {"projection2", block.projection2},
          {"output_weight", block.output_weight},
          {"up_weight", block.up_weight},
          {"down_weight", block.down_weight}};
}

template <class Scalar>
formula::BlockValues<Scalar> workbook_of(const std::vector<Array<Scalar>>& in,
                                         const WorkbookBlock& block) {
  return formula::workbook_block(in[0], {in.begin() + 1, in.end()}, Real(block.epsilon),
                                 block.causal);
}

}  // namespace

Result<Block> workbook_block(const Tensor<double>& x, const WorkbookBlock& block) {
  if (auto wrong = check_workbook(x, block)) return *wrong;
  Block values;
  Result<OracleTensor> output =
      evaluate("workbook_block", workbook_inputs(x, block), [&](const auto& in) {
        const auto all = workbook_of(in, block);
        values.weights = all.weights;
        return all.output;
      });
  if (!output) return output.failure();
  values.output = *std::move(output);
  return values;
}

Result<WorkbookGradients> workbook_block_backward(const Tensor<double>& x,
                                                  const WorkbookBlock& block,
                                                  const Tensor<double>& d_output) {
  if (auto wrong = check_workbook(x, block)) return *wrong;
  Result<Gradients> d =
      differentiate("workbook_block", workbook_inputs(x, block), d_output, x.shape(),
                    [&](const auto& in) { return workbook_of(in, block).output; });
  if (!d) return d.failure();
  return WorkbookGradients{(*d)[0], (*d)[1], (*d)[2], (*d)[3], (*d)[4], (*d)[5]};
}

}  // namespace attest::lab::oracle
