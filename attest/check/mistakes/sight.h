// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "attest/check/mistakes/lookup.h"
#include "attest/check/mistakes/scoring.h"

namespace attest::check {

/// Why a program hides a key: a sum of these. 0: it may be seen.
inline constexpr std::uint8_t hidden_by_position = 1;  ///< causal, window
inline constexpr std::uint8_t hidden_by_mask = 2;      ///< mask, lengths, documents, bias −∞

/// Who sees whom in a program: the checker's own evaluation of masks, which shares nothing with
/// lab::Visibility.
class Sight {
 public:
  /// `keys` says which key of the claim each of the program's is; empty: the same. Nothing if the
  /// recipe asks for places that the claim's masks do not have. The claim must outlive it.
  static std::optional<Sight> make(const Claim& claim, const lab::AttentionShape& program,
                                   const SightRecipe& recipe, const BiasRecipe& bias,
                                   std::vector<std::int64_t> keys);

  /// Fills in, for each of the program's S keys, why it is hidden from this query.
  void look(lab::RowPlace at, std::span<std::uint8_t> hidden) const;

  /// Where the query stands, as the claim's index of a key.
  [[nodiscard]] std::int64_t position(lab::RowPlace at) const;
  /// The same, but for the offset: its index, in its document.
  [[nodiscard]] std::int64_t position_at_index(lab::RowPlace at) const;

  [[nodiscard]] std::int64_t claim_key(std::int64_t j) const {
    return keys_.empty() ? j : keys_[static_cast<std::size_t>(j)];
  }
  [[nodiscard]] std::int64_t key_length(std::int64_t b) const;

 private:
  struct Document {
    std::int64_t first_query = 0;
    std::int64_t queries = 0;
    std::int64_t first_key = 0;
    std::int64_t keys = 0;
    std::int64_t first_seen = 0;
  };
  struct Range {
    std::int64_t first = 0;
    std::int64_t end = 0;
  };

  Sight(const Claim& claim, const lab::AttentionShape& program, const SightRecipe& recipe,
        const BiasRecipe& bias, std::vector<std::int64_t> keys)
      : claim_(&claim), program_(program), recipe_(recipe), bias_(bias), keys_(std::move(keys)) {}
  [[nodiscard]] bool fits() const;
  [[nodiscard]] std::int64_t batches_looked_up(Lookup lookup) const;
  [[nodiscard]] bool table_fits(const Shape& extents, Lookup lookup) const;
  void arrange_documents();
  [[nodiscard]] Document document_of(lab::RowPlace at) const;
  [[nodiscard]] std::int64_t offset(std::int64_t b, const Document& own) const;
  [[nodiscard]] std::optional<Range> causal_range(lab::RowPlace at) const;
  [[nodiscard]] std::optional<Range> window_range(lab::RowPlace at) const;
  void hide_outside(const std::optional<Range>& range, std::int64_t from, std::uint8_t why,
                    std::span<std::uint8_t> hidden) const;
  void hide_by_position(lab::RowPlace at, std::span<std::uint8_t> hidden) const;
  void hide_by_length(lab::RowPlace at, std::span<std::uint8_t> hidden) const;
  void hide_by_table(lab::RowPlace at, std::span<std::uint8_t> hidden) const;
  void hide_by_bias(lab::RowPlace at, std::span<std::uint8_t> hidden) const;
  void hide_by_document(lab::RowPlace at, std::span<std::uint8_t> hidden) const;
  void compose(std::span<std::uint8_t> hidden) const;

  const Claim* claim_;
  lab::AttentionShape program_;
  SightRecipe recipe_;
  BiasRecipe bias_;
  std::vector<std::int64_t> keys_;  // [S of the program], or empty
  Packing packing_{};               // after the recipe's mistake
  DocumentIds ids_{};               // likewise; of one batch, or of all
  bool causal_ = false;
  Corner corner_ = Corner::top_left;
  Sides window_{};
};

}  // namespace attest::check
