// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "attest/check/block/search.h"
#include "attest/check/diagnose/diagnosis.h"

/// Judging tables and putting a diagnosis together; what a block and a single layer share.
namespace attest::check::block {

/// One table on trial: found, what it should be, and how far it may be from that.
struct Judged {
  const Link* link = nullptr;
  const Tensor<double>* expected = nullptr;  ///< the exact tier's
  const Numbers* tolerance = nullptr;        ///< the claim recomputed, for its bounds
  Zones zones{};
  std::function<std::string(std::int64_t row, std::int64_t column)> address{};
  std::function<std::string(std::int64_t row, std::int64_t column)> sentence{};
};

struct Judgements {
  StageJudgement judgement{};
  Fit fit{};
};
[[nodiscard]] Judgements judge(const Judged& on_trial);

/// Of every row, the largest share of its tolerance that a number uses; infinite where NaN stands apart.
[[nodiscard]] std::vector<double> used_by_row(const Numbers& found, const Numbers& made,
                                              const Zones& zones);

/// "only rows from 3 on", "only features 4 to 7 (head 1)": where a wrong table is wrong.
struct Layout {
  std::int64_t rows = 0;   ///< of one sequence
  std::int64_t parts = 1;  ///< heads side by side
  std::string part = "head";
  bool stacked = false;  ///< heads one after another, as in weights
};
[[nodiscard]] std::vector<std::string> places_of(const Judged& on_trial, const Layout& layout);

/// The verdict from what was judged and, where something is wrong, what explains it.
///
/// Right if every number is as near as rounding typically leaves it; right by rounding if some are farther
/// away, none beyond its tolerance, and no mistake explains them much better; else wrong.
void conclude(const Trial& trial, const std::vector<Fit>& fits, const DiagnoseOptions& options,
              Diagnosis& out);

/// "tolerance: …", for the claimed precision.
[[nodiscard]] std::string tolerance_text(Precision precision, const Zones& zones);

}  // namespace attest::check::block
