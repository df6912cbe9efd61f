// SPDX-License-Identifier: MIT
#include "attest/lab/oracle/layers.h"

#include <cmath>
#include <optional>
#include <string_view>
#include <vector>

#include "attest/base/text.h"
#include "attest/lab/oracle.h"
#include "attest/lab/oracle/activations.h"
#include "attest/lab/oracle/checks.h"
#include "attest/lab/oracle/evaluate.h"

// Each operation has one formula, a function from arrays to an array of any scalar: `evaluate` runs
// it on numbers, `differentiate` on the variables of a tape.
namespace attest::lab::oracle {

using Gradients = std::vector<Array<Real>>;

// ---- matmul -----------------------------------------------------------------------------------

namespace {

MaybeFailure check_matmul(const Tensor<double>& left, const Tensor<double>& right) {
  if (auto wrong = need_rank("matmul", {"left", left}, 2)) return wrong;
  if (auto wrong = need_rank("matmul", {"right", right}, 2)) return wrong;
  if (left.extent(1) == right.extent(0)) return {};
  return failure(ErrorKind::shape, "shape-mismatch", "matmul", "left has ", left.extent(1),
                 " columns, right has ", right.extent(0), " rows");
}

constexpr auto matmul_formula = [](const auto& in) { return formula::matmul(in[0], in[1]); };

}  // namespace

Result<OracleTensor> matmul(const Tensor<double>& left, const Tensor<double>& right) {
  if (auto wrong = check_matmul(left, right)) return *wrong;
  return evaluate("matmul", {{"left", left}, {"right", right}}, matmul_formula);
}

Result<MatmulGradients> matmul_backward(const Tensor<double>& left, const Tensor<double>& right,
                                        const Tensor<double>& d_output) {
  if (auto wrong = check_matmul(left, right)) return *wrong;
  Result<Gradients> d = differentiate("matmul", {{"left", left}, {"right", right}}, d_output,
                                      {left.extent(0), right.extent(1)}, matmul_formula);
  if (!d) return d.failure();
  return MatmulGradients{(*d)[0], (*d)[1]};
}

// ---- softmax ----------------------------------------------------------------------------------

namespace {
constexpr auto softmax_formula = [](const auto& in) { return formula::softmax(in[0]); };
}  // namespace

Result<OracleTensor> softmax(const Tensor<double>& x) {
  if (auto wrong = need_rows("softmax", {"x", x})) return *wrong;
  return evaluate("softmax", {{"x", x}}, softmax_formula);
}

Result<OracleTensor> softmax_backward(const Tensor<double>& x, const Tensor<double>& d_output) {
  if (auto wrong = need_rows("softmax", {"x", x})) return *wrong;
  Result<Gradients> d = differentiate("softmax", {{"x", x}}, d_output, x.shape(), softmax_formula);
  if (!d) return d.failure();
  return (*d)[0];
}

// ---- linear -----------------------------------------------------------------------------------

namespace {

Shape with_last(Shape shape, std::int64_t extent) {
  shape.back() = extent;
  return shape;
}

MaybeFailure check_linear(const Tensor<double>& x, const Linear& layer) {
  if (auto wrong = need_rows("linear", {"x", x})) return wrong;
  if (auto wrong = need_rank("linear", {"weight", layer.weight}, 2)) return wrong;
  const Shape expected{x.shape().back(), layer.weight.extent(1)};
  if (auto wrong = need_shape("linear", {"weight", layer.weight}, expected)) return wrong;
  return absent_or_shape("linear", {"bias", layer.bias}, {layer.weight.extent(1)});
}

constexpr auto linear_formula = [](const auto& in) { return formula::linear(in[0], in[1], in[2]); };

}  // namespace

Result<OracleTensor> linear(const Tensor<double>& x, const Linear& layer) {
  if (auto wrong = check_linear(x, layer)) return *wrong;
  return evaluate("linear", {{"x", x}, {"weight", layer.weight}, {"bias", layer.bias}},
                  linear_formula);
}

Result<LinearGradients> linear_backward(const Tensor<double>& x, const Linear& layer,
                                        const Tensor<double>& d_output) {
  if (auto wrong = check_linear(x, layer)) return *wrong;
  Result<Gradients> d =
      differentiate("linear", {{"x", x}, {"weight", layer.weight}, {"bias", layer.bias}}, d_output,
                    with_last(x.shape(), layer.weight.extent(1)), linear_formula);
  if (!d) return d.failure();
  return LinearGradients{(*d)[0], (*d)[1], (*d)[2]};
}

// ---- norm -------------------------------------------------------------------------------------

namespace {

MaybeFailure check_norm(const Tensor<double>& x, const Normalisation& layer) {
  if (auto wrong = need_rows("norm", {"x", x})) return wrong;
  if (!std::isfinite(layer.epsilon) || layer.epsilon < 0) {
    return failure(ErrorKind::value, "bad-option", "norm", "epsilon must be finite and at least 0");
  }
  const Shape row{x.shape().back()};
  if (auto wrong = absent_or_shape("norm", {"gain", layer.gain}, row)) return wrong;
  return absent_or_shape("norm", {"bias", layer.bias}, row);
}

auto norm_formula(const Normalisation& layer) {
  return [kind = layer.kind, epsilon = Real(layer.epsilon)](const auto& in) {
    return kind == Norm::layer_norm ? formula::layer_norm(in[0], in[1], in[2], epsilon)
                                    : formula::rms_norm(in[0], in[1], in[2], epsilon);
  };
}

}  // namespace

Result<OracleTensor> norm(const Tensor<double>& x, const Normalisation& layer) {
  if (auto wrong = check_norm(x, layer)) return *wrong;
  return evaluate("norm", {{"x", x}, {"gain", layer.gain}, {"bias", layer.bias}},
                  norm_formula(layer));
}

Result<NormalisationGradients> norm_backward(const Tensor<double>& x, const Normalisation& layer,
                                             const Tensor<double>& d_output) {
  if (auto wrong = check_norm(x, layer)) return *wrong;
  Result<Gradients> d =
      differentiate("norm", {{"x", x}, {"gain", layer.gain}, {"bias", layer.bias}}, d_output,
                    x.shape(), norm_formula(layer));
  if (!d) return d.failure();
  return NormalisationGradients{(*d)[0], (*d)[1], (*d)[2]};
}

// ---- activation, gated ------------------------------------------------------------------------

namespace {

auto activation_formula(Activation kind) {
  return [kind](const auto& in) { return formula::activation(kind, in[0]); };
}
auto gated_formula(Activation kind) {
  return [kind](const auto& in) { return formula::gated(kind, in[0], in[1]); };
}

}  // namespace

Result<OracleTensor> activation(Activation kind, const Tensor<double>& x) {
  return evaluate("activation", {{"x", x}}, activation_formula(kind));
}

Result<OracleTensor> activation_backward(Activation kind, const Tensor<double>& x,
                                         const Tensor<double>& d_output) {
  Result<Gradients> d =
      differentiate("activation", {{"x", x}}, d_output, x.shape(), activation_formula(kind));
  if (!d) return d.failure();
  return (*d)[0];
}

Result<OracleTensor> gated(Activation kind, const Tensor<double>& gate, const Tensor<double>& up) {
  if (auto wrong = need_shape("gated", {"up", up}, gate.shape())) return *wrong;
  return evaluate("gated", {{"gate", gate}, {"up", up}}, gated_formula(kind));
}

Result<GatedGradients> gated_backward(Activation kind, const Tensor<double>& gate,
                                      const Tensor<double>& up, const Tensor<double>& d_output) {
  if (auto wrong = need_shape("gated", {"up", up}, gate.shape())) return *wrong;
  Result<Gradients> d = differentiate("gated", {{"gate", gate}, {"up", up}}, d_output, gate.shape(),
                                      gated_formula(kind));
  if (!d) return d.failure();
  return GatedGradients{(*d)[0], (*d)[1]};
}

// ---- rope -------------------------------------------------------------------------------------

namespace {

MaybeFailure check_rope(const Tensor<double>& x, const RopeConfig& config) {
  if (x.rank() < 2) {
    return failure(ErrorKind::shape, "shape-mismatch", "rope",
                   "x must have the axes [..., T, D]; its shape is ", to_string(x.shape()));
  }
  return check_rope_config("rope", config, x.shape().back());
}

auto rope_formula(const RopeConfig& config, std::int64_t offset) {
  return [config, offset](const auto& in) { return formula::rope(in[0], config, offset); };
}

}  // namespace

Result<OracleTensor> rope(const Tensor<double>& x, const RopeConfig& config, std::int64_t offset) {
  if (auto wrong = check_rope(x, config)) return *wrong;
  return evaluate("rope", {{"x", x}}, rope_formula(config, offset));
}

Result<OracleTensor> rope_backward(const Tensor<double>& x, const RopeConfig& config,
                                   std::int64_t offset, const Tensor<double>& d_output) {
  if (auto wrong = check_rope(x, config)) return *wrong;
  Result<Gradients> d =
      differentiate("rope", {{"x", x}}, d_output, x.shape(), rope_formula(config, offset));
  if (!d) return d.failure();
  return (*d)[0];
}

// ---- embedding --------------------------------------------------------------------------------

namespace {

MaybeFailure check_embedding(const Tensor<double>& table, const Tensor<std::int64_t>& ids) {
  if (auto wrong = need_rank("embedding", {"table", table}, 2)) return wrong;
  for (const std::int64_t id : ids.elements()) {
    if (id >= 0 && id < table.extent(0)) continue;
    return failure(ErrorKind::value, "bad-id", "embedding", "id ", id,
                   " is outside a table of V = ", table.extent(0), " rows");
  }
  return {};
}

auto embedding_formula(const Tensor<std::int64_t>& ids) {
  return [&ids](const auto& in) { return formula::embedding(in[0], ids); };
}

}  // namespace

Result<OracleTensor> embedding(const Tensor<double>& table, const Tensor<std::int64_t>& ids) {
  if (auto wrong = check_embedding(table, ids)) return *wrong;
  return evaluate("embedding", {{"table", table}}, embedding_formula(ids));
}

Result<OracleTensor> embedding_backward(const Tensor<double>& table,
                                        const Tensor<std::int64_t>& ids,
                                        const Tensor<double>& d_output) {
  if (auto wrong = check_embedding(table, ids)) return *wrong;
  Shape shape = ids.shape();
  shape.push_back(table.extent(1));
  Result<Gradients> d =
      differentiate("embedding", {{"table", table}}, d_output, shape, embedding_formula(ids));
  if (!d) return d.failure();
  return (*d)[0];
}

// ---- cross entropy ----------------------------------------------------------------------------

namespace {

/// How many targets count, or why the call cannot be.
Result<std::int64_t> counted_targets(const Tensor<double>& logits,
                                     const Tensor<std::int64_t>& targets,
                                     std::optional<std::int64_t> ignored) {
  if (auto wrong = need_rank("cross_entropy", {"logits", logits}, 2)) return *wrong;
  if (targets.shape() != Shape{logits.extent(0)}) {
    return wrong_shape("cross_entropy", "targets", targets.shape(), {logits.extent(0)});
  }
  std::int64_t counted = 0;
  for (const std::int64_t target : targets.elements()) {
    if (target == ignored) continue;
    if (target < 0 || target >= logits.extent(1)) {
      return failure(ErrorKind::value, "bad-id", "cross_entropy", "target ", target,
                     " is outside V = ", logits.extent(1), " logits");
    }
    ++counted;
  }
  if (counted == 0) {
    return failure(ErrorKind::value, "no-target", "cross_entropy", "no target is counted");
  }
  return counted;
}

auto cross_entropy_formula(const Tensor<std::int64_t>& targets,
                           std::optional<std::int64_t> ignored) {
  return [&targets, ignored](const auto& in) {
    auto out = in[0];
    out.shape = {1};
    out.values = {formula::cross_entropy_sum(in[0], targets, ignored)};
    return out;
  };
}

}  // namespace

Result<CrossEntropy> cross_entropy(const Tensor<double>& logits,
                                   const Tensor<std::int64_t>& targets,
                                   std::optional<std::int64_t> ignored) {
  const Result<std::int64_t> counted = counted_targets(logits, targets, ignored);
  if (!counted) return counted.failure();
  const Result<OracleTensor> sum =
      evaluate("cross_entropy", {{"logits", logits}}, cross_entropy_formula(targets, ignored));
  if (!sum) return sum.failure();
  return CrossEntropy{(*sum)(0), (*sum)(0) / *counted, *counted};
}

Result<OracleTensor> cross_entropy_backward(const Tensor<double>& logits,
                                            const Tensor<std::int64_t>& targets,
                                            std::optional<std::int64_t> ignored) {
  const Result<std::int64_t> counted = counted_targets(logits, targets, ignored);
  if (!counted) return counted.failure();
  Tensor<double> one({1});
  one(0) = 1;
  Result<Gradients> d = differentiate("cross_entropy", {{"logits", logits}}, one, {1},
                                      cross_entropy_formula(targets, ignored));
  if (!d) return d.failure();
  for (Real& number : (*d)[0].values) number /= *counted;
  return (*d)[0];
}

}  // namespace attest::lab::oracle
