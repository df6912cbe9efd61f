// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "attest/check/block/block.h"
#include "attest/check/block/block_recipe.h"
#include "attest/check/mistakes/catalogue.h"

namespace attest::check::block {

/// One way in which people get a block wrong.
struct BlockMistake {
  Mistake text{};  ///< its `make` is null
  /// As Mistake::make; the config is the claim's.
  std::function<bool(BlockRecipe&, const BlockConfig&, double)> make{};
  /// Leads other tables or weights somewhere, so that it brings out mistakes that show nowhere alone.
  bool reroutes = false;
};

/// All of them. Mistakes of a norm or a matrix are there once for all places, and once for each.
[[nodiscard]] std::span<const BlockMistake> block_mistakes();

/// A mistake with one of its values, ready to be tried.
struct Candidate {
  const BlockMistake* mistake = nullptr;
  double value = 0;
  [[nodiscard]] std::string label() const;
  [[nodiscard]] Made made() const { return {&mistake->text, value}; }
};

/// Everything that can be tried on a claim, which this config or this recipe of it is.
[[nodiscard]] std::vector<Candidate> candidates_of(const BlockConfig& config);
[[nodiscard]] std::vector<Candidate> candidates_of(const BlockConfig& config,
                                                   const BlockRecipe& claim);

/// What the tables are filled with; each file of the catalogue has one.
class Entries {
 public:
  struct Entry {
    std::string name;
    MistakeKind kind = MistakeKind::wrong;
    std::string what, look_for;
    std::string_view seen_in = "";
    std::span<const double> values{};
    bool reroutes = false;
  };
  using Make = std::function<bool(BlockRecipe&, const BlockConfig&, double)>;
  void add(Entry entry, Make make);
  [[nodiscard]] std::vector<BlockMistake> all() const;

 private:
  std::vector<std::pair<Entry, Make>> entries_;
};
void add_norm_mistakes(Entries& entries);
void add_attention_mistakes(Entries& entries);
void add_rope_mistakes(Entries& entries);
void add_ffn_mistakes(Entries& entries);
void add_block_mistakes(Entries& entries);
void add_matrix_mistakes(Entries& entries);

}  // namespace attest::check::block
