// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "attest/base/result.h"
#include "attest/io/named_tensors.h"

namespace attest::check {

// Failure ids of this header:
//
//   bad-claim  an entry of a name or with a text that no option has, or two claims in one file

/// The options of a claim as a file says them, in the words that the command's flags of the same names
/// take. What is left out is not said. Tensors (mask, bias, key_lengths, sink, …) speak for themselves.
struct ClaimWords {
  std::string convention{};                ///< a preset of attest/base/conventions.h
  std::string layout{};                    ///< bhtd, bthd, packed or lbe
  std::optional<std::int64_t> heads{};     ///< H, for packed and lbe
  std::optional<std::int64_t> kv_heads{};  ///< G, likewise
  std::string causal{};  ///< square, top-left, bottom-right, none, or the key position of query 0
  std::string window{};  ///< "LEFT,RIGHT"; an empty side is open. One number: the convention counts
  std::vector<std::int64_t> query_offset{};  ///< key position of query 0: one, or one per batch
  std::optional<double> scale{};
  std::optional<double> softcap{};
  bool alibi = false;  ///< the published slopes for H heads
  std::optional<double> dropout{};
  std::optional<std::uint64_t> seed{};
  std::string empty_row{};  ///< error, zero or nan
  std::string precision{};  ///< f64, f32, tf32, f16 or bf16
  std::string rope{};       ///< half or interleaved: query and key are as before the turn
  std::optional<std::int64_t> rope_dim{};
  std::optional<double> rope_base{};
  std::optional<std::int64_t>
      past{};  ///< how many of the keys came from a cache: query i is at past + i

  bool operator==(const ClaimWords&) const = default;
};

/// What is said, as (flag without dashes, text), in the order above: {"causal", "top-left"}.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> texts_of(const ClaimWords& claim);

/// Appends the metadata entries "attest.causal" = "top-left", … A claim that says nothing adds nothing.
void write_claim(const ClaimWords& claim, io::NamedTensors& file);

/// The same claim as a tensor of bytes, for files that have no place for metadata: `claim_tensor` holds
/// lines "causal = top-left". A program that copies all arrays of an npz to another carries it along.
inline constexpr std::string_view claim_tensor = "attest_claim";
void write_claim_as_tensor(const ClaimWords& claim, io::NamedTensors& file);

/// Reads what either of the two wrote; a file without any claims nothing.
///
/// Edge cases    entries whose name does not begin with "attest." are another's and are passed over;
///               "attest.made_by" is a remark. Any other name is refused: an option that nobody reads
///               would change what a verdict is relative to.
/// Fails         bad-claim.
[[nodiscard]] Result<ClaimWords> read_claim(const io::NamedTensors& file);

/// The same from words that are already apart: {"causal", "top-left"}. Fails bad-claim.
[[nodiscard]] Result<ClaimWords> claim_of(
    std::span<const std::pair<std::string, std::string>> texts);

}  // namespace attest::check
