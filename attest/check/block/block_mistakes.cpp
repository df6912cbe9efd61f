// SPDX-License-Identifier: MIT
// The mistakes of blocks: the list itself, and those of norms, matrices and residuals.
#include "attest/check/block/block_mistakes.h"

#include <algorithm>
#include <array>

#include "attest/base/text.h"

namespace attest::check {
namespace block {
namespace {

constexpr double epsilons[] = {1e-3, 1e-5, 1e-6, 1e-8, 1e-12};
constexpr double dropout_rates[] = {0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5};

const std::vector<BlockMistake>& whole_list() {
  static const Entries* const entries = [] {
    auto* made = new Entries;  // texts are viewed for ever
    add_norm_mistakes(*made);
    add_matrix_mistakes(*made);
    add_attention_mistakes(*made);
    add_rope_mistakes(*made);
    add_ffn_mistakes(*made);
    add_block_mistakes(*made);
    return made;
  }();
  static const std::vector<BlockMistake> list = entries->all();
  return list;
}

bool has_place(const BlockConfig& config, NormPlace place) {
  return place == NormPlace::norm1 || place == NormPlace::norm2 ||
         config.placement == NormPlacement::sandwich;
}

/// A mistake of a norm: false if this norm has nothing that it could be made on.
using NormMake = bool (*)(NormRecipe&, const BlockConfig&, double);

struct NormEntry {
  const char* name;
  const char* what;
  const char* look_for;
  NormMake make;
  const char* seen_in = "";
  bool with_values = false;
};

const NormEntry norm_entries[] = {
    {"missing", "hands the rows on as they are, without a norm",
     "a norm that is built but not called, or nn.Identity in its place",
     [](NormRecipe& r, const BlockConfig&, double) { return r.missing = true; }},
    {"rms_for_layer", "divides by the root of the mean square and keeps the mean: RMSNorm",
     "RMSNorm where the model has LayerNorm",
     [](NormRecipe& r, const BlockConfig& c, double) {
       r.kind = Norm::rms_norm;
       return c.norm == Norm::layer_norm;
     }},
    {"layer_for_rms", "subtracts the mean and divides by the deviation: LayerNorm",
     "LayerNorm where the model has RMSNorm",
     [](NormRecipe& r, const BlockConfig& c, double) {
       r.kind = Norm::layer_norm;
       return c.norm == Norm::rms_norm;
     }},
    {"deviation_for_root_mean_square",
     "divides the rows by their deviation from the mean, not by the root of their mean square",
     "std() or var() inside an RMSNorm",
     [](NormRecipe& r, const BlockConfig& c, double) {
       r.centres_square = true;
       return c.norm == Norm::rms_norm;
     }},
    {"sample_variance", "divides the squares by n − 1, not by n",
     "var() or std() with their default correction (unbiased, ddof = 1)",
     [](NormRecipe& r, const BlockConfig&, double) { return r.sample = true; }},
    {"sum_for_mean", "adds the squares up and does not divide by n",
     "sum() for mean(), or F.normalize, in the norm",
     [](NormRecipe& r, const BlockConfig&, double) { return r.sum_for_mean = true; }},
    {"epsilon_outside", "adds epsilon to the deviation, outside the root",
     "x / (std + eps) for x / sqrt(var + eps)",
     [](NormRecipe& r, const BlockConfig&, double) {
       r.root = NormRecipe::Root::outside;
       return true;
     }},
    {"epsilon_missing", "adds no epsilon", "the eps argument of the norm",
     [](NormRecipe& r, const BlockConfig& c, double) {
       r.root = NormRecipe::Root::none;
       return c.epsilon != 0;
     }},
    {"epsilon_other", "uses another epsilon",
     "the default eps of the norm (1e-5 in PyTorch, 1e-6 in JAX and Llama, 1e-12 in BERT) against "
     "the model's file",
     [](NormRecipe& r, const BlockConfig& c, double value) {
       r.epsilon = value;
       return c.epsilon != value;
     },
     "", true},
    {"root_missing", "divides by the variance, not by its root", "sqrt or rsqrt in the norm",
     [](NormRecipe& r, const BlockConfig&, double) {
       r.root = NormRecipe::Root::none_taken;
       return true;
     }},
    {"mean_not_subtracted", "divides by the deviation but does not subtract the mean",
     "x for x - mean in the numerator",
     [](NormRecipe& r, const BlockConfig& c, double) {
       r.keeps_mean = true;
       return c.norm == Norm::layer_norm;
     }},
    {"gain_missing", "does not multiply by the gain",
     "the norm's weight: not loaded, or elementwise_affine=False",
     [](NormRecipe& r, const BlockConfig&, double) { return r.without_gain = true; }},
    {"bias_missing", "does not add the bias", "the norm's bias: not loaded, or bias=False",
     [](NormRecipe& r, const BlockConfig& c, double) {
       r.without_bias = true;
       return c.norm == Norm::layer_norm;
     }},
    {"one_plus_gain", "multiplies by 1 + gain",
     "Gemma stores gain - 1: its formula with another model's weights",
     [](NormRecipe& r, const BlockConfig&, double) { return r.one_plus_gain = true; }},
    {"over_positions", "normalises each feature along the sequence, not each row",
     "the axis of mean and var: features, not positions; BatchNorm for LayerNorm",
     [](NormRecipe& r, const BlockConfig&, double) { return r.over_positions = true; }},
    {"parameters_exchanged", "uses the gain and bias of the block's other norm",
     "the names that the two norms' weights are loaded by",
     [](NormRecipe& r, const BlockConfig&, double) { return r.other_norms_parameters = true; }},
};

struct Named {
  const char* name;
  const char* subject;
};
constexpr Named norm_names[] = {{"norm1", "The first norm "},
                                {"norm2", "The second norm "},
                                {"norm1_out", "The norm after attention "},
                                {"norm2_out", "The norm after the feed-forward layer "}};
constexpr Named matrix_names[] = {{"projection.query", "The query projection "},
                                  {"projection.key", "The key projection "},
                                  {"projection.value", "The value projection "},
                                  {"projection.output", "The output projection "},
                                  {"ffn.up", "The feed-forward layer's up projection "},
                                  {"ffn.gate", "The feed-forward layer's gate projection "},
                                  {"ffn.down", "The feed-forward layer's down projection "}};

/// Rows and columns of a matrix.
std::pair<std::int64_t, std::int64_t> extents_of(const BlockConfig& c, Matrix which) {
  switch (which) {
    case Matrix::query:
      return {c.model_dim, c.heads * c.head_dim};
    case Matrix::key:
      return {c.model_dim, c.kv_heads * c.head_dim};
    case Matrix::value:
      return {c.model_dim, c.kv_heads * c.value_dim};
    case Matrix::output:
      return {c.heads * c.value_dim, c.model_dim};
    case Matrix::down:
      return {c.ffn_dim, c.model_dim};
    case Matrix::up:
    case Matrix::gate:
      break;
  }
  return {c.model_dim, c.ffn_dim};
}

/// Whether a matrix is square, so that its transpose fits.
bool is_square(const BlockConfig& c, Matrix which) {
  const auto [rows, columns] = extents_of(c, which);
  return rows == columns;
}

bool has_matrix(const BlockConfig& c, Matrix which) { return which != Matrix::gate || c.gated; }

}  // namespace

void Entries::add(Entry entry, Make make) {
  entries_.emplace_back(std::move(entry), std::move(make));
}

std::vector<BlockMistake> Entries::all() const {
  std::vector<BlockMistake> out;
  for (const auto& [entry, make] : entries_) {
    out.push_back({{.name = entry.name,
                    .axis = Axis::block,
                    .kind = entry.kind,
                    .what = entry.what,
                    .look_for = entry.look_for,
                    .seen_in = entry.seen_in,
                    .values = entry.values},
                   make,
                   entry.reroutes});
  }
  return out;
}

void add_norm_mistakes(Entries& entries) {
  for (const NormEntry& entry : norm_entries) {
    const std::span<const double> values =
        entry.with_values ? std::span<const double>(epsilons) : std::span<const double>();
    entries.add({.name = sentence("norm.", entry.name),
                 .what = sentence("Every norm of the block ", entry.what, "."),
                 .look_for = sentence(entry.look_for, "."),
                 .seen_in = entry.seen_in,
                 .values = values},
                [make = entry.make](BlockRecipe& r, const BlockConfig& c, double value) {
                  bool any = false;
                  for (NormRecipe& norm : r.norms) any = make(norm, c, value) || any;
                  return any;
                });
    for (std::size_t n = 0; n < norm_places; ++n) {
      const auto place = static_cast<NormPlace>(n);
      entries.add({.name = sentence(norm_names[n].name, ".", entry.name),
                   .what = sentence(norm_names[n].subject, "alone ", entry.what, "."),
                   .look_for = sentence(entry.look_for, "."),
                   .seen_in = entry.seen_in,
                   .values = values},
                  [make = entry.make, place](BlockRecipe& r, const BlockConfig& c, double value) {
                    return has_place(c, place) && make(r.norm(place), c, value);
                  });
    }
  }
}

void add_matrix_mistakes(Entries& entries) {
  for (std::size_t n = 0; n < matrices; ++n) {
    const auto which = static_cast<Matrix>(n);
    const std::string name = matrix_names[n].name;
    const std::string subject = matrix_names[n].subject;
    entries.add({.name = name + "_transposed",
                 .what = subject + "multiplies by its matrix's transpose.",
                 .look_for = "y = x·W against y = x·Wᵀ: nn.Linear stores output × input, "
                             "Conv1D and Flax's Dense input × output."},
                [which](BlockRecipe& r, const BlockConfig& c, double) {
                  return r.matrix(which).transposed = is_square(c, which) && has_matrix(c, which);
                });
    entries.add({.name = name + "_bias_missing",
                 .what = subject + "does not add its bias.",
                 .look_for = "bias=False, or a bias that is not loaded."},
                [which](BlockRecipe& r, const BlockConfig& c, double) {
                  return r.matrix(which).without_bias = has_matrix(c, which);
                });
    entries.add({.name = name + "_bias_twice",
                 .what = subject + "adds its bias twice.",
                 .look_for = "a bias in the layer and again in the kernel's epilogue, or "
                             "one added on every rank before the sum."},
                [which](BlockRecipe& r, const BlockConfig& c, double) {
                  return r.matrix(which).bias_twice = has_matrix(c, which);
                });
  }
  entries.add({.name = "projection.all_transposed",
               .what = "All four projections of attention multiply by their matrices' transposes.",
               .look_for = "weights of nn.Linear (output × input) loaded as input × "
                           "output, or the reverse; square matrices do not complain."},
              [](BlockRecipe& r, const BlockConfig& c, double) {
                for (std::size_t n = 0; n < 4; ++n) {
                  const auto which = static_cast<Matrix>(n);
                  if (!is_square(c, which)) return false;
                  r.matrix(which).transposed = true;
                }
                return true;
              });
  entries.add({.name = "projection.bias_missing",
               .what = "No projection of attention adds its bias.",
               .look_for = "qkv_bias=False, or biases that are not loaded."},
              [](BlockRecipe& r, const BlockConfig&, double) {
                for (std::size_t n = 0; n < 4; ++n) r.linear[n].without_bias = true;
                return true;
              });
  entries.add({.name = "ffn.bias_missing",
               .what = "No projection of the feed-forward layer adds its bias.",
               .look_for = "bias=False in the feed-forward layer, or biases not loaded."},
              [](BlockRecipe& r, const BlockConfig&, double) {
                for (std::size_t n = 4; n < matrices; ++n) r.linear[n].without_bias = true;
                return true;
              });
  entries.add({.name = "projection.output_missing",
               .what = "The merged heads go on without the output projection.",
               .look_for = "out_proj, o_proj or c_proj: built but not called."},
              [](BlockRecipe& r, const BlockConfig& c, double) {
                return r.matrix(Matrix::output).missing = is_square(c, Matrix::output);
              });
  struct Tied {
    Matrix which, weights_of;
    const char* name;
  };
  for (const Tied& tied : {Tied{Matrix::key, Matrix::query, "projection.key_weights_of_query"},
                           Tied{Matrix::query, Matrix::key, "projection.query_weights_of_key"},
                           Tied{Matrix::value, Matrix::key, "projection.value_weights_of_key"},
                           Tied{Matrix::key, Matrix::value, "projection.key_weights_of_value"},
                           Tied{Matrix::value, Matrix::query, "projection.value_weights_of_query"},
                           Tied{Matrix::gate, Matrix::up, "ffn.gate_weights_of_up"},
                           Tied{Matrix::up, Matrix::gate, "ffn.up_weights_of_gate"}}) {
    entries.add({.name = tied.name,
                 .what = sentence(matrix_names[static_cast<std::size_t>(tied.which)].subject,
                                  "multiplies by the matrix of another projection."),
                 .look_for = "the name that this matrix is loaded by, and for tied or "
                             "shared parameters."},
                [tied](BlockRecipe& r, const BlockConfig& c, double) {
                  r.matrix(tied.which).weights_of = tied.weights_of;
                  return has_matrix(c, tied.which) && has_matrix(c, tied.weights_of) &&
                         extents_of(c, tied.which) == extents_of(c, tied.weights_of);
                });
  }
}

void add_block_mistakes(Entries& entries) {
  const auto placed = [&](NormPlacement placement, const char* name, const char* what) {
    entries.add({.name = name,
                 .what = what,
                 .look_for = "the order of norm, layer and residual: x + f(norm(x)), "
                             "norm(x + f(x)), x + norm(f(norm(x))).",
                 .reroutes = true},
                [placement](BlockRecipe& r, const BlockConfig& c, double) {
                  r.placement = placement;
                  // A sandwich has parameters that the others lack: without gains it is one.
                  return c.placement != placement;
                });
  };
  placed(NormPlacement::pre, "block.pre_norm",
         "The block normalises before each layer: x + f(norm(x)).");
  placed(NormPlacement::post, "block.post_norm",
         "The block normalises after each residual: norm(x + f(x)).");
  placed(NormPlacement::sandwich, "block.sandwich_norm",
         "The block normalises before and after each layer: x + norm(f(norm(x))).");
  constexpr std::pair<const char*, const char*> layers[] = {
      {"residual1", "attention"}, {"residual2", "the feed-forward layer"}};
  for (std::size_t n = 0; n < 2; ++n) {
    const std::string_view name = layers[n].first, layer = layers[n].second;
    const auto change = [&](const char* what, std::string text, std::string look,
                            Entries::Make make, std::span<const double> values = {}) {
      entries.add({.name = sentence("block.", name, "_", what),
                   .what = std::move(text),
                   .look_for = std::move(look),
                   .values = values},
                  std::move(make));
    };
    change(
        "missing", sentence("What went into ", layer, " is not added to its result."),
        "x = f(x) where x = x + f(x) is meant.",
        [n](BlockRecipe& r, const BlockConfig&, double) { return r.residuals[n].missing = true; });
    change("from_normed",
           sentence("The normalised rows are added to the result of ", layer,
                    ", not the rows before the norm."),
           "x = norm(x); x = x + f(x): the residual's x has been overwritten.",
           [n](BlockRecipe& r, const BlockConfig& c, double) {
             r.residuals[n].from_normed = true;
             return c.placement != NormPlacement::post;
           });
    change(
        "doubled", sentence("What went into ", layer, " is added twice."),
        "a layer that adds its own input inside a block that adds it again.",
        [n](BlockRecipe& r, const BlockConfig&, double) { return r.residuals[n].doubled = true; });
    change("without_layer", sentence("The result of ", layer, " is not added."),
           "a result that is computed and dropped: a missing assignment, a layer scale "
           "of zero, a skipped layer.",
           [n](BlockRecipe& r, const BlockConfig&, double) {
             r.residuals[n].branch = 0;
             return true;
           });
    change(
        "dropout_scale",
        sentence("The result of ", layer,
                 " is multiplied by 1/(1 − p): the scale of a dropout that drops nothing."),
        "dropout in training mode, or its scale applied at inference.",
        [n](BlockRecipe& r, const BlockConfig&, double p) {
          r.residuals[n].branch = 1 / (1 - p);
          return true;
        },
        dropout_rates);
  }
  entries.add({.name = "block.residuals_missing",
               .what = "Neither layer's input is added to its result.",
               .look_for = "x = f(x) where x = x + f(x) is meant."},
              [](BlockRecipe& r, const BlockConfig&, double) {
                r.residuals[0].missing = r.residuals[1].missing = true;
                return true;
              });
  entries.add(
      {.name = "block.residual2_from_x",
       .what = "The block's input is added to the feed-forward layer's result, not what "
               "attention made of it.",
       .look_for = "the variable that the second residual adds."},
      [](BlockRecipe& r, const BlockConfig&, double) { return r.residuals[1].from_x = true; });
  entries.add({.name = "block.parallel_one_norm",
               .what = "The feed-forward layer reads what attention read, beside it, not after it "
                       "(GPT-J).",
               .look_for = "x + attention(n) + ffn(n): the parallel form.",
               .reroutes = true},
              [](BlockRecipe& r, const BlockConfig& c, double) {
                r.ffn_place = BlockRecipe::Ffn::beside_norm1;
                return c.placement == NormPlacement::pre;
              });
  entries.add({.name = "block.parallel_two_norms",
               .what = "The feed-forward layer reads its own norm of the block's input, beside "
                       "attention, not after it (GPT-NeoX).",
               .look_for = "use_parallel_residual: x + attention(norm1(x)) + "
                           "ffn(norm2(x)).",
               .reroutes = true},
              [](BlockRecipe& r, const BlockConfig& c, double) {
                r.ffn_place = BlockRecipe::Ffn::beside_norm2;
                return c.placement == NormPlacement::pre;
              });
  entries.add(
      {.name = "block.ffn_reads_residual",
       .what = "The feed-forward layer reads the residual, not its norm.",
       .look_for = "ffn(x) where ffn(norm2(x)) is meant; the norm may be computed "
                   "and not used.",
       .reroutes = true},
      [](BlockRecipe& r, const BlockConfig&, double) { return r.ffn_reads_residual = true; });
  entries.add({.name = "block.stream_bf16",
               .kind = MistakeKind::rounding,
               .what = "The residual stream is rounded to bfloat16.",
               .look_for = "residuals added in bfloat16 (autocast, fp32_residual off)."},
              [](BlockRecipe& r, const BlockConfig&, double) {
                r.stream = ResidualRounding::bf16;
                return true;
              });
  entries.add({.name = "block.stream_f16",
               .kind = MistakeKind::rounding,
               .what = "The residual stream is rounded to float16.",
               .look_for = "residuals added in float16 (autocast, fp32_residual off)."},
              [](BlockRecipe& r, const BlockConfig&, double) {
                r.stream = ResidualRounding::f16;
                return true;
              });
}

std::span<const BlockMistake> block_mistakes() { return whole_list(); }

std::string Candidate::label() const {
  const std::string name(mistake->text.name);
  return mistake->text.values.empty() ? name : sentence(name, " (", value, ")");
}

std::vector<Candidate> candidates_of(const BlockConfig& config) {
  return candidates_of(config, claimed(config));
}

std::vector<Candidate> candidates_of(const BlockConfig& config, const BlockRecipe& claim) {
  static constexpr double no_value[] = {0};
  std::vector<Candidate> out;
  for (const BlockMistake& mistake : block_mistakes()) {
    const std::span<const double> values =
        mistake.text.values.empty() ? std::span<const double>(no_value) : mistake.text.values;
    for (const double value : values) {
      BlockRecipe recipe = claim;
      if (mistake.make(recipe, config, value)) out.push_back({&mistake, value});
    }
  }
  return out;
}

}  // namespace block

const Mistake* find_block_mistake(std::string_view name) {
  for (const block::BlockMistake& mistake : block::block_mistakes()) {
    if (mistake.text.name == name) return &mistake.text;
  }
  return nullptr;
}

}  // namespace attest::check
