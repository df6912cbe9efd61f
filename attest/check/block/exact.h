// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <optional>

#include "attest/base/tensor.h"
#include "attest/check/block/block.h"
#include "attest/check/block/program.h"

namespace attest::check::block {

/// The claim's tables by the exact tier's layers, from the tables before them that the dump has: what
/// the dump is judged by. The dump must have been checked.
class Exact {
 public:
  Exact(const BlockDump& dump, Reach reach);

  /// As Program::stage.
  const Tensor<double>& stage(BlockStage stage);
  /// The numbers that the claim's stage is computed from.
  const Tensor<double>& source(BlockStage stage);

 private:
  Tensor<double> compute(BlockStage stage);
  Tensor<double> norm(int place, const Tensor<double>& in) const;
  Tensor<double> linear(Tensor<double> BlockWeights<double>::*weight,
                        Tensor<double> BlockWeights<double>::*bias, const Tensor<double>& in) const;
  Tensor<double> turned(const Tensor<double>& in, std::int64_t heads) const;
  Tensor<double> weights();
  Tensor<double> mixed();
  [[nodiscard]] const Tensor<double>& attention_in();
  [[nodiscard]] const Tensor<double>& hidden();
  [[nodiscard]] const Tensor<double>& ffn_in();

  const BlockDump& dump_;
  Reach reach_;
  std::array<std::optional<Tensor<double>>, block_stages> computed_{};
};

}  // namespace attest::check::block
