// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "attest/base/result.h"
#include "attest/check/mistakes/claim.h"
#include "attest/check/probe/claim_metadata.h"
#include "attest/io/named_tensors.h"

namespace attest::check {

// Failure ids of this header, beside those of attest/base/conventions.h:
//
//   unknown-feature    no feature of that name; the sentence lists those there are
//   features-conflict  two features that no call can have at once
//   bad-option         hostile inputs with nothing that hides, a layout or a number type that is none

/// What an attention function under test is to do beside plain attention.
struct ProbeFeatures {
  bool causal = false;             ///< in the convention's corner; T = S without any
  std::optional<Corner> corner{};  ///< causal in this corner, top_left or bottom_right
  bool window = false;
  bool mask = false;     ///< booleans [B, 1, T, S]
  bool bias = false;     ///< [B, H, T, S]
  bool grouped = false;  ///< fewer key/value heads than query heads
  bool alibi = false;
  bool sink = false;
  bool softcap = false;
  bool scale = false;  ///< another than 1/√D
  bool rope = false;
  bool interleaved = false;  ///< rope of neighbouring features rather than of halves
  bool cache = false;        ///< past_key and past_value before key and value
  bool lengths = false;      ///< key_lengths [B]
  bool packed = false;       ///< documents end to end
  bool dropout = false;      ///< with the table of kept weights
  bool gradients = false;    ///< d_output, for d_query, d_key and d_value

  bool operator==(const ProbeFeatures&) const = default;
};

/// From "causal,mask": causal, top-left, bottom-right (causal both), window, mask, bias, grouped, alibi,
/// sink, softcap, scale, rope, rope-interleaved, cache, lengths, packed, dropout, gradients. An empty
/// text names none. Fails unknown-feature.
[[nodiscard]] Result<ProbeFeatures> features_of(std::string_view list);
/// The same names, in that order.
[[nodiscard]] std::vector<std::string_view> names_of(const ProbeFeatures& features);

struct ProbeRequest {
  ProbeFeatures features{};
  std::string convention{};   ///< a preset of attest/base/conventions.h; empty: ours
  DType dtype = DType::f32;   ///< of query, key, value, cache, bias and d_output
  std::string layout{};       ///< bhtd, bthd, packed or lbe; empty: the convention's
  bool hostile = false;       ///< a query that sees no key, and NaN behind the mask
  bool long_lengths = false;  ///< more than 128 queries and keys, for programs that work in blocks
  std::int64_t head_dim = 0;  ///< D and E, for programs that take no other; 0: as is best
  std::uint64_t seed = 1;
};

/// What a request is on the command line: "attest probe --features causal --seed 1".
[[nodiscard]] std::string command_of(const ProbeRequest& request);

/// The sizes of a probe.
struct ProbeShape {
  lab::AttentionShape call{};          ///< S counts cached keys too
  std::int64_t past = 0;               ///< of S
  std::string output_layout = "bhtd";  ///< of output and d_output
  std::string layout = "bhtd";         ///< of query, key and value
  bool without_batch = false;          ///< [T, H, D], as packed calls of flash-attention
};

/// Inputs on which different mistakes give different numbers.
struct Probe {
  ProbeRequest request{};
  ProbeShape shape{};
  io::NamedTensors file{};  ///< the inputs in the order of the layout, and the claim as metadata
  ClaimWords words{};       ///< that claim
  Claim claim{};            ///< the same, as it is judged
  std::vector<std::string> remarks{};  ///< what could not be had
};

/// Draws a probe.
///
/// Shapes        D ≠ H², H/G ≠ G ≠ B, T ≠ S unless the convention's causal flag wants them equal, E ≠ D
///               unless the convention wants that; no length a multiple of 16, no head count a power of
///               two; every batch of another length, none full; every query sees a key.
/// Edge cases    hostile: query 2 of batch 1 sees no key, or with lengths alone a whole batch, where the
///               convention has a policy that a claim can say; a hidden key and its value are NaN.
/// Accuracy      every number is exact in the number type asked for; scores have a deviation near 1, so
///               that the softmax is neither flat nor all on one key.
/// Determinism   a function of its argument, the same on every machine.
/// Fails         see above.
/// See also      separation.h says what a probe tells apart.
[[nodiscard]] Result<Probe> make_probe(const ProbeRequest& request);

}  // namespace attest::check
