// SPDX-License-Identifier: MIT
// attest check --block: a whole transformer block by its named tensors.
#include "frontends/cli/check_block.h"

#include <array>
#include <utility>

#include "attest/base/text.h"
#include "attest/check/block/block_file.h"
#include "attest/io/tensor_file.h"
#include "frontends/cli/check_dump.h"
#include "frontends/cli/check_verdict.h"
#include "frontends/cli/options.h"

namespace attest::cli {
namespace {

Failure bad(std::string id, std::string message) {
  return {ErrorKind::value, std::move(id), "[check] " + std::move(message)};
}

template <class Choice, std::size_t N>
std::optional<Choice> chosen(const std::string& word,
                             const std::array<std::pair<const char*, Choice>, N>& choices) {
  for (const auto& [name, choice] : choices) {
    if (word == name) return choice;
  }
  return std::nullopt;
}

constexpr std::array norms{std::pair{"layer", Norm::layer_norm}, std::pair{"rms", Norm::rms_norm}};
constexpr std::array placements{std::pair{"post", NormPlacement::post},
                                std::pair{"pre", NormPlacement::pre},
                                std::pair{"sandwich", NormPlacement::sandwich}};
constexpr std::array activations{
    std::pair{"relu", Activation::relu}, std::pair{"gelu", Activation::gelu_erf},
    std::pair{"gelu-tanh", Activation::gelu_tanh}, std::pair{"silu", Activation::silu},
    std::pair{"gelu-quick", Activation::silu}};
constexpr std::array packings{std::pair{"blocked", check::PackedOrder::blocked},
                              std::pair{"by-head", check::PackedOrder::by_head},
                              std::pair{"interleaved", check::PackedOrder::interleaved}};
constexpr std::array halves{std::pair{"first", false}, std::pair{"second", true}};
constexpr std::array orders{std::pair{"input-output", check::WeightOrder::input_output},
                            std::pair{"output-input", check::WeightOrder::output_input}};
constexpr std::array precisions{
    std::pair{"f64", check::Precision::f64}, std::pair{"f32", check::Precision::f32},
    std::pair{"tf32", check::Precision::tf32}, std::pair{"f16", check::Precision::f16},
    std::pair{"bf16", check::Precision::bf16}};

/// An option that takes one of these words.
template <class Choice, std::size_t N>
CLI::Option* add_word_of(CLI::App& command, const std::string& name, std::string& target,
                         const std::array<std::pair<const char*, Choice>, N>& choices,
                         const std::string& help) {
  return command.add_option_function<std::string>(
      name,
      [&target, name, &choices](const std::string& word) {
        std::string known;
        for (const auto& choice : choices) {
          known += sentence(known.empty() ? "" : ", ", choice.first);
        }
        if (!chosen(word, choices)) {
          throw CLI::ValidationError(name,
                                     sentence("wants one of ", known, "; found '", word, "'"));
        }
        target = word;
      },
      help);
}

/// What attention alone can be told; a block that was told so would be judged as something else.
Result<void> only_what_blocks_have(const DumpOptions& o) {
  const CaseOptions& c = o.inputs;
  const std::pair<const char*, bool> others[] = {{"--window", !c.window.empty()},
                                                 {"--query-offset", !c.query_offset.empty()},
                                                 {"--key-lengths", !c.key_lengths.empty()},
                                                 {"--query-starts", !c.query_starts.empty()},
                                                 {"--key-starts", !c.key_starts.empty()},
                                                 {"--query-documents", !c.query_documents.empty()},
                                                 {"--key-documents", !c.key_documents.empty()},
                                                 {"--alibi-slopes", !c.alibi_slopes.empty()},
                                                 {"--dropout", c.dropout.has_value()},
                                                 {"--seed", c.seed.has_value()},
                                                 {"--sink", !c.sink.empty()},
                                                 {"--empty-row", !c.empty_row.empty()},
                                                 {"--layout", !c.layout.empty()},
                                                 {"--convention", !c.convention.empty()},
                                                 {"--scores-are", !o.scores_are.empty()},
                                                 {"--output-layout", !o.output_layout.empty()},
                                                 {"--past", o.past.has_value()},
                                                 {"--query-positions", !o.query_positions.empty()},
                                                 {"--key-positions", !o.key_positions.empty()}};
  for (const auto& [flag, given] : others) {
    if (given) return bad("not-used", sentence(flag, " is nothing that --block takes"));
  }
  if (!c.names.empty()) {
    return bad("not-used", sentence("--", c.names.begin()->first,
                                    " names a tensor of an attention call; with --block it is "
                                    "--name ROLE=TENSOR"));
  }
  if (!c.causal.empty() && c.causal != "square" && c.causal != "none") {
    return bad("not-used", "a block has as many queries as keys: --causal or --causal none");
  }
  if (o.rope.empty() && (o.rope_base || o.rope_dim)) {
    return bad("not-used", "rotary options need --rope half or --rope interleaved");
  }
  return {};
}

check::BlockFileOptions options_of(const DumpOptions& o, const BlockOptions& b) {
  check::BlockFileOptions out;
  out.names = b.names;
  out.weight_order = chosen(b.weights_are, orders);
  out.layer = b.layer;
  out.heads = o.inputs.heads;
  out.kv_heads = o.inputs.kv_heads;
  out.norm = chosen(b.norm, norms);
  out.placement = chosen(b.placement, placements);
  out.epsilon = b.epsilon;
  out.activation = chosen(b.activation, activations);
  out.quick_gelu = b.activation == "gelu-quick";
  out.packing = chosen(b.packing, packings);
  out.gate_second = chosen(b.gate_half, halves);
  if (!o.inputs.causal.empty()) out.causal = o.inputs.causal == "square";
  if (!o.rope.empty()) {
    out.rope =
        RopeConfig{.pairing = o.rope == "half" ? RopePairing::half : RopePairing::interleaved,
                   .rotary_dim = o.rope_dim.value_or(0),
                   .base = o.rope_base.value_or(10000)};
  }
  out.scale = o.inputs.scale;
  out.softcap = o.inputs.softcap;
  if (o.inputs.alibi) out.alibi = true;
  out.precision = chosen(o.precision, precisions);
  return out;
}

/// "ROLE=TENSOR: …" with every role.
std::string roles_text() {
  std::string known;
  for (const std::string& role : check::block_roles()) {
    known += sentence(known.empty() ? "" : ", ", role);
  }
  return sentence("ROLE=TENSOR: query_weight=q.w, x=hidden, ffn.up=h; may be repeated. Roles: ",
                  known);
}

}  // namespace

void add_block_options(CLI::App& command, BlockOptions& o) {
  auto* block = command.add_flag(
      "--block", o.chosen, "FILE holds a transformer block: weights, x, and what it made of it");
  const std::string group = "With --block";
  const std::vector<CLI::Option*> options{
      add_integer(command, "--layer", o.layer, "Which layer of a file that holds several",
                  {.least = 0}),
      add_word_of(command, "--weights-are", o.weights_are, orders,
                  "Order of a matrix's axes: input-output (y = x*W) or output-input (nn.Linear)"),
      add_word_of(command, "--norm", o.norm, norms, "layer or rms"),
      add_word_of(command, "--placement", o.placement, placements, "post, pre or sandwich"),
      add_word_of(command, "--activation", o.activation, activations,
                  "relu, gelu (by erf), gelu-tanh, gelu-quick (x*sigmoid(1.702*x)) or silu"),
      add_word_of(command, "--packing", o.packing, packings,
                  "How one matrix or table holds query, key and value: blocked [3, H, D], by-head "
                  "[H, 3, D] or interleaved [H, D, 3]"),
      add_word_of(command, "--gate-half", o.gate_half, halves,
                  "Which half of a packed gate_up is the gate: first or second"),
      add_number(command, "--epsilon", o.epsilon, "Of the norms", NumberRange::not_negative),
      command
          .add_option_function<std::vector<std::string>>(
              "--name",
              [&o](const std::vector<std::string>& pairs) {
                for (const std::string& pair : pairs) {
                  const std::size_t at = pair.find('=');
                  if (at == std::string::npos || at == 0 || at + 1 == pair.size()) {
                    throw CLI::ValidationError("--name",
                                               sentence("wants ROLE=TENSOR; found '", pair, "'"));
                  }
                  o.names[pair.substr(0, at)] = pair.substr(at + 1);
                }
              },
              roles_text())
          ->allow_extra_args(false)};
  for (CLI::Option* option : options) option->needs(block)->group(group);
}

Result<BlockVerdict> check_block(const DumpOptions& dump, const BlockOptions& options,
                                 std::int64_t most_mistakes) {
  if (auto ok = only_what_blocks_have(dump); !ok) return ok.failure();
  if (dump.inputs.file.empty()) return bad("missing-tensor", "--block needs a FILE");
  io::TensorFileOptions limits;
  limits.npz.max_total_bytes = static_cast<std::uint64_t>(dump.inputs.unpack_limit_gib.value_or(16))
                               << 30U;
  auto file = io::read_tensors(dump.inputs.file, limits);
  if (!file) return file.failure();
  if (!dump.prefix.empty()) {
    if (auto ok = keep_prefixed(*file, dump.prefix); !ok) return ok.failure();
  }
  auto block = check::read_block(*file, options_of(dump, options));
  if (!block) return block.failure();
  for (const std::string& said : block->said) note(said);
  CheckProgress progress("check");
  auto diagnosis = check::diagnose_block(
      block->dump, {.progress = progress.function(), .most_mistakes = most_mistakes});
  if (!diagnosis) return diagnosis.failure();
  const BlockConfig& c = block->dump.config;
  return BlockVerdict{sentence("a block of ", block->dump.rows(), " rows: C ", c.model_dim, ", H ",
                               c.heads, ", G ", c.kv_heads, ", D ", c.head_dim, ", F ", c.ffn_dim,
                               ", ", check::name_of(block->dump.precision)),
                      *std::move(diagnosis)};
}

}  // namespace attest::cli
