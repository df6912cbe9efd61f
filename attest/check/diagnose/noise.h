// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "attest/check/mistakes/claim.h"
#include "attest/check/mistakes/evaluate.h"

/// What rounding may do to the numbers of a dump: where tolerances come from.
namespace attest::check {

/// What is known of the arithmetic that made a dump: the claim's, and what its tables show.
struct Arithmetic {
  double sums = 0x1p-24;     ///< u of sums, scores and softmax: binary32, or binary64
  double products = 0;       ///< of the factors of a product: tf32
  double factors_worst = 0;  ///< of query·key, where a 16-bit program rounds what it made of either
  double factors_kept = 0;   ///< standard deviation of either's numbers for that
  double scores = 0;         ///< of scores that a dumped 16-bit table shows, typically
  double scores_worst = 0;   ///< of scores that a 16-bit program may keep
  double weights = 0;        ///< of weights before the mix: 16-bit programs
  double parts = 0;          ///< of partial results that a 16-bit program may keep in its type
  double tiny = 0x1p-126;    ///< what an underflow may cost
};
[[nodiscard]] Arithmetic arithmetic_of(const Dump& dump);

/// The unit roundoff of numbers stored so; 0 for integers.
[[nodiscard]] double unit_of(DType dtype) noexcept;

/// How far numbers of one row of one table may be from the exact ones.
struct RowNoise {
  std::vector<double>
      typical;                ///< standard deviation, with roundings as independent random numbers
  std::vector<double> worst;  ///< a bound for any order of careful arithmetic
  std::vector<double> kept;   ///< standard deviation of what a 16-bit program may round on its way
  /// What both come to together, for number k; `worst` where nothing is kept in 16 bits.
  [[nodiscard]] double by_chance(std::size_t k) const;
};

/// How many standard deviations the largest of so many numbers may be away.
///
/// Formula       √(2·ln(2n/α)), α = 10⁻⁶: the tail of a normal deviate, e^(−z²/2), n times
[[nodiscard]] double largest_deviation(std::int64_t numbers);
/// The same of 2³⁰ numbers: no sum of random roundings is farther away.
[[nodiscard]] double most_deviations();
/// √Σ x⁴ of every row.
[[nodiscard]] std::vector<double> fourth_powers(const Tensor<double>& rows);
/// How large the root mean square of so many deviates may be.
///
/// Formula       1 + √(ln(1/α)/n): the tail of χ² over n (Laurent and Massart), halved by the root
[[nodiscard]] double largest_mean_deviation(std::int64_t numbers);

/// The tolerances of a dump, row by row.
///
/// Formula       with u of the sums, A_j = |query|·|key_j|·|scale|, n visible keys, w their weights,
///               a score errs by e_j and its exponential by ρ_j, relative:
///                   worst    e_j ≤ u·((D + 4)·A_j + 10·|capped| + 5·|bias| + |biased|)
///                            ρ_j ≤ e_j + 4u·(peak − score) + (3.25 + 4.25·(S/16 + 2))·u
///                            |output| errs by Σ w·ρ·|value − output| / Σ w/(1 + ρ), for what all
///                            shares have in common cancels, and (n + 4)·u·Σ w·|value| + 4u·|output|
///                   typical  e_j = u·((√D + 3)·A_j + 6·|capped| + 2·|bias| + |biased|)
///                            ρ_j² = e_j² + (2u·(peak − score))² + (3u)²
///                            output² : Σ (w·ρ·value)² + output²·Σ (w·ρ)² + (u·√n·Σ w·|value|)²
///               the worst as engine_bound has it, by Cauchy and Schwarz for the size of a product.
///               Rotary angles p·r of a pair, r = base^(−2i/R), err by u·p·r·4 at worst: power,
///               exponent, quotient and product, for r·ln(1/r) < 1; that turns a pair of query and
///               key by as much. The turning itself errs by (2√2 + 1)·u of either: cosines,
///               products, sum.
///               An error before a softcap is behind it at most cap·(tanh(x/cap) − tanh((x − error)/cap)).
///               16-bit programs round weights (typically) and scores (at worst) to their type, and
///               keep partial results in it; at worst they round query and key once more when they
///               scale them, and all of the turning; tf32 rounds factors.
///               kept     so many roundings are never all at their worst. One of x is uniform in
///                        ± u·|x| at most, of standard deviation u·|x|/√3, and those of different
///                        scores are independent: of a score product, scaling and quotient by the cap
///                        (before it), the cap's two, bias, sum and peak; of a key in place of it
///                        u²/3·Σ query²·key² ≤ u²/3·√(Σ query⁴·Σ key⁴). Those of the query are shared by
///                        all keys, and only differences of keys show. With k_j for what a score keeps,
///                        f for factors_kept, mean and variance by weights:
///                            kept² = Σ (w·k·(value − output))² + Var(value)·f²·Σ_d query_d²·Var(key_d)
///                                    + (u·√(n/16 + 2)·Σ w·|value|)²
///                        the last of partial results. The output errs by no more than 8.4 standard
///                        deviations (largest_deviation of 2^30) of √(typical² + kept²), if the shares
///                        are not all but lost.
///               What stores a number adds half a unit of its type, typically of the row's size, for
///               rows are merged of parts.
/// Edge cases    not a number where the row's own numbers are not finite.
/// Cost          a row: S, and S·E for the output.
class Noise {
 public:
  /// The dump must outlive it.
  explicit Noise(const Dump& dump);
  Noise(const Dump& dump, const Arithmetic& arithmetic);

