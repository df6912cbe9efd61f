// SPDX-License-Identifier: MIT
#include "attest/check/block/sentences.h"

#include "attest/base/text.h"
#include "attest/lab/layers.h"

namespace attest::check::block {
namespace {

struct Place {
  std::string prefix{};
  std::int64_t row = 0;
};

Place place_of(const BlockDump& dump, BlockStage stage, std::int64_t row) {
  const std::int64_t H = dump.config.heads;
  const std::int64_t T = dump.rows() / dump.sequences;
  const bool stacked = stage == BlockStage::weights || stage == BlockStage::heads;
  Place out;
  const std::int64_t b = stacked ? row / (H * T) : row / T;
  if (dump.sequences > 1) out.prefix = sentence("batch", b, ".");
  if (stacked && H > 1) out.prefix += sentence("h", row / T % H, ".");
  out.row = row % T;
  return out;
}

std::string bracket(const BlockDump& dump, BlockStage stage, std::int64_t row,
                    std::string_view column) {
  const Place place = place_of(dump, stage, row);
  return sentence(place.prefix, name_of(stage), "[", place.row, ",", column, "]");
}

}  // namespace

std::string Sentences::address(BlockStage stage, std::int64_t row, std::int64_t column) const {
  return bracket(dump, stage, row, sentence(column));
}

std::string norm_sentence(View<const double, 2> row, const BlockConfig& config,
                          const Tensor<double>& gain, const Tensor<double>& bias,
                          std::int64_t column) {
  const bool centred = config.norm == Norm::layer_norm;
  const lab::NormParameters plain{.epsilon = config.epsilon};
  const auto norm = centred ? lab::layer_norm(row, plain) : lab::rms_norm(row, plain);
  if (!norm) return "";
  const auto at = static_cast<std::size_t>(column);
  std::string out = centred ? sentence("(", row(0, column), " − mean ", norm->mean(0), ")")
                            : sentence(row(0, column));
  out += sentence(" / √(", centred ? "variance " : "mean square ", norm->variance(0), " + ",
                  config.epsilon, ")");
  if (gain.size() != 0) out += sentence(" · gain ", gain.elements()[at]);
  if (bias.size() != 0) out += sentence(" + bias ", bias.elements()[at]);
  return out;
}

std::string Sentences::why(BlockStage stage, std::int64_t row, std::int64_t column) const {
  using S = BlockStage;
  const BlockConfig& c = dump.config;
  const bool post = c.placement == NormPlacement::post;
  const bool sandwich = c.placement == NormPlacement::sandwich;
  if (stage == S::output) stage = post ? S::norm2 : S::residual2;
  const std::string o = sentence(column);
  std::string here = address(stage, row, column);
  const auto table = [&](S from) { return bracket(dump, from, row, "i"); };
  const auto cell = [&](S from) { return address(from, row, column); };
  const std::string x_row = sentence("x[", place_of(dump, S::norm1, row).row, ",");
  const auto linear = [&](const std::string& in, std::string_view name) {
    return sentence(here, " = Σ_i ", in, "·", name, "_weight[i,", o, "] + ", name, "_bias[", o,
                    "]");
  };
  const std::string attention_in = post ? x_row + "i]" : table(S::norm1);
  const std::string ffn_in = table(post ? S::norm1 : S::norm2);
  const auto norm = [&](const Tensor<double>& in, const Tensor<double>& gain,
                        const Tensor<double>& bias) {
    const std::int64_t place = exact.place_of(row);
    if (in.size() == 0 || place < 0) return std::string();
    const View<const double, 2> line(in.data() + place * c.model_dim, {1, c.model_dim});
    return sentence(here, " = ", norm_sentence(line, c, gain, bias, column));
  };
  const BlockWeights<double>& w = dump.weights;
  switch (stage) {
    case S::norm1:
      return norm(post ? exact.source(S::residual1) : exact.x(), w.norm1_gain, w.norm1_bias);
    case S::norm2:
      return norm(exact.source(post ? S::residual2 : S::residual1), w.norm2_gain, w.norm2_bias);
    case S::norm1_out:
      return norm(exact.source(S::output_projection), w.norm1_out_gain, w.norm1_out_bias);
    case S::norm2_out:
      return norm(exact.source(S::down), w.norm2_out_gain, w.norm2_out_bias);
    case S::query:
      return linear(attention_in, "query");
    case S::key:
      return linear(attention_in, "key");
    case S::value:
      return linear(attention_in, "value");
    case S::rope_query:
      return sentence(here, ": ", cell(S::query), " turned with its partner by the row's position");
    case S::rope_key:
      return sentence(here, ": ", cell(S::key), " turned with its partner by the row's position");
    case S::weights:
      return sentence(here, " = exp(score − peak) / Σ over the visible keys");
    case S::heads:
      return sentence(here, " = Σ_j weights[j]·value[j,", o, "]");
    case S::concat:
      return sentence(here, ": head ", column / c.value_dim, ", feature ", column % c.value_dim);
    case S::output_projection:
      return linear(table(S::concat), "output");
    case S::residual1:
      return sentence(here, " = ", x_row, o, "] + ",
                      cell(sandwich ? S::norm1_out : S::output_projection));
    case S::residual2:
      return sentence(here, " = ", cell(post ? S::norm1 : S::residual1), " + ",
                      cell(sandwich ? S::norm2_out : S::down));
    case S::up:
      return linear(ffn_in, "up");
    case S::gate:
      return linear(ffn_in, "gate");
    case S::activation:
      return sentence(here, " = f(", cell(c.gated ? S::gate : S::up), ")");
    case S::gated:
      return sentence(here, " = ", cell(S::activation), " · ", cell(S::up));
    case S::down:
      return linear(table(c.gated ? S::gated : S::activation), "down");
    case S::output:
      break;
  }
  return here;
}

}  // namespace attest::check::block
