// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "attest/base/tensor.h"
#include "attest/check/gradients/gradients.h"
#include "attest/check/gradients/recipe.h"

/// The claim's forward pass in plain binary64, kept for the gradients that recipes make of it. Shares
/// nothing with the exact tier.
namespace attest::check::gradients {

/// What the steps of an arithmetic cost, as fractions.
struct Noise {
  double unit = 0x1p-24;  ///< of sums, functions and results of one operation
  double entry = 0;       ///< of what enters a product of the forward pass: tf32 rounds it
  double cast = 0;        ///< of a weight, or of d_scores, that enters the backward pass's products
  double store = 0x1p-24;  ///< of a stored result
  double table = 0;        ///< of tables that are stored between the steps

  /// Careful arithmetic of that precision.
  [[nodiscard]] static Noise of(Precision precision);
  /// The same where every table is stored in the precision's own type.
  [[nodiscard]] static Noise with_tables(Precision precision);
};

/// The dump as it is computed with: rotated rows, and who may see whom.
class Problem {
 public:
  explicit Problem(const GradientDump& dump);

  const GradientDump& dump;
  lab::AttentionShape shape{};
  Tensor<double> query{};  // [B, H, T, D], rotated
  Tensor<double> key{};    // [B, G, S, D], rotated
  double scale = 1;
  double keep_factor = 1;  ///< 1/(1 − rate)

  [[nodiscard]] std::int64_t group(std::int64_t h) const { return h / (shape.H / shape.G); }
  [[nodiscard]] std::int64_t key_length(std::int64_t b) const;
  /// Every rule that hides key j from query i, as HiddenBits.
  [[nodiscard]] unsigned hidden(std::int64_t b, std::int64_t h, std::int64_t i,
                                std::int64_t j) const;
  /// The claim's position of query i, and key j's index on the same scale.
  [[nodiscard]] std::int64_t query_position(std::int64_t b, std::int64_t i) const;
  [[nodiscard]] std::int64_t key_position(std::int64_t i, std::int64_t j) const;
  [[nodiscard]] double bias(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const;
  [[nodiscard]] std::int64_t bias_extent(std::size_t axis) const;
  [[nodiscard]] bool kept(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const;

  /// Turns one row of query or key by its position, or back.
  void turn(std::span<double> row, std::int64_t position, bool back) const;
  [[nodiscard]] std::int64_t rope_position(bool of_query, std::int64_t b, std::int64_t n) const;
  /// What a turn costs, relative to the row: its angle is a rounded product.
  [[nodiscard]] double turn_noise(bool of_query, std::int64_t b, std::int64_t n, double unit) const;

 private:
  struct Document {
    std::int64_t first_query = 0, first_key = 0, queries = 0, keys = 0;
  };
  [[nodiscard]] Document document_of(std::int64_t i) const;
  std::vector<double> frequencies_{};  // [R/2]
};

/// What is known of one query row as a whole.
struct RowFacts {
  bool empty = false;
  double peak = 0;
  double log_sum_exp = 0;
  double unmasked_log_sum_exp = 0;
  double sink_weight = 0;
  double flow = 0;       ///< d_log_sum_exp
  double rows_term = 0;  ///< Σ weights·d_weights
  double rows_term_noise = 0;
  double before_dropout = 0, without_factor = 0, unweighted = 0, mean = 0;
  double sum_d_output = 0, sum_output = 0, output_squared = 0;
  double common = 0;  ///< relative error that all weights of the row share
};

/// Some rows of one query head, and some keys of each.
struct HeadTable {
  std::int64_t b = 0, h = 0;
  std::int64_t first_place = 0;      ///< of its rows among those that a sample has
  std::vector<std::int64_t> rows{};  ///< its queries
  std::vector<std::int64_t> keys{};  ///< its keys
  std::vector<RowFacts> facts{};     // [rows]
  std::vector<double> per_key{};     // [keys], Σ_i weights·d_weights
  double rows_term_of_first = 0;     ///< that of query 0

  // [rows, keys] each
  std::vector<double> scaled{};          ///< before the softcap
  std::vector<double> biased{};          ///< the whole score, hidden or not
  std::vector<double> weight{};          ///< exp(biased − log_sum_exp), hidden or not
  std::vector<double> d_weight{};        ///< d_output·value
  std::vector<double> weight_noise{};    ///< relative, of this weight alone
  std::vector<double> d_weight_noise{};  ///< absolute
  std::vector<std::uint8_t> hidden{};    ///< HiddenBits
  std::vector<std::uint8_t> kept{};      ///< 0 if dropped

  [[nodiscard]] std::size_t at(std::size_t row, std::size_t key) const {
    return row * keys.size() + key;
  }
  /// Takes the rows of another table of the same keys behind its own, and its sums over queries.
  void append(HeadTable part);
};

/// One head, some queries at a time: a table of T times S numbers is never needed at once.
class HeadForward {
 public:
  HeadForward(const Problem& problem, const Noise& noise, std::int64_t b, std::int64_t h);

  /// Queries begin to end − 1 with all keys. Sums over queries are over those that were asked for so far,
  /// so ask for one run after the other.
  [[nodiscard]] HeadTable run(std::int64_t begin, std::int64_t end);
  [[nodiscard]] const std::vector<double>& per_key() const { return per_key_; }

 private:
  void scores(HeadTable& table, std::size_t r);
  void softmax(HeadTable& table, std::size_t r);
  void backwards(HeadTable& table, std::size_t r);
  void measure_turns();
  [[nodiscard]] double turns(std::int64_t i, std::int64_t j) const;

  const Problem& p_;
  const Noise& noise_;
  std::int64_t b_, h_;
  const double *query_, *key_, *value_, *d_output_;
  std::vector<double> keys_across_, values_across_;  // [D, S], [E, S]
  std::vector<double> dots_, squares_;               // [S], of one row
  std::vector<double> score_noise_;                  // [S]
  std::vector<double> output_;                       // [E]
  std::vector<double> per_key_;                      // [S]
  double rows_term_of_first_ = 0;
  std::vector<std::pair<double, double>> turns_{};  // [T + S], norms and relative noise
};

/// The rows and keys at these places of a table.
[[nodiscard]] HeadTable part_of(const HeadTable& table, std::span<const std::int64_t> rows,
                                std::span<const std::int64_t> keys);

}  // namespace attest::check::gradients
