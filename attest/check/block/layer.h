// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "attest/base/config.h"
#include "attest/base/dtype.h"
#include "attest/base/result.h"
#include "attest/base/tensor.h"
#include "attest/check/diagnose/diagnosis.h"
#include "attest/check/mistakes/claim.h"

namespace attest::check {

enum class LayerKind { norm, activation, gated, linear, rope, softmax };

/// One layer alone: what went in, what it is said to be, and what came out.
struct LayerDump {
  LayerKind kind = LayerKind::norm;
  Tensor<double> input{};   ///< [N, C]; rope: [N, heads·D]; gated: what is activated
  Tensor<double> output{};  ///< [N, C]; linear: [N, O]
  Tensor<double> up{};      ///< gated: [N, C]
  Tensor<double> weight{};  ///< linear: [C, O], input × output; norm: its gain [C], or none
  Tensor<double> bias{};    ///< linear: [O]; norm: [C]; or none
  Norm norm = Norm::layer_norm;
  double epsilon = 1e-5;
  Activation activation = Activation::relu;  ///< also of gated
  RopeConfig rope{};
  std::int64_t heads = 1;                 ///< rope
  std::vector<std::int64_t> positions{};  ///< rope: [N]; none: 0, 1, …, N − 1
  Tensor<double> cos{};                   ///< rope: [N, R/2] in place of positions and base
  Tensor<double> sin{};
  Precision precision = Precision::f32;
  DType dtype = DType::f32;     ///< that the output was stored in
  std::string name = "output";  ///< of the output, for sentences
};

/// Says whether a layer is what it claims to be, and if not, which form of it gives its numbers: LayerNorm
/// and RMSNorm in their variants, the forms of GELU, rotary pairings, the softmax's axis …
///
/// Formula       as diagnose_block, with one table
/// Shapes        as LayerDump says; a norm over several axes is given with these as one.
/// Fails         missing-tensor, shape-mismatch, bad-option.
[[nodiscard]] Result<Diagnosis> diagnose_layer(const LayerDump& dump,
                                               const DiagnoseOptions& options = {});

}  // namespace attest::check
