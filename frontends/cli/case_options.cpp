// SPDX-License-Identifier: MIT
#include "frontends/cli/case_options.h"

#include "frontends/cli/options.h"

namespace attest::cli {

void add_case_options(CLI::App& command, CaseOptions& o) {
  command.add_option("FILE", o.file,
                     "safetensors, npz or JSON with query, key, value [mask bias sink key_lengths "
                     "alibi_slopes query_starts key_starts query_documents key_documents]; - is "
                     "standard input");
  const std::pair<const char*, const char*> roles[] = {
      {"query", "query: a file of its own (.npy, .json), or a tensor's name in FILE"},
      {"key", "key, likewise"},
      {"value", "value, likewise"},
      {"mask", "mask, likewise: booleans, true = may see"},
      {"bias", "bias, likewise: added to the scaled scores"},
      {"sink-tensor", "sink logits [H], likewise"},
      {"key-lengths-tensor", "key lengths [B], likewise"},
      {"alibi-slopes-tensor", "ALiBi slopes [H], likewise"},
      {"query-starts-tensor", "where packed documents begin among the queries, likewise"},
      {"key-starts-tensor", "where packed documents begin among the keys, likewise"},
      {"query-documents-tensor", "document names [T] or [B, T], likewise"},
      {"key-documents-tensor", "document names [S] or [B, S], likewise"}};
  for (const auto& [role, help] : roles) {
    command.add_option_function<std::string>(
        std::string("--") + role,
        [&o, name = std::string(role)](const std::string& value) {
          if (value.empty()) throw CLI::ValidationError("--" + name, "wants a file or a name");
          o.names[name] = value;
        },
        help);
  }
  add_word(
      command, "--causal", o.causal,
      "Hide the future. Alone: T = S is required. Or: top-left, bottom-right, the key position "
      "of query 0, or none");
  add_word(command, "--window", o.window,
           "LEFT,RIGHT keys beside the query's own position; an empty side is open. With "
           "--convention also one number, counted its way");
  add_integers(command, "--query-offset", o.query_offset,
               "Key position of query 0: one, or one per batch (3,5)");
  add_integers(command, "--key-lengths", o.key_lengths,
               "Keys at and beyond are hidden: one, or one per batch (3,5)");
  add_integers(command, "--query-starts", o.query_starts,
               "Documents packed end to end: where each begins among the queries, then T (0,3,8)");
  add_integers(command, "--key-starts", o.key_starts,
               "The same among the keys; default where T = S: as the queries");
  add_integers(command, "--query-documents", o.query_documents,
               "A name for each query; it sees keys of its own name alone (0,0,1)");
  add_integers(command, "--key-documents", o.key_documents,
               "A name for each key; default where T = S: as the queries");
  add_number(command, "--scale", o.scale, "Multiplies the dot product; default: divide by sqrt(D)");
  add_number(command, "--softcap", o.softcap, "c * tanh(score / c), before bias and mask");
  command.add_flag("--alibi", o.alibi, "Add ALiBi with the published slopes for H heads");
  add_numbers(command, "--alibi-slopes", o.alibi_slopes, "ALiBi with these slopes, one a head");
  add_number(command, "--dropout", o.dropout,
             "Leave out weights with this probability, and divide the others by 1 - rate",
             NumberRange::not_negative);
  add_unsigned(command, "--seed", o.seed, "Which weights dropout leaves out (default 0)");
  add_numbers(command, "--sink", o.sink,
              "A logit per head that joins the denominator alone (0,1.5)");
  add_word(command, "--empty-row", o.empty_row,
           "A query that sees no key: error (default), zero or nan");
  add_word(command, "--layout", o.layout,
           "bhtd (default), bthd, packed [B,T,H*D] or lbe [T,B,H*D]");
  add_integer(command, "--heads", o.heads, "H, for packed and lbe", {.least = 1});
  add_integer(command, "--kv-heads", o.kv_heads, "G, for packed and lbe; default: H", {.least = 1});
  add_word(
      command, "--convention", o.convention,
      "Read mask, causal corner, window, empty row, scale and layout as this framework means "
      "them: pytorch-sdpa, pytorch-mha, flash-attention, flex-attention, jax, onnx-23, onnx-24, "
      "onnx-25, onnxruntime-mha, onnxruntime-gqa, keras, ggml, mlx");
  add_integer(command, "--unpack-limit", o.unpack_limit_gib,
              "GiB that a compressed npz may unpack to (default 16)",
              {.least = 1, .most = 1048576});
}

std::vector<CLI::Option*> add_number_options(CLI::App& command, NumberStyle& style) {
  auto* digits = add_integer(command, "--digits", style.digits, "Decimals to print (default 6)",
                             {.least = 0, .most = 60});
  auto* full =
      command.add_flag("--full", style.full, "Print the shortest text that reads back exactly");
  auto* hex =
      command.add_flag("--hex", style.hex, "Print hexadecimal numbers: the bits themselves");
  full->excludes(hex)->excludes(digits);
  hex->excludes(digits);
  return {digits, full, hex};
}

}  // namespace attest::cli
