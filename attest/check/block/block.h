// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "attest/base/config.h"
#include "attest/base/dtype.h"
#include "attest/base/result.h"
#include "attest/base/tensor.h"
#include "attest/check/diagnose/diagnosis.h"
#include "attest/check/mistakes/claim.h"

namespace attest::check {

/// The tables of a block, as attest/lab/block.h names them. In a dump of B sequences of T rows, C, F and
/// the rest as in attest/base/config.h:
enum class BlockStage {
  norm1,              ///< [B·T, C]
  query,              ///< [B·T, H·D] after the projection
  key,                ///< [B·T, G·D]
  value,              ///< [B·T, G·E]
  rope_query,         ///< the same, turned
  rope_key,           //
  weights,            ///< [B·H·T, T]
  heads,              ///< [B·H·T, E], before the heads are laid side by side
  concat,             ///< [B·T, H·E]
  output_projection,  ///< [B·T, C]
  norm1_out,          ///< sandwich only
  residual1,          //
  norm2,              //
  up,                 ///< [B·T, F]
  gate,               //
  activation,         //
  gated,              //
  down,               ///< [B·T, C]
  norm2_out,          //
  residual2,          //
  output,             ///< residual2, or norm2 of a block that normalises last
};
inline constexpr int block_stages = 21;
/// "norm1", "projection.query", "ffn.up", …
[[nodiscard]] std::string_view name_of(BlockStage stage) noexcept;

/// One table that the implementation produced.
struct BlockTable {
  Tensor<double> values{};   ///< rank 2, with the shape above
  std::string name{};        ///< in the file, for sentences
  DType dtype = DType::f32;  ///< that it was stored in
};

/// What of a config nobody said. Numbers that are another choice's do not convict.
struct Assumed {
  bool norm = false;
  bool placement = false;
  bool epsilon = false;
  bool activation = false;
  bool causal = false;
  bool positions = false;   ///< rotary, ALiBi or none
  bool scale = false;       ///< of the scores
  bool packing = false;     ///< how one matrix holds query, key and value
  bool gate_order = false;  ///< which half of one matrix is the gate
};

/// How one matrix, or one table, holds query, key and value.
enum class PackedOrder {
  blocked,      ///< [3, H, D]
  by_head,      ///< [H, 3, D]
  interleaved,  ///< [H, D, 3]
};

/// A block that somebody computed: what went in, what it is said to be, and any of its tables.
///
/// A weight that no compared table needs may be absent; a bias or gain that is absent is none.
struct BlockDump {
  BlockConfig config{};
  bool quick_gelu = false;  ///< the activation is x·σ(1.702 x), which no config says
  Assumed assumed{};
  PackedOrder packed = PackedOrder::blocked;  ///< as which the weights below were cut out of one
  /// Query, key and value are cut out of one table that was made before any program cut it.
  bool packed_table = false;
  BlockWeights<double> weights{};  ///< input × output
  Tensor<double> x{};              ///< [B·T, C]; may be absent if a later table is given
  std::int64_t sequences = 1;      ///< B
  Precision precision = Precision::f32;
  std::map<BlockStage, BlockTable> stages{};

  [[nodiscard]] std::int64_t rows() const;  ///< B·T
};

/// The mistakes of blocks and layers: "block.…", "norm.…", "ffn.…", "projection.…", "heads.…", …
/// `make` is null in all of them: their recipes are BlockRecipes (block_mistakes.h).
[[nodiscard]] const Mistake* find_block_mistake(std::string_view name);

/// Says whether a block is what its config computes, and if not, which mistakes give its numbers.
///
/// Formula       each table is judged from those before it that the dump has, by the exact tier's own
///               layers; the last one also from x alone. What can fail first is named first.
///               A mistake explains a dump if every table recomputed with it, from the same tables before,
///               is within the noise of the claimed precision. Undecided if another explanation is nearer
///               than three times what is left.
///               What was assumed and not said is read in all usual ways (readings.h). If one of them gives
///               the numbers the block is right, and `unsaid` says which; undecided if several do that differ
///               elsewhere, but not all. Wrong numbers are judged by the nearest reading.
/// Shapes        as BlockStage says.
/// Edge cases    NaN patterns are compared before numbers. A weight that is not given makes the tables that
///               need it unjudged, which is said.
/// Accuracy      noise is what the roundings of the plain loop in the claimed precision come to in root mean
///               square, at the sizes of this dump; a tolerance is the largest of so many random deviations,
///               with what numbers of a row may share, or the running error bound if it is less (Zones in
///               numbers.h).
/// Determinism   a function of its arguments.
/// Fails         missing-tensor if nothing can be judged; shape-mismatch; bad-option.
/// Cost          the exact tier once; where something is wrong, some hundred evaluations in plain binary64 of
///               the tables that a mistake changes, and thousands for pairs. A block of more than 2^25
///               products is compared with the plain program in binary64, and with the exact tier in the rows
///               that come worst off; mistakes are looked for in a few rows, pairs among the nearest, none of
///               three, and what is found is confirmed in all rows. A right one is not searched for mistakes
///               that it would not show.
[[nodiscard]] Result<Diagnosis> diagnose_block(const BlockDump& dump,
                                               const DiagnoseOptions& options = {});

}  // namespace attest::check
