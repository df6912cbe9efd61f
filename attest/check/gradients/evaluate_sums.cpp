// SPDX-License-Identifier: MIT
// What the rows of a backward pass come to: sums over keys for d_query, over queries for d_key and d_value.
#include <algorithm>
#include <cmath>
#include <limits>

#include "attest/check/at_index.h"
#include "attest/check/gradients/evaluate.h"

namespace attest::check::gradients {
namespace {

std::int64_t count(const auto& list) { return static_cast<std::int64_t>(list.size()); }
double square(double x) { return x * x; }

}  // namespace

void Backward::add(const HeadTable& head, const HeadTable& first_head, Sums which) {
  Row row;
  std::vector<Term> terms;
  Columns columns;
  if (which != Sums::over_keys) {
    columns.scores.resize(sample_.keys.size() * rows_at_once);
    columns.values.resize(sample_.keys.size() * rows_at_once);
    columns.of_scores.assign(sample_.keys.size(), 0);
    columns.of_values.assign(sample_.keys.size(), 0);
  }
  for (std::size_t r = 0; r < head.rows.size(); ++r) {
    const std::int64_t i = head.rows[r];
    const bool over_keys = which != Sums::over_rows && recipe_.written_rows.has(i);
    const bool over_rows = which != Sums::over_keys && recipe_.key_rows.has(i);
    if (over_keys || over_rows) make_row(head, first_head, r, row);
    if (over_keys) add_query(head, r, row, terms);
    if (over_rows) collect(head, r, row, columns);
    const bool full = (r + 1) % rows_at_once == 0 || r + 1 == head.rows.size();
    if (full && which != Sums::over_keys) add_columns(head, columns);
  }
}

/// d_query[i] = Σ_j d_scaled·slope·key[j]
void Backward::add_query(const HeadTable& head, std::size_t r, const Row& row,
                         std::vector<Term>& terms) {
  const auto [B, H, G, T, S, D, E] = p_.shape;
  const double* keys = p_.key.data() + (head.b * G + p_.group(head.h)) * S * D;
  const double many = square(noise_.unit) * static_cast<double>(S);
  const std::int64_t first = (head.b * H + head.h) * count(sample_.rows);
  const std::int64_t place = first + head.first_place + static_cast<std::int64_t>(r);
  Totals& totals = sums_[0];
  if (row.nan_query) {
    std::fill_n(totals.value.data() + place * D, D, std::numeric_limits<double>::quiet_NaN());
  }
  terms.clear();
  for (std::int64_t j = 0; j < S; ++j) {
    const auto k = at_index(j);
    if (row.d_biased[k] == 0 && row.together[k] == 0 && row.alone[k] == 0) continue;
    if (!recipe_.query_keys.has(j)) continue;
    const double d = row.d_biased[k] * row.slope[k];
    const double cast = square(noise_.cast) + square(noise_.entry * 1.5) + many +
                        square(p_.turn_noise(false, head.b, j, noise_.unit));
    const double a = square(row.alone[k] * row.slope[k]) +
                     square(row.d_biased[k] * row.slope_noise[k]) + cast * d * d;
    terms.push_back({j, d, a, std::fabs(row.together[k] * row.slope[k])});
  }
  if (!recipe_.results[0].transposed) return add_terms(terms, keys, D, totals, place);
  for (Term& term : terms) {  // to the other end of the pair
    const std::int64_t to = first + term.from;
    term.from = head.rows[r];
    add_terms({&term, 1}, keys, D, totals, to);
  }
}

/// d_key[j] = Σ_i d_scaled·slope·query[i],  d_value[j] = Σ_i weights·d_output[i]
void Backward::collect(const HeadTable& head, std::size_t r, const Row& row, Columns& columns) {
  const auto [B, H, G, T, S, D, E] = p_.shape;
  const std::int64_t i = head.rows[r];
  const double share = static_cast<double>(G) / static_cast<double>(H);
  const double key_share = recipe_.key_heads == Gather::mean ? share : 1;
  const double value_share = recipe_.value_heads == Gather::mean ? share : 1;
  const std::int64_t each = H / G;
  const double many =
      square(noise_.unit) * static_cast<double>(T * each) + square(noise_.entry * 1.5);
  const double relative =
      square(noise_.cast) + many + square(p_.turn_noise(true, head.b, i, noise_.unit));
  const bool for_key = key_head(head.h, recipe_.key_heads).has_value();
  const bool for_value = key_head(head.h, recipe_.value_heads).has_value();
  for (std::size_t k = 0; k < head.keys.size(); ++k) {
    if (!recipe_.written_keys.has(head.keys[k])) continue;
    if (for_key && (row.d_biased[k] != 0 || row.alone[k] != 0)) {
      const double d = row.d_biased[k] * row.slope[k] * key_share;
      const double own = (square(row.alone[k]) + square(row.together[k])) * square(row.slope[k]);
      const double bent = square(row.d_biased[k] * row.slope_noise[k]);
      const double a = (own + bent) * square(key_share) + relative * d * d;
      columns.scores[k * rows_at_once + columns.of_scores[k]++] = {i, d, a};
    }
    if (for_value && row.mixed[k] != 0) {
      const double w = row.mixed[k] * value_share;
      const double a = square(row.mixed_noise[k] * value_share) + many * w * w;
      columns.values[k * rows_at_once + columns.of_values[k]++] = {i, w, a};
    }
  }
}

void Backward::add_columns(const HeadTable& head, Columns& columns) {
  const auto [B, H, G, T, S, D, E] = p_.shape;
  const double* queries = p_.query.data() + (head.b * H + head.h) * T * D;
  const double* flows = p_.dump.d_output.data() + (head.b * H + head.h) * T * E;
  struct Part {
    std::vector<Term>& terms;
    std::vector<std::size_t>& many;
    Gather gather;
    GradientOf of;
    const double* matrix;
    std::int64_t width;
  };
  for (const Part& part :
       {Part{columns.scores, columns.of_scores, recipe_.key_heads, GradientOf::key, queries, D},
        Part{columns.values, columns.of_values, recipe_.value_heads, GradientOf::value, flows,
             E}}) {
    const auto of = static_cast<std::size_t>(part.of);
    const std::int64_t heads = part.gather == Gather::apart ? H : G;
    const std::int64_t to = key_head(head.h, part.gather).value_or(0);
    const std::int64_t first = (head.b * heads + to) * count(sample_.keys);
    for (std::size_t k = 0; k < part.many.size(); ++k) {
      const auto slot = static_cast<std::int64_t>(k);
      const auto terms = std::span(part.terms).subspan(k * rows_at_once, part.many[k]);
      part.many[k] = 0;
      if (!recipe_.results[of].transposed) {
        add_terms(terms, part.matrix, part.width, sums_[of], first + slot);
        continue;
      }
      for (Term& term : terms) {  // to the other end of the pair
        const std::int64_t other = first + term.from;
        term.from = slot;
        add_terms({&term, 1}, part.matrix, part.width, sums_[of], other);
      }
    }
  }
}

/// Adds d·x of each term, eight numbers of the row at a time: their sums stay in registers meanwhile, two
/// of each kind; a third would not.
void Backward::add_terms(std::span<const Term> terms, const double* matrix, std::int64_t width,
                         Totals& totals, std::int64_t place) {
  constexpr std::int64_t lanes = 8;
  double* const value = totals.value.data() + place * width;
  double* const alone = totals.alone.data() + place * width;
  double* const together = totals.together.data() + place * width;
  const bool shared = std::ranges::any_of(terms, [](const Term& term) { return term.c != 0; });
  std::int64_t n = 0;
  for (; n + lanes <= width; n += lanes) {
    double v[lanes], a[lanes];
    std::copy_n(value + n, lanes, v);
    std::copy_n(alone + n, lanes, a);
    for (const Term& term : terms) {
      const double* const x = matrix + term.from * width + n;
      for (std::int64_t m = 0; m < lanes; ++m) v[m] += term.d * x[m];
      for (std::int64_t m = 0; m < lanes; ++m) a[m] += term.a * x[m] * x[m];
    }
    std::copy_n(v, lanes, value + n);
    std::copy_n(a, lanes, alone + n);
    if (!shared) continue;
    std::copy_n(together + n, lanes, v);
    for (const Term& term : terms) {
      const double* const x = matrix + term.from * width + n;
      for (std::int64_t m = 0; m < lanes; ++m) v[m] += term.c * std::fabs(x[m]);
    }
    std::copy_n(v, lanes, together + n);
  }
  for (; n < width; ++n) {
    for (const Term& term : terms) {
      const double x = matrix[term.from * width + n];
      value[n] += term.d * x;
      alone[n] += term.a * x * x;
      together[n] += term.c * std::fabs(x);
    }
  }
}

/// Where the head's share goes, if it is kept.
std::optional<std::int64_t> Backward::key_head(std::int64_t h, Gather gather) const {
  const std::int64_t each = p_.shape.H / p_.shape.G;
  if (gather == Gather::apart) return h;
  if (gather == Gather::tiled) return h % p_.shape.G;
  if (gather == Gather::first && h % each != 0) return std::nullopt;
  if (gather == Gather::last && h % each != each - 1) return std::nullopt;
  return h / each;
}

}  // namespace attest::check::gradients
