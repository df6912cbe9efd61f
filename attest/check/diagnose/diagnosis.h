// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "attest/base/result.h"
#include "attest/check/mistakes/catalogue.h"
#include "attest/check/mistakes/claim.h"

namespace attest::check {

enum class Judgement {
  right,  ///< as near as careful arithmetic of its number type comes
  right_by_rounding,  ///< not nearer than any arithmetic of its number type must come, and nothing explains more
  wrong_named,        ///< wrong, and these mistakes give its numbers
  wrong_unexplained,  ///< wrong, and nothing in the catalogue gives its numbers
  undecided,          ///< this input cannot tell
};
[[nodiscard]] std::string_view name_of(Judgement judgement) noexcept;

/// One number of the dump beside what it should be.
struct Cell {
  std::string address{};  ///< "h1.output[2,0]"
  double found = 0;
  double expected = 0;  ///< the exact tier's
  double tolerance = 0;
  std::string sentence{};  ///< how the expected number comes about, in the words of `attest why`
};

/// How one table of the dump compares with the claim.
struct StageJudgement {
  std::string name{};   ///< in the file
  std::string stage{};  ///< "weights"
  std::int64_t compared = 0;
  std::int64_t wrong = 0;      ///< beyond the tolerance, NaN patterns included
  std::int64_t nan_apart = 0;  ///< NaN in one alone
  double worst = 0;            ///< the largest |found − expected|
  double used = 0;             ///< the largest |found − expected| / tolerance
  std::optional<Cell> first_wrong{};
  std::optional<Cell> worst_cell{};
  std::string link{};         ///< "follows from scores", "does not follow from scores", or ""
  std::vector<float> rows{};  ///< [B·H·T], `used` of each row; infinite for NaN patterns apart
};

/// Mistakes that together give the dump's numbers.
struct Explanation {
  std::vector<Made> mistakes{};  ///< empty: the claim itself
  double distance = 0;           ///< root mean square of (found − recomputed) / noise
  double apart = 0;  ///< root mean square of (its numbers − the best's) / what is left; 0: the best
  std::vector<std::string> same{};    ///< labels of others that give the same numbers on this input
  std::vector<std::string> fitted{};  ///< "scale = 0.2887 = 1/sqrt(12)"
};

struct Diagnosis {
  Judgement judgement = Judgement::undecided;
  std::vector<StageJudgement> stages{};
  std::string
      unsaid{};  ///< if right or undecided for that: "you did not say …; these numbers are …"
  std::string first_wrong_stage{};          ///< "" if none
  std::vector<std::string> where{};         ///< "only head 3", "from query 64 on"
  std::vector<Explanation> explanations{};  ///< the best first; the second says the margin
  double margin = 0;  ///< `apart` of the nearest other explanation; how sure the name is
  std::vector<std::string>
      would_decide{};                  ///< what further dump, or which probe, tells the rest apart
  std::vector<std::string> remarks{};  ///< NaN behind the mask, identical keys, what was assumed
  std::string tolerance{};             ///< where it comes from, one sentence
  std::int64_t tried = 0;              ///< recipes
  std::vector<Explanation>
      nearest{};         ///< if wrong and unexplained: what comes nearest, and does not fit
  bool tells = true;     ///< false: the tolerances are so wide that zeros would pass
  bool sampled = false;  ///< whether the search looked at some rows alone
};

struct DiagnoseOptions {
  std::function<void(std::string_view doing, double fraction)> progress{};
  std::int64_t most_mistakes = 3;  ///< that are combined
  bool of_probe = false;           ///< the input was made to tell mistakes apart: advise no other
  bool precision_guessed = false;  ///< nobody says what it computes in: the file holds f64, no more
};

/// Says whether a dump is what its claim computes, and if not, which mistakes give its numbers.
///
/// Formula       a table is right where |found − expected| ≤ tolerance, number by number; the tolerance
///               is derived from shapes, precision and the sizes of scores and values (noise.h).
///               A mistake explains a dump if its recomputed tables are within that of all dumped ones.
/// Edge cases    NaN patterns are compared before numbers; a NaN passes nowhere but where the claim says
///               EmptyRow::nan. Nothing to compare is `undecided`.
/// Determinism   a function of its arguments; any number of threads.
/// Fails         missing-tensor, shape-mismatch, and as lab::attention.
[[nodiscard]] Result<Diagnosis> diagnose(const Dump& dump, const DiagnoseOptions& options = {});

/// One screen.
[[nodiscard]] std::string to_text(const Dump& dump, const Diagnosis& diagnosis);
[[nodiscard]] std::string to_json(const Dump& dump, const Diagnosis& diagnosis);
/// A page of its own, with a heat map of the error; loads nothing.
[[nodiscard]] std::string to_html(const Dump& dump, const Diagnosis& diagnosis);

/// The same of what is no Dump: `compared` says what was compared with what. The page has no heat map.
[[nodiscard]] std::string to_text(const std::string& compared, const Diagnosis& diagnosis);
[[nodiscard]] std::string to_json(const std::string& compared, const Diagnosis& diagnosis);
[[nodiscard]] std::string to_html(const std::string& compared, const Diagnosis& diagnosis);

}  // namespace attest::check
