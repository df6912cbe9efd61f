// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "attest/base/config.h"

/// How a program, right or wrong, computes a block: what a mistake changes is a field here.
namespace attest::check::block {

enum class NormPlace { norm1, norm2, norm1_out, norm2_out };
inline constexpr std::size_t norm_places = 4;

struct NormRecipe {
  bool operator==(const NormRecipe&) const = default;
  Norm kind = Norm::layer_norm;
  double epsilon = 1e-5;
  enum class Root {
    inside,     ///< √(variance + ε)
    outside,    ///< √variance + ε
    none,       ///< √variance
    none_taken  ///< variance + ε
  } root = Root::inside;
  bool missing = false;         ///< the rows go on as they are
  bool keeps_mean = false;      ///< x itself is divided, not x − mean
  bool centres_square = false;  ///< rms_norm that divides x by the deviation from the mean
  bool sample = false;          ///< n − 1 for n
  bool over_positions = false;  ///< each feature along the sequence
  bool without_gain = false;
  bool without_bias = false;
  bool one_plus_gain = false;
  bool other_norms_parameters = false;  ///< norm1's for norm2 and back
  bool sum_for_mean = false;            ///< the squares are added up, not averaged
};

enum class Matrix { query, key, value, output, up, gate, down };
inline constexpr std::size_t matrices = 7;

struct LinearRecipe {
  bool operator==(const LinearRecipe&) const = default;
  bool transposed = false;
  bool missing = false;  ///< the rows go on as they are
  bool without_bias = false;
  bool bias_twice = false;
  std::optional<Matrix> weights_of{};  ///< another matrix in its place
};

/// How [T, H·W] becomes heads, and heads become [T, H·E].
enum class HeadOrder {
  by_head,     ///< head h has the features from h·W on
  reshaped,    ///< the memory is taken as [H, T, W] as it lies
  by_feature,  ///< feature w·H + h
};

/// How one projection to query, key and value together is cut.
enum class Packing {
  blocked,               ///< as claimed
  read_by_head,          ///< stored [3][H][D], read as [H][3][D]
  by_head_read_blocked,  ///< the other way
  read_interleaved,      ///< stored [3][H][D], read as [H][D][3]
  interleaved_read_blocked,
};

struct RopeRecipe {
  bool operator==(const RopeRecipe&) const = default;
  bool none = false;
  RopePairing pairing = RopePairing::half;
  std::int64_t rotary_dim = 0;
  double base = 10000;
  std::int64_t query_offset = 0;  ///< added to positions
  std::int64_t key_offset = 0;
  bool skips_query = false;
  bool skips_key = false;
  bool turns_value = false;
  bool backwards = false;
  bool twice = false;
  bool last_features = false;     ///< the last R features turn, not the first
  bool whole_width = false;       ///< frequencies by D where R turn
  bool exponent_by_pair = false;  ///< base^(−i/R)
  bool tables_of_other_pairing = false;
  bool across_heads = false;  ///< [T, H·D] is turned as one wide row
};

struct AttendRecipe {
  bool operator==(const AttendRecipe&) const = default;
  HeadOrder query_heads = HeadOrder::by_head;
  HeadOrder key_heads = HeadOrder::by_head;
  HeadOrder value_heads = HeadOrder::by_head;
  HeadOrder merge = HeadOrder::by_head;
  Packing packing = Packing::blocked;
  enum class Roles { as_claimed, query_key, key_value, query_value } roles = Roles::as_claimed;
  bool tiled_heads = false;  ///< h mod G
  bool first_kv_head = false;
  double scale = 1;
  std::optional<double> softcap{};
  enum class Visible { all, causal, strict, one_future, reversed } visible = Visible::all;
  bool after_softmax = false;  ///< hidden weights are zeroed, not taken out of the sum
  bool alibi = false;
  double alibi_sign = 1;
  bool alibi_geometric = false;
  enum class Over { keys, queries, heads, nothing } softmax = Over::keys;
  enum class Form {
    softmax,
    base2,         ///< powers of 2
    log2e_twice,   ///< e^(x·log2 e)
    twice,         ///< the softmax of the softmax
    plus_one,      ///< 1 more in the sum
    unnormalised,  ///< e^(x − peak)
    sigmoid,
  } form = Form::softmax;
  double dropout_factor = 1;
  RopeRecipe rope{};
};

enum class ActivationForm { relu, gelu_erf, gelu_tanh, gelu_quick, silu, leaky_relu, none };

struct FfnRecipe {
  bool operator==(const FfnRecipe&) const = default;
  ActivationForm activation = ActivationForm::relu;
  bool gated = false;
  bool exchanged = false;     ///< gate and up for each other
  bool activates_up = false;  ///< up goes through the activation, the gate as it is
  bool both_active = false;
  bool up_ignored = false;    ///< the gate alone
  bool gate_ignored = false;  ///< up alone, activated
  bool sum_for_product = false;
};

/// The right-hand side of a residual.
struct ResidualRecipe {
  bool operator==(const ResidualRecipe&) const = default;
  bool missing = false;
  bool from_normed = false;  ///< what went into the layer is added, not what went into its norm
  bool doubled = false;
  bool from_x = false;  ///< residual2 alone: the block's input for the first residual
  double branch = 1;    ///< what the layer's result is multiplied by
};

enum class ResidualRounding { none, bf16, f16 };

struct BlockRecipe {
  NormPlacement placement = NormPlacement::post;
  std::array<NormRecipe, norm_places> norms{};
  std::array<LinearRecipe, matrices> linear{};
  AttendRecipe attend{};
  FfnRecipe ffn{};
  std::array<ResidualRecipe, 2> residuals{};
  enum class Ffn { after, beside_norm1, beside_norm2 } ffn_place = Ffn::after;
  bool ffn_reads_residual = false;  ///< residual1 without its norm
  ResidualRounding stream = ResidualRounding::none;

  [[nodiscard]] NormRecipe& norm(NormPlace place) { return norms[static_cast<std::size_t>(place)]; }
  [[nodiscard]] const NormRecipe& norm(NormPlace place) const {
    return norms[static_cast<std::size_t>(place)];
  }
  [[nodiscard]] LinearRecipe& matrix(Matrix which) {
    return linear[static_cast<std::size_t>(which)];
  }
  [[nodiscard]] const LinearRecipe& matrix(Matrix which) const {
    return linear[static_cast<std::size_t>(which)];
  }
};

/// The claim itself.
[[nodiscard]] BlockRecipe claimed(const BlockConfig& config);

}  // namespace attest::check::block
