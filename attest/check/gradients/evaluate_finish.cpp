// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cmath>
#include <utility>

#include "attest/base/dtype.h"
#include "attest/check/at_index.h"
#include "attest/check/gradients/evaluate.h"

namespace attest::check::gradients {
namespace {

std::int64_t count(const auto& list) { return static_cast<std::int64_t>(list.size()); }
double square(double x) { return x * x; }

/// The cells of d_bias that a sample has: which rows and keys, −1 for a broadcast axis.
struct BiasCells {
  std::int64_t batches = 0, heads = 0;
  std::vector<std::int64_t> rows{}, keys{};
  [[nodiscard]] std::int64_t place(std::int64_t b, std::int64_t h, std::int64_t row,
                                   std::int64_t key) const {
    return ((((batches == 1 ? 0 : b) * heads) + (heads == 1 ? 0 : h)) * count(rows) + row) *
               count(keys) +
           key;
  }
};

bool apart(const GradientRecipe& recipe) { return recipe.bias_batch == Gather::apart; }

bool rows_come_together(const Problem& p, const GradientRecipe& recipe) {
  return !apart(recipe) && p.bias_extent(2) == 1 && p.shape.T != 1;
}

BiasCells bias_cells(const Problem& p, const Sample& sample, const GradientRecipe& recipe) {
  if (!p.dump.claim.call.bias) return {};
  const auto extent = [&](std::size_t axis, std::int64_t whole) {
    return apart(recipe) ? whole : p.bias_extent(axis);
  };
  BiasCells out{.batches = extent(0, p.shape.B), .heads = extent(1, p.shape.H)};
  const bool together = rows_come_together(p, recipe);
  out.rows = together ? std::vector<std::int64_t>{0} : sample.rows;
  if (extent(3, p.shape.S) == 1) {
    out.keys = {0};
  } else if (together) {
    out.keys = sample.keys;
  } else {
    out.keys = everything(p.shape).keys;
  }
  return out;
}

/// Whether a member of a broadcast axis counts, and how much.
double share_of(Gather gather, std::int64_t member, std::int64_t members) {
  if (gather == Gather::first) return member == 0 ? 1 : 0;
  if (gather == Gather::last) return member == members - 1 ? 1 : 0;
  return gather == Gather::mean ? 1 / static_cast<double>(members) : 1;
}

/// A dense tensor's cells moved about, as a program mislays them: new cell n is old cell from(n).
template <class From>
void rearrange(Cells& cells, From from) {
  Cells out = cells;
  for (std::size_t n = 0; n < cells.value.size(); ++n) {
    const std::size_t m = from(n);
    out.value[n] = cells.value[m];
    out.noise[n] = cells.noise[m];
  }
  cells = std::move(out);
}

void lay_out(Cells& cells, Layout layout, std::int64_t heads, std::int64_t rows,
             std::int64_t width) {
  if (layout == Layout::right) return;
  rearrange(cells, [&](std::size_t n) {
    const auto flat = static_cast<std::int64_t>(n);
    const std::int64_t d = flat % width, b = flat / (width * heads * rows);
    if (layout == Layout::heads_reversed) {
      const std::int64_t i = flat / width % rows, h = flat / (width * rows) % heads;
      return at_index(((b * heads + heads - 1 - h) * rows + i) * width + d);
    }
    const std::int64_t h = flat / width % heads, i = flat / (width * heads) % rows;
    return at_index(((b * heads + h) * rows + i) * width + d);
  });
}

void pile_up(Cells& cells, std::int64_t batches) {
  const std::size_t each = cells.value.size() / at_index(batches);
  for (std::size_t n = each; n < cells.value.size(); ++n) {
    cells.value[n] += cells.value[n - each];
    cells.noise[n] = std::hypot(cells.noise[n], cells.noise[n - each]);
  }
}

double narrowed(double x, DType to) {
  return to == DType::bf16 ? to_double(to_bfloat16(x)) : to_double(to_half(x));
}

/// The factor of one result.
double factor_of(const Problem& p, const ResultRecipe& result, GradientOf of) {
  if (of != GradientOf::query && of != GradientOf::key) return result.factor;
  const double size = std::pow(std::fabs(p.scale), 1 + result.scale_power);
  return result.factor * std::copysign(size, p.scale);
}

}  // namespace

/// bias, d_bias: the sum over the axes that the bias does not have. d_sink likewise over batch and rows.
void Backward::add_shared(const Views& views) {
  const auto& call = p_.dump.claim.call;
  Row row;
  if (call.bias) {
    const BiasCells cells = bias_cells(p_, sample_, recipe_);
    const bool together = rows_come_together(p_, recipe_);
    const HeadTable& head = together ? views.by_keys : views.by_rows;
    const HeadTable& first = together ? views.first_by_keys : views.first_by_rows;
    double share = 1;
    if (cells.batches == 1) share *= share_of(recipe_.bias_batch, head.b, p_.shape.B);
    if (cells.heads == 1) share *= share_of(recipe_.bias_heads, head.h, p_.shape.H);
    for (std::size_t r = 0; r < head.rows.size() && share != 0; ++r) {
      const double part =
          together ? share * share_of(recipe_.bias_rows, head.rows[r], p_.shape.T) : share;
      if (part == 0 || !recipe_.written_rows.has(head.rows[r])) continue;
      make_row(head, first, r, row);
      const std::int64_t slot = together ? 0 : head.first_place + static_cast<std::int64_t>(r);
      for (std::size_t k = 0; k < head.keys.size(); ++k) {
        if (!recipe_.written_keys.has(head.keys[k])) continue;
        double factor = part;
        double d = row.d_biased[k];
        if (recipe_.bias == BiasBack::scaled) factor *= row.slope[k] * p_.scale;
        if (recipe_.bias == BiasBack::after_cap) factor *= row.slope[k];
        if (recipe_.bias == BiasBack::before_softmax) d = row.softmax_flow[k];
        const std::int64_t key = count(cells.keys) == 1 ? 0 : static_cast<std::int64_t>(k);
        const std::size_t n = at_index(cells.place(head.b, head.h, slot, key));
        sums_[3].value[n] += d * factor;
        const double noise = recipe_.bias == BiasBack::before_softmax
                                 ? head.d_weight_noise[head.at(r, k)] * p_.keep_factor
                                 : row.alone[k] + row.together[k];
        sums_[3].alone[n] += square(noise * factor) + square(4 * noise_.unit * d * factor);
      }
    }
  }
  const HeadTable& by_keys = views.by_keys;
  for (std::size_t r = 0; r < by_keys.rows.size() && !call.sink.empty(); ++r) {
    const double share = share_of(recipe_.sink_batch, by_keys.b, p_.shape.B);
    if (share == 0) continue;
    make_row(by_keys, views.first_by_keys, r, row);
    const std::size_t n = at_index(by_keys.h);
    sums_[4].value[n] += row.sink * share;
    sums_[4].alone[n] +=
        square(row.sink_noise * share) +
        square(noise_.unit * row.sink * share) * static_cast<double>(p_.shape.T * p_.shape.B);
  }
}

/// Query and key as they were before rotation: the gradients turn back.
void Backward::turn_rows(Cells& cells, GradientOf of) const {
  const Turn turn = recipe_.results[static_cast<std::size_t>(of)].turn;
  if (!p_.dump.claim.rope || turn == Turn::none) return;
  const bool query = of == GradientOf::query;
  const auto& places = query ? sample_.rows : sample_.keys;
  const std::int64_t width = p_.shape.D;
  const std::int64_t rows = count(cells.value) / width;
  const std::int64_t each = rows / p_.shape.B;
  for (std::int64_t n = 0; n < rows; ++n) {
    const std::int64_t index = places[at_index(n % count(places))];
    const auto row = std::span(cells.value).subspan(at_index(n * width), at_index(width));
    const auto noise = std::span(cells.noise).subspan(at_index(n * width), at_index(width));
    p_.turn(row, p_.rope_position(query, n / each, index), turn == Turn::back);
    double largest = 0, size = 0;
    for (std::size_t d = 0; d < row.size(); ++d) {
      largest = std::max(largest, noise[d]);
      size = std::max(size, std::fabs(row[d]));
    }
    const double turned = p_.turn_noise(query, n / each, index, noise_.unit) * size;
    for (double& x : noise) x = largest * 1.5 + turned;
  }
}

Cells Backward::cells_of(const Totals& sums, GradientOf of) const {
  const ResultRecipe& result = recipe_.results[static_cast<std::size_t>(of)];
  const double factor = factor_of(p_, result, of);
  const auto [B, H, G, T, S, D, E] = p_.shape;
  const std::int64_t each = H / G;
  const double terms =
      of == GradientOf::query ? static_cast<double>(S) : static_cast<double>(T * each);
  const double added = noise_.unit * std::sqrt(terms);
  Cells out{sums.value, std::vector<double>(sums.value.size())};
  for (std::size_t n = 0; n < out.value.size(); ++n) {
    out.noise[n] = std::sqrt(sums.alone[n] + square(added * out.value[n])) + sums.together[n];
  }
  if (of == GradientOf::query || of == GradientOf::key) turn_rows(out, of);
  for (std::size_t n = 0; n < out.value.size(); ++n) {
    double& x = out.value[n];
    x *= factor;
    out.noise[n] *= std::fabs(factor);
    if (result.rounded) {
      const double exact = x;
      x = narrowed(x, *result.rounded);
      out.noise[n] += (*result.rounded == DType::bf16 ? 0x1p-8 : 0x1p-11) / 24 * std::fabs(exact);
    }
    // What is stored is off by one rounding at most, half of it being its deviation.
    out.noise[n] = std::hypot(out.noise[n], noise_.store * std::fabs(x) / 2);
  }
  return out;
}

AllCells Backward::finish() {
  AllCells out;
  for (std::size_t n = 0; n < out.size(); ++n) {
    out[n] = cells_of(sums_[n], static_cast<GradientOf>(n));
  }
  mislay(p_.shape, sample_, recipe_, out);
  return out;
}

void mislay(const lab::AttentionShape& shape, const Sample& sample, const GradientRecipe& recipe,
            AllCells& cells) {
  const auto [B, H, G, T, S, D, E] = shape;
  const std::int64_t heads[] = {H, recipe.key_heads == Gather::apart ? H : G,
                                recipe.value_heads == Gather::apart ? H : G};
  const std::int64_t rows[] = {count(sample.rows), count(sample.keys), count(sample.keys)};
  const std::int64_t widths[] = {D, D, E};
  for (std::size_t n = 0; n < 3; ++n) {
    const ResultRecipe& result = recipe.results[n];
    lay_out(cells[n], result.layout, heads[n], rows[n], widths[n]);
    if (result.batches_pile_up) pile_up(cells[n], B);
  }
  const AllCells before = cells;
  for (std::size_t n = 0; n < 3; ++n) {
    if (const auto& from = recipe.results[n].taken_from) cells[n] = before[at_index(*from)];
  }
}

bool only_mislays(GradientRecipe recipe) {
  for (ResultRecipe& result : recipe.results) {
    result.layout = Layout::right;
    result.batches_pile_up = false;
    result.taken_from.reset();
  }
  return recipe == GradientRecipe{};
}

std::optional<AllCells> evaluate(const Workspace& workspace, const GradientRecipe& recipe) {
  const Problem& p = workspace.problem;
  // One number for all queries and keys: no sample has it.
  const bool whole_bias =
      p.dump.claim.call.bias && p.bias_extent(2) == 1 && p.shape.T != 1 && p.bias_extent(3) == 1;
  bool needs_all = recipe.rows == RowsTerm::again || recipe.empty == EmptyBack::uniform ||
                   recipe.empty == EmptyBack::uniform_values;
  for (const ResultRecipe& result : recipe.results) {
    needs_all = needs_all || result.layout == Layout::queries_before_heads || result.transposed;
  }
  for (const std::size_t query_or_key : {0U, 1U, 2U}) {
    const auto& from = recipe.results[query_or_key].taken_from;
    needs_all = needs_all || (from && (*from == 0) != (query_or_key == 0));
  }
  if (needs_all && !workspace.whole()) return std::nullopt;
  Backward back(p, workspace.noise, workspace.sample, recipe);
  const auto& by_keys = workspace.whole() ? workspace.row_tables : workspace.key_tables;
  for (std::size_t n = 0; n < workspace.row_tables.size(); ++n) {
    const std::size_t first = n - n % at_index(p.shape.H);
    if (workspace.whole()) {
      back.add(by_keys[n], by_keys[first], Backward::Sums::both);
    } else {
      back.add(workspace.row_tables[n], workspace.row_tables[first], Backward::Sums::over_keys);
      back.add(by_keys[n], by_keys[first], Backward::Sums::over_rows);
    }
    back.add_shared(
        {workspace.row_tables[n], by_keys[n], workspace.row_tables[first], by_keys[first]});
  }
  AllCells out = back.finish();
  if (whole_bias && !workspace.whole()) out[3] = {};
  return out;
}

Shape shape_of(const Problem& problem, const GradientRecipe& recipe, GradientOf of) {
  const auto [B, H, G, T, S, D, E] = problem.shape;
  switch (of) {
    case GradientOf::query:
      return {B, H, T, D};
    case GradientOf::key:
      return {B, recipe.key_heads == Gather::apart ? H : G, S, D};
    case GradientOf::value:
      return {B, recipe.value_heads == Gather::apart ? H : G, S, E};
    case GradientOf::bias:
      if (apart(recipe)) return {B, H, T, S};
      return {problem.bias_extent(0), problem.bias_extent(1), problem.bias_extent(2),
              problem.bias_extent(3)};
    case GradientOf::sink:
      return {count(problem.dump.claim.call.sink)};
  }
  return {};
}

std::vector<std::size_t> places(const Problem& problem, const Sample& sample,
                                const GradientRecipe& recipe, GradientOf of) {
  std::vector<std::size_t> out;
  const Shape shape = shape_of(problem, recipe, of);
  if (of == GradientOf::sink) {
    for (std::int64_t n = 0; n < shape[0]; ++n) out.push_back(at_index(n));
    return out;
  }
  std::vector<std::int64_t> rows, inner;
  if (of == GradientOf::bias) {
    const BiasCells cells = bias_cells(problem, sample, recipe);
    rows = cells.rows;
    inner = cells.keys;
    if (shape[0] == 0) return out;
  } else {
    rows = of == GradientOf::query ? sample.rows : sample.keys;
    for (std::int64_t d = 0; d < shape[3]; ++d) inner.push_back(d);
  }
  for (std::int64_t head = 0; head < shape[0] * shape[1]; ++head) {
    for (const std::int64_t i : rows) {
      for (const std::int64_t d : inner)
        out.push_back(at_index((head * shape[2] + i) * shape[3] + d));
    }
  }
  return out;
}

}  // namespace attest::check::gradients
