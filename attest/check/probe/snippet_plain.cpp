// SPDX-License-Identifier: MIT
// Attention written out with arrays, in the three dialects of Python that have them.
#include <algorithm>

#include "attest/base/conventions.h"
#include "attest/check/probe/snippet_parts.h"

namespace attest::check {
namespace {

const ProbeFeatures& features_of_probe(const Probe& probe) { return probe.request.features; }

bool has(const Probe& probe, std::string_view name) { return probe.file.find(name) != nullptr; }

/// "np.repeat(x, n, 1)", "x.repeat_interleave(n, 1)".
std::string repeated(const Spelling& s, const std::string& x, const std::string& n) {
  return s.method_repeat ? sentence(x, ".repeat_interleave(", n, ", 1)")
                         : sentence(s.repeat_open, x, ", ", n, ", 1)");
}

/// Turns query and key; a function within the function.
void write_rope(Lines& out, const Probe& probe, const Spelling& s) {
  const bool interleaved = features_of_probe(probe).interleaved;
  out();
  out("def turned(x, position):  # pairs of features, by position * base ** (-2 i / D)");
  out.indent(4);
  const std::string_view narrow = probe.request.dtype == DType::f64 ? "" : s.to_float;
  out("position = position.reshape(-1, x.shape[2])[:, None, :, None]");
  out("angle = position * ", probe.words.rope_base.value_or(10000), " ** (-2.0 * ", s.module,
      ".arange(D // 2)", s.method_repeat ? ".double()" : "", " / D)");
  out("cos, sin = ", s.module, ".cos(angle)", narrow, ", ", s.module, ".sin(angle)", narrow);
  if (interleaved) {
    out("a, b = x[..., 0::2], x[..., 1::2]");
    out("return ", s.module, ".stack([a * cos - b * sin, b * cos + a * sin], -1).reshape(x.shape)");
  } else {
    out("a, b = x[..., : D // 2], x[..., D // 2 :]");
    out("return ", s.concatenate, "([a * cos - b * sin, b * cos + a * sin], -1)");
  }
  out.indent(-4);
  out();
  out("query, key = turned(query, query_positions), turned(key, key_positions)");
}

/// What the mask of the file means.
std::string mask_condition(const Probe& probe, const Spelling& s) {
  const AnyTensor& mask = *probe.file.find("mask");
  if (is_floating(mask.dtype())) return sentence("(mask == 0)");
  if (mask.dtype() != DType::boolean) return "(mask == 1)";
  const auto convention = find_convention(probe.words.convention);
  const bool hidden = convention && convention->boolean_mask == BooleanMask::true_hidden;
  return hidden ? sentence(s.module, ".logical_not(mask)") : "mask";
}

void write_documents(Lines& out, const Probe& probe, const Spelling& s) {
  const char* const sum = ".sum(-1)";
  out("i, j = ", s.module, ".arange(T), ", s.module, ".arange(S)");
  out("document = (i[:, None] >= query_starts[None, 1:])", sum, "  # of query i");
  out("document_of_key = (j[:, None] >= key_starts[None, 1:])", sum);
  out("position = (key_starts[document] + i - query_starts[document])[None, :]");
  if (probe.claim.call.mask.corner == Corner::bottom_right) {
    out("keys = key_starts[1:] - key_starts[:-1]");
    out("queries = query_starts[1:] - query_starts[:-1]");
    out("position = position + (keys - queries)[document]");
  }
}

void write_position(Lines& out, const Probe& probe, const Spelling& s) {
  const Mask& mask = probe.claim.call.mask;
  if (features_of_probe(probe).packed) return write_documents(out, probe, s);
  out("j = ", s.module, ".arange(S)");
  const std::string i = sentence("position = ", s.module, ".arange(T)[None, :]");
  const std::string_view says = "  # of query i among the keys";
  const bool by_length = features_of_probe(probe).lengths &&
                         (mask.corner == Corner::bottom_right || mask.query_offset.size() > 1);
  if (by_length) {
    out(i, " + key_lengths[:, None] - T", says);
  } else if (mask.corner == Corner::bottom_right) {
    out(i, " + S - T", says);
  } else if (!mask.query_offset.empty() && mask.query_offset[0] != 0) {
    out(i, " + ", mask.query_offset[0], says);
  } else {
    out(i, says);
  }
}

void write_backward(Lines& out, const Probe& probe, const Spelling& s) {
  const ProbeFeatures& f = features_of_probe(probe);
  out();
  out("# The way back, each step under the one it undoes.");
  out("d_value = ", s.module, ".einsum(\"bhij,bhie->bhje\", weights, d_output)");
  out("d_weights = ", s.module, ".einsum(\"bhie,bhje->bhij\", d_output, value)");
  if (f.dropout) out("d_weights = d_weights * dropout_keep / ", 1 - *probe.words.dropout);
  const char* const p = f.dropout ? "softmax" : "weights";
  out("d_scores = ", p, " * (d_weights - (", p, " * d_weights).sum(-1, ", s.keep, "))");
  if (f.softcap) out("d_scores = d_scores * (1 - (capped / ", *probe.words.softcap, ") ** 2)");
  out("d_query = ", s.module, ".einsum(\"bhij,bhjd->bhid\", d_scores, key) * scale");
  out("d_key = ", s.module, ".einsum(\"bhij,bhid->bhjd\", d_scores, query) * scale");
  if (f.grouped) {
    out("# A key/value head served H // G query heads.");
    out("d_key = d_key.reshape(B, G, H // G, S, D).sum(2)");
    out("d_value = d_value.reshape(B, G, H // G, S, -1).sum(2)");
  }
}

void write_softmax(Lines& out, const Probe& probe, const Spelling& s) {
  const ProbeFeatures& f = features_of_probe(probe);
  const bool empty = probe.claim.call.empty_row == EmptyRow::zero;
  out("peak = ", s.largest, "(scores, -1, ", s.keep, ")");
  if (f.sink) {
    out("logit = sink.reshape(1, H, 1, 1)  # joins the denominator alone");
    out("peak = ", s.module, ".maximum(peak, logit)");
  }
  if (empty && !f.sink) {
    out("peak = ", s.module, ".where(peak > -", s.module, ".inf, peak, 0.0)  # a row without keys");
  }
  out("weights = ", s.module, ".exp(scores - peak)");
  out("total = weights.sum(-1, ", s.keep, ")",
      f.sink ? sentence(" + ", s.module, ".exp(logit - peak)") : std::string());
  if (empty) out("total = ", s.module, ".where(total > 0, total, 1.0)");
  out("weights = weights / total");
  if (!f.dropout) return;
  out("softmax = weights");
  out("weights = softmax * dropout_keep / ", 1 - *probe.words.dropout,
      "  # a given table: no two programs draw alike");
}

}  // namespace

const Spelling& numpy_spelling() {
  static constexpr Spelling spelling{
      "np", "np.concatenate", "np.amax", "keepdims=True", ".astype(np.float32)", "np.repeat("};
  return spelling;
}
const Spelling& jax_spelling() {
  static constexpr Spelling spelling{"jnp",           "jnp.concatenate",      "jnp.amax",
                                     "keepdims=True", ".astype(jnp.float32)", "jnp.repeat("};
  return spelling;
}
const Spelling& torch_spelling() {
  static constexpr Spelling spelling{"torch",    "torch.cat", "torch.amax", "keepdim=True",
                                     ".float()", "",          true};
  return spelling;
}

std::vector<std::string> arguments_of(const Probe& probe) {
  std::vector<std::string> out;
  for (const auto& [name, tensor] : probe.file.tensors) {
    if (name != claim_tensor) out.push_back(name);
  }
  return out;
}

std::string scale_text(const Probe& probe) {
  if (probe.claim.call.scale) return shortest(*probe.claim.call.scale);
  return "1 / D ** 0.5";
}

bool hides_keys(const Probe& probe) {
  const ProbeFeatures& f = features_of_probe(probe);
  return f.causal || f.window || f.mask || f.lengths || f.packed;
}

void write_to_our_order(Lines& out, const Probe& probe, const Spelling& s) {
  const std::string& layout = probe.shape.layout;
  const auto& n = probe.shape.call;
  const bool d_output = has(probe, "d_output");
  const std::string names = d_output ? "query, key, value, d_output" : "query, key, value";
  if (layout == "packed" || layout == "lbe") {
    const std::string axes = layout == "lbe" ? "swapaxes(0, 1)." : "";
    out("B, H, G = ", n.B, ", ", n.H, ", ", n.G);
    for (const auto& [name, heads] :
         {std::pair{"query", "H"}, {"key", "G"}, {"value", "G"}, {"d_output", "H"}}) {
      if (!has(probe, name)) continue;
      const char* const length = heads[0] == 'G' ? "key" : "query";
      const char* const axis = layout == "lbe" ? "0" : "1";
      out(name, "_ = ", name, ".", axes, "reshape(B, ", length, ".shape[", axis, "], ", heads,
          ", -1).swapaxes(1, 2)");
    }
    out(names, " = ", d_output ? "query_, key_, value_, d_output_" : "query_, key_, value_");
  } else if (probe.shape.without_batch) {
    out(names, " = (x[None]", layout == "bthd" ? ".swapaxes(1, 2)" : "", " for x in (", names,
        "))");
  } else if (layout == "bthd") {
    const bool cache = has(probe, "past_key");
    const std::string all = names + (cache ? ", past_key, past_value" : "");
    out(all, " = (x.swapaxes(1, 2) for x in (", all, "))");
  }
  if (d_output && probe.shape.output_layout != layout) out("d_output = d_output.swapaxes(1, 2)");
  if (has(probe, "past_key")) {
    out("key = ", s.concatenate, "([past_key, key], 2)");
    out("value = ", s.concatenate, "([past_value, value], 2)");
  }
  out("B, H, T, D = query.shape");
  out("G, S = key.shape[1], key.shape[2]");
}

std::string from_our_order(const Probe& probe, const std::string& x) {
  const std::string& layout = x == "output" ? probe.shape.output_layout : probe.shape.layout;
  if (layout == "bhtd") return probe.shape.without_batch ? x + "[0]" : x;
  if (layout == "bthd") {
    return x + ".swapaxes(1, 2)" + (probe.shape.without_batch ? "[0]" : "");
  }
  const std::string rows = sentence(x, ".swapaxes(1, 2).reshape(B, ", x, ".shape[2], -1)");
  return layout == "lbe" ? rows + ".swapaxes(0, 1)" : rows;
}

void write_visibility(Lines& out, const Probe& probe, const Spelling& s) {
  const ProbeFeatures& f = features_of_probe(probe);
  const Mask& mask = probe.claim.call.mask;
  if (f.causal || f.window || f.packed || f.alibi) {
    write_position(out, probe, s);
    out("distance = j - position[:, None, :, None]  # behind the query; broadcasts to B, H, T, S");
  } else if (f.lengths) {
    out("j = ", s.module, ".arange(S)");
  }
  std::vector<std::string> rules;
  if (f.causal) rules.emplace_back("(distance <= 0)");
  if (mask.window.left) rules.push_back(sentence("(distance >= -", *mask.window.left, ")"));
  if (mask.window.right) rules.push_back(sentence("(distance <= ", *mask.window.right, ")"));
  if (f.lengths) rules.emplace_back("(j < key_lengths[:, None, None, None])");
  if (f.packed) rules.emplace_back("(document[:, None] == document_of_key)[None, None]");
  if (f.mask) rules.push_back(mask_condition(probe, s));
  for (std::size_t n = 0; n < rules.size(); ++n) {
    out("visible = ", n == 0 ? "" : "visible & ", rules[n]);
  }
}

void write_plain_body(Lines& out, const Probe& probe, const Spelling& s) {
  const ProbeFeatures& f = features_of_probe(probe);
  write_to_our_order(out, probe, s);
  if (probe.request.dtype == DType::f16 || probe.request.dtype == DType::bf16) {
    const char* const names = f.gradients ? "query, key, value, d_output" : "query, key, value";
    out(names, " = (x", s.to_float, " for x in (", names, "))  # sums of 16 bits lose too much");
  }
  if (f.rope) write_rope(out, probe, s);
  if (probe.request.hostile) {
    out("key, value = ", s.module, ".nan_to_num(key), ", s.module,
        ".nan_to_num(value)  # 0 * NaN would leak");
  }
  if (f.grouped) {
    out("key, value = ", repeated(s, "key", "H // G"), ", ", repeated(s, "value", "H // G"));
  }
  out("scale = ", scale_text(probe));
  out("scores = ", s.module, ".einsum(\"bhid,bhjd->bhij\", query, key) * scale");
  if (f.softcap) {
    out("capped = ", *probe.words.softcap, " * ", s.module, ".tanh(scores / ", *probe.words.softcap,
        ")");
    out("scores = capped");
  }
  if (f.bias) out("scores = scores + bias");
  write_visibility(out, probe, s);
  if (f.alibi) out("scores = scores - alibi_slopes.reshape(1, H, 1, 1) * abs(distance)");
  if (hides_keys(probe)) {
    out("scores = ", s.module, ".where(visible, scores, -", s.module, ".inf)");
  }
  write_softmax(out, probe, s);
  out("output = ", s.module, ".einsum(\"bhij,bhje->bhie\", weights, value)");
  if (f.gradients) write_backward(out, probe, s);
  std::string results = from_our_order(probe, "output");
  if (f.gradients) {
    for (const char* name : {"d_query", "d_key", "d_value"}) {
      results += ", " + from_our_order(probe, name);
    }
  }
  out("return ", results);
}

}  // namespace attest::check
