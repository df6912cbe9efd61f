// SPDX-License-Identifier: MIT
// The mistakes of blocks: attention, rotary positions, feed-forward.
#include <cmath>

#include "attest/base/text.h"
#include "attest/check/block/block_mistakes.h"

namespace attest::check::block {
namespace {

constexpr double dropout_rates[] = {0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5};
constexpr double rope_bases[] = {100, 1000, 10000, 100000, 500000, 1000000};

using Recipe = BlockRecipe;
using Config = BlockConfig;

double extent(std::int64_t n) { return static_cast<double>(n); }

/// Whether a scale is another number than the claim's.
bool rescaled(Recipe& r, double scale) {
  const double before = r.attend.scale;
  r.attend.scale = scale;
  return std::fabs(before - scale) > 1e-12 * std::fabs(before);
}

void add_head_mistakes(Entries& e) {
  constexpr const char* split = "view or reshape to [B, T, H, D] before the transpose.";
  e.add({.name = "heads.split_by_reshape",
         .what = "The projections' memory is taken as [H, T, D] as it lies, without a transpose.",
         .look_for = split,
         .seen_in = "reczoo/FuxiCTR#30, hyunwoongko/transformer#15"},
        [](Recipe& r, const Config& c, double) {
          r.attend.query_heads = r.attend.key_heads = r.attend.value_heads = HeadOrder::reshaped;
          return c.heads > 1;
        });
  e.add({.name = "heads.merged_by_reshape",
         .what = "The heads' memory [H, T, E] is taken as [T, H·E] as it lies: no transpose back.",
         .look_for = "transpose(1, 2) before the heads are viewed as [B, T, C].",
         .seen_in = "jsbaan/transformer-from-scratch#6, chelsea0x3b/dfdx#158, "
                    "pytorch/pytorch#67651, meta-pytorch/opacus#825"},
        [](Recipe& r, const Config& c, double) {
          r.attend.merge = HeadOrder::reshaped;
          return c.heads > 1;
        });
  e.add({.name = "heads.split_and_merged_by_reshape",
         .what = "Heads are split and merged by a reshape, without transposes.",
         .look_for = split,
         .seen_in = "649453932/Chinese-Text-Classification-Pytorch#53"},
        [](Recipe& r, const Config& c, double) {
          r.attend.query_heads = r.attend.key_heads = r.attend.value_heads = HeadOrder::reshaped;
          r.attend.merge = HeadOrder::reshaped;
          return c.heads > 1;
        });
  e.add({.name = "heads.split_by_feature",
         .what = "Heads are the fast axis of a projection: feature d of head h lies at d·H + h.",
         .look_for = "'(d h)' for '(h d)' in a rearrange, or view to [B, T, D, H]."},
        [](Recipe& r, const Config& c, double) {
          r.attend.query_heads = r.attend.key_heads = r.attend.value_heads = HeadOrder::by_feature;
          return c.heads > 1 && (c.head_dim > 1 || c.value_dim > 1);
        });
  e.add({.name = "heads.merged_by_feature",
         .what = "The heads are merged with the head as the fast axis.",
         .look_for = "the order of the last two axes when heads are merged."},
        [](Recipe& r, const Config& c, double) {
          r.attend.merge = HeadOrder::by_feature;
          return c.heads > 1 && c.value_dim > 1;
        });
  e.add({.name = "heads.tiled",
         .what = "Query head h reads key/value head h mod G, not h div (H/G).",
         .look_for = "repeat or tile where repeat_interleave is meant.",
         .seen_in = "onnx/onnx#7274, ekzhang/jax-js#180, apple/axlearn#842"},
        [](Recipe& r, const Config& c, double) {
          r.attend.tiled_heads = true;
          return c.kv_heads > 1 && c.kv_heads < c.heads;
        });
  e.add({.name = "heads.all_use_kv0",
         .what = "Every query head reads the first key/value head.",
         .look_for = "the key/value head's index or stride: zero for all heads.",
         .seen_in = "BobMcDear/attorch#14, PSAL-POSTECH/ONNXim#34"},
        [](Recipe& r, const Config& c, double) {
          r.attend.first_kv_head = true;
          return c.kv_heads > 1;
        });
  struct Packed {
    Packing packing;
    const char *name, *what;
  };
  for (const Packed& p : {Packed{Packing::read_by_head, "qkv.blocked_read_by_head",
                                 "The packed projection is [3][H][D] and is read as [H][3][D]."},
                          Packed{Packing::by_head_read_blocked, "qkv.by_head_read_blocked",
                                 "The packed projection is [H][3][D] and is read as [3][H][D]."},
                          Packed{Packing::read_interleaved, "qkv.blocked_read_interleaved",
                                 "The packed projection is [3][H][D] and is read as [H][D][3]."},
                          Packed{Packing::interleaved_read_blocked, "qkv.interleaved_read_blocked",
                                 "The packed projection is [H][D][3] and is read as [3][H][D]."}}) {
    e.add({.name = p.name,
           .what = p.what,
           .look_for = "how qkv is cut: chunk(3) against view(H, 3, D) (GPT-NeoX, BLOOM).",
           .seen_in = "awslabs/slapo#46, tenstorrent/tt-metal#6243",
           .reroutes = true},
          [packing = p.packing](Recipe& r, const Config& c, double) {
            r.attend.packing = packing;
            const bool even = c.heads == c.kv_heads && c.head_dim == c.value_dim;
            return even && (c.heads > 1 || packing == Packing::read_interleaved ||
                            packing == Packing::interleaved_read_blocked);
          });
  }
  using Roles = AttendRecipe::Roles;
  struct Swap {
    Roles roles;
    const char *name, *what;
    bool needs_equal_heads, needs_equal_widths;
  };
  for (const Swap& s : {Swap{Roles::query_key, "roles.query_key_swapped",
                             "Query and key weights are taken for each other.", true, false},
                        Swap{Roles::key_value, "roles.key_value_swapped",
                             "Key and value weights are taken for each other.", false, true},
                        Swap{Roles::query_value, "roles.query_value_swapped",
                             "Query and value weights are taken for each other.", true, true}}) {
    e.add({.name = s.name,
           .what = s.what,
           .look_for = "the order q, k, v of the arguments and of the loaded names; Keras "
                       "calls (query, value, key).",
           .seen_in = "trymirai/lalamo#272",
           .reroutes = true},
          [s](Recipe& r, const Config& c, double) {
            r.attend.roles = s.roles;
            return (!s.needs_equal_heads || c.heads == c.kv_heads) &&
                   (!s.needs_equal_widths || c.head_dim == c.value_dim);
          });
  }
}

void add_score_mistakes(Entries& e) {
  struct Scale {
    const char *name, *what;
    double (*scale)(const Config&);
  };
  static constexpr Scale scales[] = {
      {"scale.none", "The scores are not scaled.", [](const Config&) { return 1.0; }},
      {"scale.sqrt_model_dim", "The scale is 1/√C, of the model's width.",
       [](const Config& c) { return 1 / std::sqrt(extent(c.model_dim)); }},
      {"scale.sqrt_all_heads", "The scale is 1/√(H·D), of all heads together.",
       [](const Config& c) { return 1 / std::sqrt(extent(c.heads * c.head_dim)); }},
      {"scale.twice", "The scale is 1/D: 1/√D twice.",
       [](const Config& c) { return 1 / extent(c.head_dim); }},
      {"scale.half", "The scale is D^(−1/4): one of query and key is scaled.",
       [](const Config& c) { return 1 / std::sqrt(std::sqrt(extent(c.head_dim))); }},
      {"scale.multiplied", "The scores are multiplied by √D.",
       [](const Config& c) { return std::sqrt(extent(c.head_dim)); }},
      {"scale.sqrt_heads", "The scale is 1/√H, of the number of heads.",
       [](const Config& c) { return 1 / std::sqrt(extent(c.heads)); }},
      {"scale.sqrt_value_dim", "The scale is 1/√E, of the values' width.",
       [](const Config& c) { return 1 / std::sqrt(extent(c.value_dim)); }},
      {"scale.default", "The scale is 1/√D, not the one that the config gives.",
       [](const Config& c) { return 1 / std::sqrt(extent(c.head_dim)); }},
      {"scale.sign_flipped", "The scores have the wrong sign.",
       [](const Config& c) { return -c.scale.value_or(1 / std::sqrt(extent(c.head_dim))); }}};
  for (const Scale& s : scales) {
    e.add({.name = s.name,
           .what = s.what,
           .look_for = "the number under the root where the scores are divided."},
          [scale = s.scale](Recipe& r, const Config& c, double) { return rescaled(r, scale(c)); });
  }
  e.add({.name = "softcap.missing",
         .what = "The scores are not capped.",
         .look_for = "attn_logit_softcapping in the config."},
        [](Recipe& r, const Config& c, double) {
          r.attend.softcap.reset();
          return c.softcap.has_value();
        });
  using Visible = AttendRecipe::Visible;
  struct Rule {
    const char *name, *what;
    Visible visible;
  };
  for (const Rule& rule :
       {Rule{"causal.missing", "Every query sees every key: there is no causal mask.",
             Visible::all},
        Rule{"causal.strict", "A query does not see its own key: j < i.", Visible::strict},
        Rule{"causal.one_future", "A query sees one key too many: j ≤ i + 1.", Visible::one_future},
        Rule{"causal.reversed", "A query sees the keys from its own on: j ≥ i.",
             Visible::reversed}}) {
    e.add({.name = rule.name,
           .what = rule.what,
           .look_for = "tril and triu, their diagonal argument, and is_causal.",
           .seen_in = rule.visible == Visible::strict ? "pbloem/former#10" : ""},
          [visible = rule.visible](Recipe& r, const Config& c, double) {
            r.attend.visible = visible;
            return c.causal;
          });
  }
  e.add({.name = "causal.added",
         .what = "A query sees only the keys up to its own, though every key is visible.",
         .look_for = "is_causal=True in an encoder."},
        [](Recipe& r, const Config& c, double) {
          r.attend.visible = Visible::causal;
          return !c.causal;
        });
  e.add({.name = "causal.after_softmax",
         .what = "Hidden weights are set to zero after the softmax, and the rest not renormalised.",
         .look_for = "the mask: it must come before the softmax."},
        [](Recipe& r, const Config& c, double) {
          r.attend.after_softmax = true;
          return c.causal;
        });
  e.add({.name = "alibi.missing",
         .what = "No ALiBi is added to the scores.",
         .look_for = "the ALiBi bias: built, and added?"},
        [](Recipe& r, const Config& c, double) {
          r.attend.alibi = false;
          return c.alibi;
        });
  e.add({.name = "alibi.sign",
         .what = "ALiBi is added with the wrong sign: far keys gain.",
         .look_for = "the sign of slope × distance."},
        [](Recipe& r, const Config& c, double) {
          r.attend.alibi_sign = -1;
          return c.alibi;
        });
  e.add({.name = "alibi.geometric_non_pow2",
         .what = "The slopes are 2^(−8(h+1)/H) though H is no power of two.",
         .look_for = "how slopes are made when the head count is no power of two.",
         .seen_in = "ml-explore/mlx#3071, paiml/aprender#2143"},
        [](Recipe& r, const Config& c, double) {
          r.attend.alibi_geometric = true;
          return c.alibi && (c.heads & (c.heads - 1)) != 0;
        });
  using Over = AttendRecipe::Over;
  struct Axes {
    const char *name, *what;
    Over over;
  };
  for (const Axes& axes :
       {Axes{"softmax.over_queries", "The softmax is over queries, not keys.", Over::queries},
        Axes{"softmax.over_heads", "The softmax is over heads.", Over::heads},
        Axes{"softmax.missing", "There is no softmax.", Over::nothing}}) {
    e.add({.name = axes.name, .what = axes.what, .look_for = "the softmax's axis."},
          [over = axes.over](Recipe& r, const Config& c, double) {
            r.attend.softmax = over;
            return over != Over::heads || c.heads > 1;
          });
  }
  using Form = AttendRecipe::Form;
  struct Forms {
    Form form;
    const char *name, *what, *look_for;
  };
  for (const Forms& f :
       {Forms{Form::base2, "softmax.base2", "The softmax has powers of 2 for powers of e.",
              "exp2 without the factor log2(e) in the scale."},
        Forms{Form::log2e_twice, "softmax.exp_with_log2e",
              "The softmax has powers of e, and the factor log2(e) that powers of 2 need.",
              "exp where exp2 is meant."},
        Forms{Form::twice, "softmax.twice", "The softmax is taken twice.",
              "a softmax on weights that are one already."},
        Forms{Form::plus_one, "softmax.plus_one", "There is 1 more in the softmax's sum (a sink).",
              "softmax_one, or a sink of zero."},
        Forms{Form::unnormalised, "softmax.unnormalised",
              "The exponentials are not divided by their sum.", "the division by the sum."},
        Forms{Form::sigmoid, "softmax.sigmoid", "There is a sigmoid for the softmax.",
              "sigmoid attention."}}) {
    e.add({.name = f.name, .what = f.what, .look_for = f.look_for},
          [form = f.form](Recipe& r, const Config&, double) {
            r.attend.form = form;
            return true;
          });
  }
  e.add({.name = "attention.dropout_scale",
         .what = "The weights are multiplied by 1/(1 − p): the scale of a dropout that drops "
                 "nothing.",
         .look_for = "dropout in training mode, or its scale applied at inference.",
         .seen_in = "pytorch/pytorch#124464, suno-ai/bark#662",
         .values = dropout_rates},
        [](Recipe& r, const Config&, double p) {
          r.attend.dropout_factor = 1 / (1 - p);
          return true;
        });
}

}  // namespace

void add_attention_mistakes(Entries& entries) {
  add_head_mistakes(entries);
  add_score_mistakes(entries);
}

void add_rope_mistakes(Entries& e) {
  const auto rope = [&](const char* name, const char* what, const char* look_for,
                        std::function<bool(RopeRecipe&, const Config&, double)> make,
                        const char* seen_in = "", std::span<const double> values = {},
                        MistakeKind kind = MistakeKind::wrong) {
    e.add({.name = name,
           .kind = kind,
           .what = what,
           .look_for = look_for,
           .seen_in = seen_in,
           .values = values},
          [make = std::move(make)](Recipe& r, const Config& c, double value) {
            return c.rope.has_value() && make(r.attend.rope, c, value);
          });
  };
  rope("rope.none", "Queries and keys are not turned.", "the call of the rotary embedding.",
       [](RopeRecipe& r, const Config&, double) { return r.none = true; });
  rope(
      "rope.interleaved_for_half", "Features 2i and 2i + 1 turn together, not i and i + R/2.",
      "x[..., ::2] against rotate_half, and whether the weights were permuted.",
      [](RopeRecipe& r, const Config& c, double) {
        r.pairing = RopePairing::interleaved;
        return c.rope->pairing == RopePairing::half;
      },
      "EleutherAI/gpt-neox#834, huggingface/transformers#25199, tenstorrent/tt-metal#26844");
  rope(
      "rope.half_for_interleaved", "Features i and i + R/2 turn together, not 2i and 2i + 1.",
      "rotate_half against x[..., ::2], and whether the weights were permuted.",
      [](RopeRecipe& r, const Config& c, double) {
        r.pairing = RopePairing::half;
        return c.rope->pairing == RopePairing::interleaved;
      },
      "EleutherAI/gpt-neox#834, huggingface/transformers#25199");
  rope("rope.query_only", "Only queries are turned.", "the rotation of the keys.",
       [](RopeRecipe& r, const Config&, double) { return r.skips_key = true; });
  rope("rope.key_only", "Only keys are turned.", "the rotation of the queries.",
       [](RopeRecipe& r, const Config&, double) { return r.skips_query = true; });
  rope(
      "rope.value_too", "Values are turned as well.", "what is rotated: not the values.",
      [](RopeRecipe& r, const Config& c, double) {
        r.turns_value = true;
        return c.head_dim == c.value_dim;
      },
      "trymirai/lalamo#272");
  rope("rope.applied_twice", "Queries and keys are turned twice.",
       "a rotation in the projection and again in the kernel.",
       [](RopeRecipe& r, const Config&, double) { return r.twice = true; });
  rope("rope.backwards", "The turn has the wrong direction: −sin.", "the sign in rotate_half.",
       [](RopeRecipe& r, const Config&, double) { return r.backwards = true; });
  rope(
      "rope.query_offset", "Queries are turned by one position too many.",
      "the cache length that positions start from.",
      [](RopeRecipe& r, const Config&, double) {
        r.query_offset = 1;
        return true;
      },
      "fla-org/flash-linear-attention#766, skyzh/tiny-llm#46");
  rope(
      "rope.positions_from_one",
      "Positions count from 1; the scores are the same, the turned tables are not.",
      "the first position.",
      [](RopeRecipe& r, const Config&, double) {
        r.query_offset = r.key_offset = 1;
        return true;
      },
      "", {}, MistakeKind::harmless);
  rope(
      "rope.base", "The frequencies are powers of another base.",
      "rope_theta: 10000 in Llama 2, 500000 in Llama 3, 1000000 in Qwen and Mixtral.",
      [](RopeRecipe& r, const Config& c, double value) {
        r.base = value;
        return c.rope->base != value;
      },
      "", rope_bases);
  rope("rope.exponent_by_pair", "The frequencies are base^(−i/R), not base^(−2i/R).",
       "arange(0, R, 2) against arange(R/2).",
       [](RopeRecipe& r, const Config&, double) { return r.exponent_by_pair = true; });
  rope(
      "rope.mixed_layout_tables", "Cosines and sines are laid out for the other pairing.",
      "cat((freqs, freqs)) against repeat_interleave.",
      [](RopeRecipe& r, const Config&, double) { return r.tables_of_other_pairing = true; },
      "karpathy/nanochat#264, huggingface/transformers#47403");
  rope("rope.last_features", "The last R features of a head turn, not the first.",
       "how a partly rotated head is cut.", [](RopeRecipe& r, const Config& c, double) {
         r.last_features = true;
         return c.rope->rotary_dim != 0 && c.rope->rotary_dim < c.head_dim;
       });
  rope("rope.all_features", "All of a head's features turn, not only the first R.",
       "partial_rotary_factor or rotary_pct.", [](RopeRecipe& r, const Config& c, double) {
         r.rotary_dim = 0;
         return c.rope->rotary_dim != 0 && c.rope->rotary_dim < c.head_dim && c.head_dim % 2 == 0;
       });
  rope("rope.half_of_features", "Only half of the features turn that should.",
       "partial_rotary_factor or rotary_pct.", [](RopeRecipe& r, const Config& c, double) {
         const std::int64_t width = c.rope->rotary_dim == 0 ? c.head_dim : c.rope->rotary_dim;
         r.rotary_dim = width / 2;
         return width % 4 == 0;
       });
  rope("rope.frequencies_by_head_dim",
       "The frequencies are base^(−2i/D) though only R features turn.",
       "the width in the exponent.", [](RopeRecipe& r, const Config& c, double) {
         r.whole_width = true;
         return c.rope->rotary_dim != 0 && c.rope->rotary_dim < c.head_dim;
       });
  rope("rope.across_heads", "All heads are turned as one wide row, before they are split.",
       "the rotation: after the heads are split, on D features.",
       [](RopeRecipe& r, const Config& c, double) {
         r.across_heads = true;
         return c.heads > 1 && c.head_dim % 2 == 0;
       });
}

void add_ffn_mistakes(Entries& e) {
  struct Form {
    ActivationForm form;
    const char *name, *what;
  };
  for (const Form& f :
       {Form{ActivationForm::relu, "ffn.relu", "The activation is ReLU."},
        Form{ActivationForm::gelu_erf, "ffn.gelu_erf",
             "The activation is GELU's exact form, by erf."},
        Form{ActivationForm::gelu_tanh, "ffn.gelu_tanh",
             "The activation is GELU's approximation by tanh."},
        Form{ActivationForm::gelu_quick, "ffn.gelu_quick",
             "The activation is quick GELU, x·σ(1.702 x)."},
        Form{ActivationForm::silu, "ffn.silu", "The activation is SiLU, x·σ(x)."},
        Form{ActivationForm::leaky_relu, "ffn.leaky_relu", "The activation is leaky ReLU."},
        Form{ActivationForm::none, "ffn.activation_missing", "There is no activation."}}) {
    e.add({.name = f.name,
           .what = f.what,
           .look_for = "the activation's name: nn.GELU() is erf, gelu_new and JAX's gelu "
                       "are tanh, quick_gelu is CLIP's."},
          [form = f.form](Recipe& r, const Config&, double) {
            const bool other = r.ffn.activation != form;
            r.ffn.activation = form;
            return other;
          });
  }
  const auto gated = [&](const char* name, const char* what, bool FfnRecipe::*field) {
    e.add({.name = name,
           .what = what,
           .look_for = "activation(gate) * up, and for the halves of a packed gate_up.",
           .reroutes = true},
          [field](Recipe& r, const Config& c, double) { return r.ffn.*field = c.gated; });
  };
  gated("ffn.gate_up_exchanged", "Gate and up weights are taken for each other.",
        &FfnRecipe::exchanged);
  gated("ffn.activates_up", "Up goes through the activation, and the gate goes on as it is.",
        &FfnRecipe::activates_up);
  gated("ffn.both_active", "Gate and up both go through the activation.", &FfnRecipe::both_active);
  gated("ffn.up_ignored", "The gate is not multiplied by up.", &FfnRecipe::up_ignored);
  gated("ffn.gate_ignored", "Up goes through the activation, and the gate is not used.",
        &FfnRecipe::gate_ignored);
  gated("ffn.gate_added", "Gate and up are added, not multiplied.", &FfnRecipe::sum_for_product);
}

}  // namespace attest::check::block
