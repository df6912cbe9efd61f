// SPDX-License-Identifier: MIT
// Rotary positions of a claim: which features turn, and where queries and keys stand.
#include "frontends/cli/check_rope.h"

#include "attest/base/text.h"
#include "attest/check/diagnose/rope_table.h"
#include "frontends/cli/case_lists.h"

namespace attest::cli {
namespace {

Failure bad(std::string id, std::string message) {
  return {ErrorKind::value, std::move(id), "[check] " + std::move(message)};
}

/// Where the mask's rules put query 0, batch by batch.
std::vector<std::int64_t> offsets_of(const check::Claim& claim) {
  const Mask& mask = claim.call.mask;
  const auto batches = static_cast<std::size_t>(claim.shape.B);
  const auto at = [](const std::vector<std::int64_t>& list, std::size_t b) {
    return list[list.size() == 1 ? 0 : b];
  };
  std::vector<std::int64_t> out(batches, claim.past);
  if (!mask.future_hidden && mask.corner == Corner::top_left) return out;
  for (std::size_t b = 0; b < batches; ++b) {
    if (mask.corner == Corner::at_offset && !mask.query_offset.empty()) {
      out[b] = at(mask.query_offset, b);
    }
    if (mask.corner == Corner::bottom_right) {
      const bool lengths = !mask.key_lengths.empty();
      out[b] = (lengths ? at(mask.key_lengths, b) : claim.shape.S) - claim.shape.T;
    }
  }
  return out;
}

Result<void> place_positions(const RopeTables& tables, check::Claim& claim,
                             check::RopeClaim& rope) {
  const lab::AttentionShape& s = claim.shape;
  rope.query_positions = tables.query_positions;
  rope.key_positions = tables.key_positions;
  const auto fits = [&](const std::vector<std::int64_t>& list, std::int64_t each) {
    const auto count = static_cast<std::int64_t>(list.size());
    return count == 0 || count == each || count == s.B * each;
  };
  if (!fits(rope.query_positions, s.T) || !fits(rope.key_positions, s.S)) {
    return bad("bad-option",
               sentence("rotary positions are one a query and one a key, for all batches or for "
                        "each: there are ",
                        rope.query_positions.size(), " for ", s.T, " queries and ",
                        rope.key_positions.size(), " for ", s.S, " keys"));
  }
  if (rope.key_positions.empty()) {
    for (std::int64_t j = 0; j < s.S; ++j) rope.key_positions.push_back(j);
  }
  if (!rope.query_positions.empty()) return {};
  for (const std::int64_t offset : offsets_of(claim)) {
    for (std::int64_t i = 0; i < s.T; ++i) rope.query_positions.push_back(offset + i);
  }
  return {};
}

}  // namespace

Result<RopeTables> rope_tables_of(Sources& sources, const DumpOptions& o) {
  RopeTables out;
  if (o.rope.empty() && !o.inputs.names.contains("cos") && !sources.holds("cos")) {
    return out;  // what is called a position may be another's
  }
  for (const auto& [role, target] : {std::pair{"cos", &out.cos}, std::pair{"sin", &out.sin}}) {
    auto found = sources.find(role, role);
    if (!found) return found.failure();
    *target = *std::move(found);
  }
  if (out.cos.has_value() != out.sin.has_value()) {
    return bad("missing-tensor", "cos and sin belong together; one is missing");
  }
  auto queries = list_of(sources, o.inputs, {"query_positions", "query-positions-tensor", 2},
                         o.query_positions);
  if (!queries) return queries.failure();
  out.query_positions = *std::move(queries);
  auto keys =
      list_of(sources, o.inputs, {"key_positions", "key-positions-tensor", 2}, o.key_positions);
  if (!keys) return keys.failure();
  out.key_positions = *std::move(keys);
  return out;
}

Result<void> choose_rope(const DumpOptions& o, const RopeTables& tables, check::Claim& claim,
                         std::vector<std::string>& remarks) {
  if (o.rope.empty() && !tables.cos) {
    const bool any =
        o.rope_base || o.rope_dim || !o.query_positions.empty() || !o.key_positions.empty();
    if (any) return bad("not-used", "rotary options need --rope half or --rope interleaved");
    return {};
  }
  if (!claim.has_query_and_key()) {
    return bad("missing-tensor", "--rope turns query and key, and they are missing");
  }
  check::RopeClaim rope;
  rope.config.base = o.rope_base.value_or(10000);
  rope.config.rotary_dim = o.rope_dim.value_or(0);
  std::optional<RopePairing> pairing;
  if (!o.rope.empty()) {
    pairing = o.rope == "half" ? RopePairing::half : RopePairing::interleaved;
  }
  if (tables.cos) {
    const auto reading = check::read_rope_table(*tables.cos, *tables.sin);
    if (!reading) return reading.failure();
    if (!o.rope_base) rope.config.base = reading->base;
    if (!o.rope_dim) rope.config.rotary_dim = reading->rotary_dim;
    if (!pairing) pairing = reading->pairing;
    remarks.push_back(sentence("cos and sin are those of base ", rope.config.base, " for ",
                               reading->rotary_dim, " features"));
    if (!pairing)
      remarks.push_back("pairing feature i with i + R/2: --rope interleaved says 2i with 2i+1");
  }
  rope.config.pairing = pairing.value_or(RopePairing::half);
  const std::int64_t width = rope.config.rotary_dim == 0 ? claim.shape.D : rope.config.rotary_dim;
  if (width % 2 != 0 || width > claim.shape.D || width < 2) {
    return bad("bad-option", sentence("the rotated width must be even and at most D = ",
                                      claim.shape.D, "; it is ", width));
  }
  if (!(rope.config.base > 0)) return bad("bad-option", "--rope-base must be above 0");
  if (auto ok = place_positions(tables, claim, rope); !ok) return ok;
  claim.rope = std::move(rope);
  return {};
}

}  // namespace attest::cli
