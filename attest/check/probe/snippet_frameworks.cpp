// SPDX-License-Identifier: MIT
// The frameworks' own attention, called with what the probe asks for.
#include "attest/check/probe/snippet_parts.h"

namespace attest::check {
namespace {

bool has(const Probe& probe, std::string_view name) { return probe.file.find(name) != nullptr; }

/// Whether causal is all that hides, in the corner that a bare flag means to nearly everybody.
bool plainly_causal(const Probe& probe) {
  const ProbeFeatures& f = probe.request.features;
  const Corner corner = probe.claim.call.mask.corner;
  const bool alone = !f.window && !f.mask && !f.lengths && !f.packed && !f.bias && !f.alibi;
  return f.causal && alone && (corner == Corner::square || corner == Corner::top_left);
}

/// A table of numbers to be added, in which hidden keys are −∞; `added` is its name.
void write_added(Lines& out, const Probe& probe, const Spelling& s) {
  const ProbeFeatures& f = probe.request.features;
  write_visibility(out, probe, s);
  const char* const alibi = "-alibi_slopes.reshape(1, H, 1, 1) * abs(distance)";
  if (f.bias && f.alibi) out("added = bias ", "- alibi_slopes.reshape(1, H, 1, 1) * abs(distance)");
  if (f.bias && !f.alibi) out("added = bias");
  if (!f.bias && f.alibi) out("added = ", alibi);
  if (hides_keys(probe)) {
    out("added = ", s.module, ".where(visible, ", f.bias || f.alibi ? "added" : "0.0", ", -",
        s.module, ".inf)");
  }
}

/// A row without keys is what this function makes of it; NaN behind the mask is what it has to bear.
std::string keyword(std::string_view name, const std::string& value) {
  return sentence(", ", name, "=", value);
}

}  // namespace

bool sdpa_offers(const Probe& probe) {
  const ProbeFeatures& f = probe.request.features;
  return !f.softcap && !f.sink && !f.rope && !f.dropout;
}

void write_sdpa_body(Lines& out, const Probe& probe) {
  const ProbeFeatures& f = probe.request.features;
  const Spelling& s = torch_spelling();
  if (f.gradients) {
    out("inputs = [x.requires_grad_() for x in (query, key, value)]");
    out("given = d_output");
  }
  write_to_our_order(out, probe, s);
  std::string options;
  if (plainly_causal(probe)) {
    options += keyword("is_causal", "True");
  } else if (f.bias || f.alibi) {
    write_added(out, probe, s);
    options += keyword("attn_mask", "added.to(query.dtype)");
  } else if (hides_keys(probe)) {
    write_visibility(out, probe, s);
    options += keyword("attn_mask", "visible");  // true = may see
  }
  if (probe.claim.call.scale) options += keyword("scale", scale_text(probe));
  if (f.grouped) options += keyword("enable_gqa", "True");
  out("output = F.scaled_dot_product_attention(query, key, value", options, ")");
  const std::string result = from_our_order(probe, "output");
  if (!f.gradients) {
    out("return ", result);
    return;
  }
  if (result != "output") out("output = ", result);
  out("return output, *torch.autograd.grad(output, inputs, given)");
}

bool jax_offers(const Probe& probe) {
  const ProbeFeatures& f = probe.request.features;
  const auto& n = probe.shape.call;
  return !f.softcap && !f.sink && !f.rope && !f.dropout && !f.alibi && n.D == n.E;
}

void write_jax_body(Lines& out, const Probe& probe) {
  const ProbeFeatures& f = probe.request.features;
  write_to_our_order(out, probe, jax_spelling());
  std::string options;
  if (plainly_causal(probe)) {
    options += keyword("is_causal", "True");
  } else if (hides_keys(probe)) {
    write_visibility(out, probe, jax_spelling());
    options += keyword("mask", "visible");  // true = may see
  }
  if (f.bias) options += keyword("bias", "bias");
  if (probe.claim.call.scale) options += keyword("scale", scale_text(probe));
  out();
  out("def forward(query, key, value):  # takes and gives [B, T, H, D]");
  out.indent(4);
  out("rows = (x.swapaxes(1, 2) for x in (query, key, value))");
  out("return jax.nn.dot_product_attention(*rows", options, ").swapaxes(1, 2)");
  out.indent(-4);
  out();
  if (!f.gradients) {
    out("output = forward(query, key, value)");
    out("return ", from_our_order(probe, "output"));
    return;
  }
  out("output, back = jax.vjp(forward, query, key, value)");
  out("d_query, d_key, d_value = back(d_output)");
  std::string results;
  for (const char* name : {"output", "d_query", "d_key", "d_value"}) {
    results += (results.empty() ? "" : ", ") + from_our_order(probe, name);
  }
  out("return ", results);
}

namespace {

Failure not_offered(std::string_view what, std::string_view instead) {
  return {ErrorKind::value, "not-offered",
          sentence("[probe] ", what, "; take ", instead, " for this probe")};
}

/// One node, a session over it, and its first output.
void write_session(Lines& out, const std::string& node_options, std::string_view opsets) {
  out("names = [name if feeds[name] is not None else \"\" for name in feeds]");
  out("node = onnx.helper.make_node(", node_options, ")");
  out("kind = onnx.helper.np_dtype_to_tensor_dtype");
  out("graph = onnx.helper.make_graph(");
  out("    [node], \"probe\",");
  out("    [onnx.helper.make_tensor_value_info(name, kind(x.dtype), x.shape)");
  out("     for name, x in feeds.items() if x is not None],");
  out("    [onnx.helper.make_tensor_value_info(\"output\", kind(query.dtype), None)])");
  out("model = onnx.helper.make_model(graph, opset_imports=[", opsets, "])");
  out("session = onnxruntime.InferenceSession(model.SerializeToString(),");
  out("                                       providers=[\"CPUExecutionProvider\"])");
  out("output = session.run([\"output\"], {k: x for k, x in feeds.items() if x is not None})[0]");
}

/// The operator of the standard, rank 4.
void write_onnx_attention(Lines& out, const Probe& probe) {
  const ProbeFeatures& f = probe.request.features;
  const bool cache = has(probe, "past_key");
  const bool flag =
      plainly_causal(probe) || (f.causal && cache && !f.window && !f.mask && !f.bias && !f.alibi);
  const bool table = (hides_keys(probe) && !flag) || f.bias || f.alibi;
  if (cache) out("new_key, new_value = key, value");
  write_to_our_order(out, probe, numpy_spelling());
  if (table) {
    write_added(out, probe, numpy_spelling());
    out("added = np.broadcast_to(added, (B, H, T, S)).astype(query.dtype)");
  }
  if (cache && probe.shape.layout == "bthd") {
    out("new_key, new_value = new_key.swapaxes(1, 2), new_value.swapaxes(1, 2)");
  }
  out("feeds = {\"Q\": query, \"K\": ", cache ? "new_key" : "key",
      ", \"V\": ", cache ? "new_value" : "value", ", \"attn_mask\": ", table ? "added" : "None",
      ",");
  out("         \"past_key\": ", cache ? "past_key" : "None",
      ", \"past_value\": ", cache ? "past_value" : "None", "}");
  std::string node = "\"Attention\", names, [\"output\"";
  node += cache ? ", \"present_key\", \"present_value\"]" : "]";
  if (flag) node += ", is_causal=1";
  if (probe.claim.call.scale) node += ", scale=" + scale_text(probe);
  if (f.softcap) node += sentence(", softcap=", *probe.words.softcap);
  const bool newer = probe.words.convention == "onnx-24" || probe.words.convention == "onnx-25";
  write_session(out, node, sentence("onnx.helper.make_opsetid(\"\", ", newer ? "24" : "23", ")"));
  out("return ", from_our_order(probe, "output"));
}

/// com.microsoft.MultiHeadAttention, packed.
void write_onnxruntime_mha(Lines& out, const Probe& probe) {
  const ProbeFeatures& f = probe.request.features;
  const bool flag = plainly_causal(probe);
  const bool table = (hides_keys(probe) && !flag) || f.bias || f.alibi;
  out("packed = query, key, value");
  write_to_our_order(out, probe, numpy_spelling());
  if (table) {
    write_added(out, probe, numpy_spelling());
    out("added = np.broadcast_to(added, (B, H, T, S)).astype(query.dtype)");
  }
  out("feeds = {\"query\": packed[0], \"key\": packed[1], \"value\": packed[2], \"bias\": None,");
  out("         \"key_padding_mask\": None, \"attention_bias\": ", table ? "added" : "None", "}");
  std::string node =
      "\"MultiHeadAttention\", names, [\"output\"], domain=\"com.microsoft\", "
      "num_heads=H";
  if (flag) node += ", unidirectional=1";
  if (probe.claim.call.scale) node += ", scale=" + scale_text(probe);
  write_session(out, node,
                "onnx.helper.make_opsetid(\"\", 21), onnx.helper.make_opsetid(\"com.microsoft\", "
                "1)");
  out("return output");
}

/// com.microsoft.GroupQueryAttention, packed, with a cache.
void write_onnxruntime_gqa(Lines& out, const Probe& probe) {
  const ProbeFeatures& f = probe.request.features;
  const auto& n = probe.shape.call;
  out("B, total = query.shape[0], key.shape[1] + past_key.shape[2]");
  out("feeds = {\"query\": query, \"key\": key, \"value\": value, \"past_key\": past_key,");
  out("         \"past_value\": past_value, \"seqlens_k\": np.full(B, total - 1, np.int32),");
  out("         \"total_sequence_length\": np.array(total, np.int32)}");
  std::string node = sentence(
      "\"GroupQueryAttention\", names, [\"output\", \"present_key\", \"present_value\"], "
      "domain=\"com.microsoft\", num_heads=",
      n.H, ", kv_num_heads=", n.G);
  if (f.window) node += ", local_window_size=" + probe.words.window;
  if (probe.claim.call.scale) node += ", scale=" + scale_text(probe);
  if (f.softcap) node += sentence(", softcap=", *probe.words.softcap);
  write_session(out, node,
                "onnx.helper.make_opsetid(\"\", 21), onnx.helper.make_opsetid(\"com.microsoft\", "
                "1)");
  out("return output");
}

}  // namespace

Result<void> write_onnxruntime_body(Lines& out, const Probe& probe) {
  const ProbeFeatures& f = probe.request.features;
  if (f.gradients) return not_offered("ONNX Runtime's inference has no gradients", "numpy");
  if (f.rope) return not_offered("rope is another operator than attention in ONNX", "numpy");
  if (f.sink || f.dropout) {
    return not_offered("ONNX Attention has neither sink nor dropout", "numpy");
  }
  if (probe.request.dtype == DType::bf16) {
    return not_offered("NumPy has no bf16 to feed a session with", "--dtype f32 or f16");
  }
  const bool contrib = probe.words.convention.starts_with("onnxruntime-");
  if (contrib && probe.shape.layout != "packed") {
    return not_offered("ONNX Runtime's own operators take packed tensors", "--layout packed");
  }
  if (probe.words.convention == "onnxruntime-mha") {
    if (f.softcap || f.grouped || f.cache) {
      return not_offered(
          "MultiHeadAttention has no softcap, no grouped heads, and this snippet "
          "gives it no cache",
          "the convention onnx-24");
    }
    write_onnxruntime_mha(out, probe);
    return {};
  }
  if (probe.words.convention == "onnxruntime-gqa") {
    if (!f.causal || !f.cache || f.mask || f.bias || f.alibi) {
      return not_offered(
          "GroupQueryAttention is causal and has a key for every query: ask for "
          "causal,cache without mask, bias and alibi",
          "else the convention onnx-24");
    }
    write_onnxruntime_gqa(out, probe);
    return {};
  }
  write_onnx_attention(out, probe);
  return {};
}

}  // namespace attest::check
