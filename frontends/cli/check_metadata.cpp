// SPDX-License-Identifier: MIT
// What a dump says of itself: attest.* entries, and those of an ONNX node test.
#include "frontends/cli/check_metadata.h"

#include <algorithm>

#include "attest/base/text.h"
#include "attest/check/probe/claim_metadata.h"
#include "frontends/cli/check_onnx.h"

namespace attest::cli {
namespace {

Failure bad(std::string id, std::string message) {
  return {ErrorKind::value, std::move(id), "[check] " + std::move(message)};
}

/// Takes what the command line left open.
template <class T>
void fill(T& given, const T& from) {
  if (given == T{}) given = from;
}

void fill_all(DumpOptions& o, const DumpOptions& from) {
  CaseOptions& c = o.inputs;
  const CaseOptions& f = from.inputs;
  if (c.causal.empty() && c.query_offset.empty()) {
    c.causal = f.causal;
    c.query_offset = f.query_offset;
  }
  fill(c.window, f.window);
  fill(c.scale, f.scale);
  fill(c.softcap, f.softcap);
  if (c.alibi_slopes.empty()) fill(c.alibi, f.alibi);
  fill(c.dropout, f.dropout);
  fill(c.seed, f.seed);
  fill(c.empty_row, f.empty_row);
  fill(c.layout, f.layout);
  fill(c.heads, f.heads);
  fill(c.kv_heads, f.kv_heads);
  fill(c.convention, f.convention);
  fill(o.precision, from.precision);
  fill(o.past, from.past);
  fill(o.rope, from.rope);
  fill(o.rope_base, from.rope_base);
  fill(o.rope_dim, from.rope_dim);
}

/// The file's words as options of the command: the same code reads them.
Result<void> read_own(io::NamedTensors& bundle, DumpOptions& options,
                      std::vector<std::string>& remarks) {
  const auto claim = check::read_claim(bundle);
  if (!claim) return claim.failure();
  std::erase_if(bundle.tensors,
                [](const auto& entry) { return entry.first == check::claim_tensor; });
  std::vector<std::string> words;
  std::string said;
  for (const auto& [flag, text] : check::texts_of(*claim)) {
    words.push_back(flag == "alibi" ? "--alibi" : sentence("--", flag, "=", text));
    said += " " + words.back();
  }
  if (words.empty()) return {};
  remarks.push_back("the file claims" + said);
  std::ranges::reverse(words);  // as CLI11 wants them
  CLI::App reader;
  DumpOptions found;
  add_dump_options(reader, found);
  try {
    reader.parse(words);
  } catch (const CLI::ParseError& error) {
    return bad("bad-claim", sentence("the file's claim cannot be read: ", error.what()));
  }
  fill_all(options, found);
  return {};
}

}  // namespace

bool carries_claim(const io::NamedTensors& bundle) {
  const auto claim = check::read_claim(bundle);
  return claim && !check::texts_of(*claim).empty();
}

Result<void> read_claim(io::NamedTensors& bundle, DumpOptions& options,
                        std::vector<std::string>& remarks) {
  if (auto ok = read_own(bundle, options, remarks); !ok) return ok;
  auto node = onnx_node_of(bundle);
  if (!node) return node.failure();
  if (!*node) return {};
  DumpOptions found;
  found.inputs.names = options.inputs.names;
  if (auto ok = read_onnx(**node, bundle, found, remarks); !ok) return ok;
  options.inputs.names = found.inputs.names;
  fill_all(options, found);
  return {};
}

}  // namespace attest::cli
