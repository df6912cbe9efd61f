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
  /// All rows; or these alone, of B·T, where keys and values of other rows are the plain program's, whose
  /// binary64 is far within any tolerance. The program must outlive it, and have their reach and all rows.
  Exact(const BlockDump& dump, Reach reach, RowSet sample = {}, Program* plain = nullptr);

  /// As Program::stage.
  const Tensor<double>& stage(BlockStage stage);
  /// The numbers that the claim's stage is computed from.
  const Tensor<double>& source(BlockStage stage);
  /// The block's input.
  const Tensor<double>& x();
  /// Where a row of the block stands in a table of rows; −1 if it is not looked at.
  [[nodiscard]] std::int64_t place_of(std::int64_t row) const;
  [[nodiscard]] const RowSet& sample() const { return sample_; }

 private:
  [[nodiscard]] bool all() const { return sample_.all; }
  /// All rows of a stage, for keys and values: the dump's or the plain program's.
  [[nodiscard]] View<const double, 2> every(BlockStage stage);
  Tensor<double> sampled_weights();
  Tensor<double> sampled_heads();
  Tensor<double> sampled_concat();
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
  RowSet sample_;
  RowSet sample_by_head_;
  Program* plain_;
  std::optional<Tensor<double>> x_{};
  std::array<std::optional<Tensor<double>>, block_stages> picked_{};
  std::array<std::optional<Tensor<double>>, block_stages> computed_{};
};

}  // namespace attest::check::block