  /// Prepares a row as a recipe computed it: what follows is about this row, which must outlive it.
  class Row;

  [[nodiscard]] const Arithmetic& arithmetic() const noexcept { return arithmetic_; }

 private:
  const Dump& dump_;
  Arithmetic arithmetic_;
  std::vector<double> key_size_;    // [B, G, S], √Σ key²; empty without keys
  std::vector<double> key_turn_;    // [B, G, S], √Σ rate·key²; empty without rotary positions
  std::vector<double> key_spread_;  // [B, G, S], √Σ key⁴; empty but of 16-bit programs
  std::vector<double> rates_;       // [D], how far a position turns the feature's pair; likewise
  double evenly_ = 0;  // √Σ rate² / Σ rate: what independent angles leave of their sum
};

class Noise::Row {
 public:
  explicit Row(const Noise& noise) : noise_(noise) {}
  void begin(lab::RowPlace at, const StageRow& row);
  /// The numbers of one table in that row, `dtype` being what it is stored in.
  void of(Stage stage, DType dtype, RowNoise& out);

 private:
  struct Error {
    double typical = 0, worst = 0;
  };
  void look();
  void score_errors(std::size_t j, double size, double turn);
  void add_up();
  void scores(Stage stage, double storage, RowNoise& out) const;
  void weights(double storage, RowNoise& out) const;
  void output(double storage, RowNoise& out);
  [[nodiscard]] Error log_sum_exp(double storage) const;
  [[nodiscard]] double query_size() const;
  [[nodiscard]] double query_turn() const;
  struct Shares {
    bool tied = false;  ///< weights, and the sink's, are parts of one
    double left = 0;    ///< Σ w/(1 + ρ)
    double sink = 0;    ///< w·ρ of the sink
  };
  [[nodiscard]] Shares shares() const;
  /// What an error before the cap is behind it, for a score of this size; `error` counts so many times.
  [[nodiscard]] double through_cap(double scaled, double error, double deviations) const;
  struct ScoreSizes {
    double scaled = 0, capped = 0, bias = 0, biased = 0, gap = 0;
  };
  // noise_kept.cpp
  void keep(std::size_t j, const ScoreSizes& sizes);
  [[nodiscard]] double query_rounding() const;
  void kept_scores(Stage stage, RowNoise& out) const;
  void kept_weights(RowNoise& out) const;
  [[nodiscard]] double kept_log_sum_exp() const;
  void kept_output(const double* values, const Shares& shares, RowNoise& out) const;

  const Noise& noise_;
  lab::RowPlace at_{};
  const StageRow* row_ = nullptr;
  std::size_t keys_ = 0;
  bool has_scores_ = false;
  std::vector<Error> dot_;      // of query·key, absolute
  std::vector<Error> score_;    // of the last score, absolute
  std::vector<Error> share_;    // of the exponential, relative
  std::vector<double> kept_;    // of a score, where a 16-bit program rounds it and its key
  std::vector<double> turned_;  // of its query
  double query_spread_ = -1;    // √Σ query⁴; not known yet if negative
  std::vector<double> common_;  // at worst, of what numerator and denominator share
  Error sum_{};                 // of the denominator, relative
  double visible_ = 0;          // keys
  double peak_ = 0;
  double ratio_ = 1;          // scaled / dot
  std::vector<double> size_;  // scratch, [E]
};

}  // namespace attest::check
