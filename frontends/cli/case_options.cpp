// SPDX-License-Identifier: MIT
#include "frontends/cli/case_options.h"

#include "attest/lab/positions.h"

namespace attest::cli {

void add_case_options(CLI::App& command, CaseOptions& o) {
  command.add_option(
      "FILE", o.file,
      "safetensors, npz or JSON with query, key, value [mask bias sink key_lengths]; "
      "- is standard input");
  const std::pair<const char*, const char*> roles[] = {
      {"query", "query: a file of its own (.npy, .json), or a tensor's name in FILE"},
      {"key", "key, likewise"},
      {"value", "value, likewise"},
      {"mask", "mask, likewise: booleans, true = may see"},
      {"bias", "bias, likewise: added to the scaled scores"},
      {"sink-tensor", "sink logits [H], likewise"},
      {"key-lengths-tensor", "key lengths [B], likewise"}};
  for (const auto& [role, help] : roles) {
    command.add_option_function<std::string>(
        std::string("--") + role,
        [&o, name = std::string(role)](const std::string& value) { o.names[name] = value; }, help);
  }
  command.add_option(
      "--causal", o.causal,
      "Hide the future. Alone: T = S is required. Or: top-left, bottom-right, the key "
      "position of query 0, or none");
  command.add_option("--window", o.window,
                     "LEFT,RIGHT keys beside the query's own position; an empty side is open. With "
                     "--convention also one number, counted its way");
  command
      .add_option("--query-offset", o.query_offset,
                  "Key position of query 0: one, or one per batch")
      ->delimiter(',');
  command
      .add_option("--key-lengths", o.key_lengths,
                  "Keys at and beyond are hidden: one, or one per batch")
      ->delimiter(',');
  command.add_option("--scale", o.scale, "Multiplies the dot product; default: divide by sqrt(D)");
  command.add_option("--softcap", o.softcap, "c * tanh(score / c), before bias and mask");
  command.add_flag("--alibi", o.alibi, "Add ALiBi with the published slopes for H heads");
  command.add_option("--sink", o.sink, "A logit per head that joins the denominator alone")
      ->delimiter(',');
  command.add_option("--empty-row", o.empty_row,
                     "A query that sees no key: error (default), zero or nan");
  command.add_option("--layout", o.layout,
                     "bhtd (default), bthd, packed [B,T,H*D] or lbe [T,B,H*D]");
  command.add_option("--heads", o.heads, "H, for packed and lbe");
  command.add_option("--kv-heads", o.kv_heads, "G, for packed and lbe; default: H");
  command.add_option(
      "--convention", o.convention,
      "Read mask, causal corner, window, empty row, scale and layout as this framework "
      "means them: pytorch-sdpa, pytorch-mha, flash-attention, flex-attention, jax, "
      "onnx-23, onnx-24, onnx-25, keras, ggml, mlx, ...");
  command
      .add_option("--unpack-limit", o.unpack_limit_gib,
                  "GiB that a compressed npz may unpack to (default 16)")
      ->check(CLI::Range(1, 1048576));
}

void add_number_options(CLI::App& command, NumberStyle& style) {
  command.add_option("--digits", style.digits, "Decimals to print (default 6)")
      ->check(CLI::Range(0, 60));
  auto* full =
      command.add_flag("--full", style.full, "Print the shortest text that reads back exactly");
  command.add_flag("--hex", style.hex, "Print hexadecimal numbers: the bits themselves")
      ->excludes(full);
}

}  // namespace attest::cli
