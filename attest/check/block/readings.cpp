// SPDX-License-Identifier: MIT
#include "attest/check/block/readings.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "attest/base/text.h"

namespace attest::check::block {
namespace {

const char* word_of(Norm norm) { return norm == Norm::rms_norm ? "rms" : "layer"; }

const char* word_of(NormPlacement placement) {
  switch (placement) {
    case NormPlacement::post:
      return "post";
    case NormPlacement::pre:
      return "pre";
    case NormPlacement::sandwich:
      break;
  }
  return "sandwich";
}

const char* word_of(Activation activation) {
  switch (activation) {
    case Activation::relu:
      return "relu";
    case Activation::gelu_erf:
      return "gelu";
    case Activation::gelu_tanh:
      return "gelu-tanh";
    case Activation::silu:
      break;
  }
  return "silu";
}

OtherChoice otherwise(const char* what, const char* flag, const std::string& word) {
  return {what, word, sentence(flag, " ", word)};
}

/// One way to choose otherwise: of the config, or of what no config says.
struct Otherwise {
  OtherChoice choice{};
  std::function<void(BlockConfig&)> config{};
  std::function<void(BlockRecipe&)> recipe{};
};
using Alternatives = std::vector<Otherwise>;

Alternatives other_norms(const BlockConfig& c) {
  const Norm norm = c.norm == Norm::rms_norm ? Norm::layer_norm : Norm::rms_norm;
  return {
      {otherwise("the norm", "--norm", word_of(norm)), [norm](BlockConfig& o) { o.norm = norm; }}};
}

Alternatives other_placements(const BlockConfig& c) {
  Alternatives out;
  for (const NormPlacement placement : {NormPlacement::pre, NormPlacement::post}) {
    if (placement == c.placement) continue;
    out.push_back({otherwise("where the norms stand", "--placement", word_of(placement)),
                   [placement](BlockConfig& o) { o.placement = placement; }});
  }
  return out;
}

Alternatives other_epsilons(const BlockConfig& c) {
  Alternatives out;
  for (const double epsilon : {1e-5, 1e-6, 1e-8, 1e-12, 1e-3, 0.0}) {
    if (epsilon == c.epsilon) continue;
    out.push_back({otherwise("epsilon", "--epsilon", sentence(epsilon)),
                   [epsilon](BlockConfig& o) { o.epsilon = epsilon; }});
  }
  return out;
}

Alternatives other_activations(const BlockConfig& c) {
  Alternatives out;
  for (const Activation activation :
       {Activation::relu, Activation::gelu_erf, Activation::gelu_tanh, Activation::silu}) {
    if (activation == c.activation) continue;
    out.push_back({otherwise("the activation", "--activation", word_of(activation)),
                   [activation](BlockConfig& o) { o.activation = activation; }});
  }
  return out;
}

Alternatives other_visibilities(const BlockConfig& c) {
  const bool causal = !c.causal;
  return {{{"whether it is causal", causal ? "causal" : "not causal",
            causal ? "--causal" : "--causal none"},
           [causal](BlockConfig& o) { o.causal = causal; }}};
}

Alternatives other_packings(const BlockConfig& c) {
  if (c.heads != c.kv_heads || c.head_dim != c.value_dim) return {};
  const auto packed = [](const char* axes, Packing packing) {
    return Otherwise{{"how query, key and value are packed", sentence("packed ", axes),
                      "query_weight, key_weight and value_weight by themselves"},
                     {},
                     [packing](BlockRecipe& r) { r.attend.packing = packing; }};
  };
  return {packed("[H, 3, D]", Packing::read_by_head),
          packed("[H, D, 3]", Packing::read_interleaved)};
}

/// What each thing that was assumed could be instead.
std::vector<Alternatives> alternatives_of(const BlockDump& dump) {
  const BlockConfig& c = dump.config;
  const Assumed& assumed = dump.assumed;
  std::vector<Alternatives> out;
  if (assumed.activation) out.push_back(other_activations(c));
  if (assumed.placement) out.push_back(other_placements(c));
  if (assumed.causal) out.push_back(other_visibilities(c));
  if (assumed.norm) out.push_back(other_norms(c));
  if (assumed.epsilon) out.push_back(other_epsilons(c));
  if (assumed.packing) out.push_back(other_packings(c));
  return out;
}

/// "a, b and c"
std::string listed(const std::vector<std::string>& parts) {
  std::string out;
  for (std::size_t n = 0; n < parts.size(); ++n) {
    out += sentence(n == 0 ? "" : n + 1 == parts.size() ? " and " : ", ", parts[n]);
  }
  return out;
}

std::string said_by(const Reading& reading) {
  std::string out;
  for (const OtherChoice& made : reading.choices) out += sentence(out.empty() ? "" : " ", made.say);
  return out;
}

}  // namespace

std::vector<Reading> other_readings(const BlockDump& dump) {
  struct Partial {
    BlockConfig config{};
    std::vector<const Otherwise*> changes{};
  };
  const std::vector<Alternatives> all = alternatives_of(dump);
  std::vector<Partial> partial{{dump.config, {}}};
  for (const Alternatives& alternatives : all) {
    const std::size_t count = partial.size();
    for (const Otherwise& other : alternatives) {
      for (std::size_t n = 0; n < count; ++n) {
        Partial next = partial[n];
        if (other.config) other.config(next.config);
        next.changes.push_back(&other);
        partial.push_back(std::move(next));
      }
    }
  }
  std::vector<Reading> out;
  for (const Partial& one : partial) {
    if (one.changes.empty()) continue;
    Reading reading{claimed(one.config), {}};
    for (const Otherwise* other : one.changes) {
      if (other->recipe) other->recipe(reading.recipe);
      reading.choices.push_back(other->choice);
    }
    out.push_back(std::move(reading));
  }
  std::stable_sort(out.begin(), out.end(), [](const Reading& a, const Reading& b) {
    return a.choices.size() < b.choices.size();
  });
  return out;
}

std::string unsaid(std::span<const Reading> fitting) {
  if (fitting.empty()) return "";
  std::vector<std::string> what, is;
  for (const OtherChoice& made : fitting.front().choices) {
    what.push_back(made.what);
    is.push_back(made.is);
  }
  std::string out = sentence("you did not say ", listed(what), "; these numbers are ", listed(is),
                             ": add ", said_by(fitting.front()));
  for (std::size_t n = 1; n < std::min<std::size_t>(fitting.size(), 4); ++n) {
    out += sentence("; or ", said_by(fitting[n]), ", which is as near");
  }
  return out;
}

std::string assumed_text(const BlockDump& dump) {
  const BlockConfig& c = dump.config;
  const Assumed& assumed = dump.assumed;
  std::vector<std::string> parts;
  if (assumed.activation) parts.push_back(sentence("--activation ", word_of(c.activation)));
  if (assumed.placement) parts.push_back(sentence("--placement ", word_of(c.placement)));
  if (assumed.causal) parts.emplace_back(c.causal ? "--causal" : "--causal none");
  if (assumed.norm) parts.push_back(sentence("--norm ", word_of(c.norm)));
  if (assumed.epsilon) parts.push_back(sentence("--epsilon ", c.epsilon));
  if (assumed.packing) parts.emplace_back("query, key and value packed one after another");
  return parts.empty() ? "" : sentence("assumed, for nobody said it: ", listed(parts));
}

}  // namespace attest::check::block
