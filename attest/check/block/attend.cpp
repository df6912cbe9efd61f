// SPDX-License-Identifier: MIT
#include "attest/check/block/attend.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "attest/check/block/lanes.h"
#include "attest/check/block/layer_math.h"
#include "attest/check/block/pieces.h"

namespace attest::check::block {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

/// Where feature w of row t of a head lies in a table [B·T, heads·W].
struct Split {
  HeadOrder order;
  std::int64_t heads, width, rows;
  [[nodiscard]] std::size_t at(std::int64_t b, std::int64_t h, std::int64_t t,
                               std::int64_t w) const {
    const std::int64_t start = b * rows * heads * width;
    switch (order) {
      case HeadOrder::by_head:
        return static_cast<std::size_t>(start + (t * heads + h) * width + w);
      case HeadOrder::reshaped:
        return static_cast<std::size_t>(start + (h * rows + t) * width + w);
      case HeadOrder::by_feature:
        return static_cast<std::size_t>(start + (t * width + w) * heads + h);
    }
    return 0;
  }
};

std::int64_t group_of(const AttendRecipe& recipe, const AttendShape& shape, std::int64_t h) {
  if (recipe.first_kv_head) return 0;
  return recipe.tiled_heads ? h % shape.G : h / (shape.H / shape.G);
}

bool visible(AttendRecipe::Visible rule, std::int64_t i, std::int64_t j) {
  switch (rule) {
    case AttendRecipe::Visible::all:
      return true;
    case AttendRecipe::Visible::causal:
      return j <= i;
    case AttendRecipe::Visible::strict:
      return j < i;
    case AttendRecipe::Visible::one_future:
      return j <= i + 1;
    case AttendRecipe::Visible::reversed:
      return j >= i;
  }
  return true;
}

double slope_of_head(const AttendRecipe& recipe, std::int64_t heads, std::int64_t h) {
  if (!recipe.alibi) return 0;
  std::int64_t whole = 1;
  while (whole * 2 <= heads) whole *= 2;
  const auto n = static_cast<double>(recipe.alibi_geometric ? heads : whole);
  const bool extra = !recipe.alibi_geometric && h >= whole;
  const double exponent =
      extra ? 4 * static_cast<double>(2 * (h - whole) + 1) / n : 8 * static_cast<double>(h + 1) / n;
  return recipe.alibi_sign * std::pow(2, -exponent);
}

/// Numbers of heads in the order in which sums run over them, with what a product makes of their errors.
///
/// A product xy of numbers with errors has the variance x²·(V(y) + u²y²/3) + y²·V(x), and the bound
/// |x|·(b(y) + u|y|) + b(x)·(|y| + b(y)); factors are rounded by f first, in tf32.
struct Factors {
  std::vector<double> value{}, square{}, spread{}, limit{}, size{};

  Factors(std::size_t count, bool noisy) : value(count) {
    if (noisy) square.resize(count), spread.resize(count), limit.resize(count), size.resize(count);
  }
  /// As one side of a sum of so many products; `rounds` if the product's rounding is counted here.
  void put(std::size_t at, const Numbers& from, std::size_t n, const Rounding& u, double terms) {
    const double y = from.value[n];
    value[at] = y;
    if (square.empty()) return;
    const double f = 2 * u.factor, limit_y = from.bound[n] + f * std::fabs(y);
    square[at] = y * y;
    spread[at] = from.variance[n] + mean_square(f * y) + mean_square(u.sum * y);
    limit[at] = limit_y + u.sum * (terms + 1) * std::fabs(y);
    size[at] = std::fabs(y) + limit_y;
  }
};

/// One factor of all products of a sum.
struct Multiplier {
  double value = 0, square = 0, variance = 0, size = 0, bound = 0;
  Multiplier(const Numbers& from, std::size_t n, const Rounding& u) : value(from.value[n]) {
    if (!from.noisy()) return;
    square = value * value, size = std::fabs(value);
    variance = from.variance[n] + mean_square(2 * u.factor * value);
    bound = from.bound[n] + 2 * u.factor * size;
  }
};

/// Sums of products side by side: value, Σ (partial sums)², variance and bound of each.
struct Sums {
  static constexpr std::int64_t width = lanes;
  Lanes value{}, partials{}, spread{}, limit{};

  void add(const Multiplier& x, const Factors& y, std::size_t at, bool noisy) {
    add_product(value, x.value, y.value.data() + at);
    if (!noisy) return;
    partials += value * value;
    Lanes more{}, larger{};
    add_product(more, x.square, y.spread.data() + at);
    add_product(more, x.variance, y.square.data() + at);
    add_product(larger, x.size, y.limit.data() + at);
    add_product(larger, x.bound, y.size.data() + at);
    spread += more;
    limit += larger;
  }
};

std::int64_t padded(std::int64_t count) {
  return (count + Sums::width - 1) / Sums::width * Sums::width;
}

/// The scores of one query row against keys, finished.
struct Score {
  double value = 0, variance = 0, bound = 0;
};
Score finished(Score score, const AttendRecipe& recipe, double far, const Rounding& u) {
  const double c = recipe.scale;
  Score out{c * score.value, c * c * score.variance, std::fabs(c) * score.bound};
  if (recipe.softcap) {
    const double cap = *recipe.softcap;
    const double t = std::tanh(out.value / cap);
    const double slope = 1 - t * t;
    out = {cap * t, slope * slope * out.variance + mean_square(2 * u.sum * cap * t),
           out.bound + 4 * u.sum * std::fabs(cap * t)};
  }
  out.value -= far;
  const double lost = (4 * u.sum + u.store) * (std::fabs(out.value) + std::fabs(far));
  out.variance += mean_square(lost / 2);
  out.bound += lost;
  return out;
}

/// Makes weights of scores along one line of a table [B·H·T, T].
void soften(Numbers& table, const std::vector<std::size_t>& line, AttendRecipe::Form form,
            const Rounding& u) {
  SoftmaxInput row;
  for (const std::size_t n : line) {
    row.x.push_back(table.value[n]);
    if (!table.noisy()) continue;
    row.variance.push_back(table.variance[n]);
    row.bound.push_back(table.bound[n]);
  }
  bool any = false;
  for (const double x : row.x) any = any || x != -infinity;
  if (any) weigh(row, form, u);
  for (std::size_t n = 0; n < line.size(); ++n) {
    if (!any) {  // an empty row: zeros, as most libraries have it
      table.set(line[n], 0, 0, 0);
    } else if (table.noisy()) {
      table.set(line[n], row.x[n], row.variance[n], row.bound[n]);
    } else {
      table.value[line[n]] = row.x[n];
    }
  }
}

void soften_all(Numbers& table, const RowSet& rows, const AttendRecipe& recipe,
                const AttendShape& s, const Rounding& u) {
  const AttendRecipe::Over over = recipe.softmax;
  if (over == AttendRecipe::Over::nothing) {
    for (std::size_t n = 0; n < table.value.size(); ++n) {
      if (table.value[n] == -infinity) table.set(n, 0, 0, 0);
    }
    return;
  }
  if (over == AttendRecipe::Over::keys) {
    in_pieces(table.rows, s.T * 32, [&](Range range) {
      std::vector<std::size_t> line(static_cast<std::size_t>(s.T));
      for (std::int64_t r = range.begin; r < range.end; ++r) {
        std::iota(line.begin(), line.end(), table.at(r, 0));
        soften(table, line, recipe.form, u);
      }
    });
    return;
  }
  const std::vector<std::int64_t> places = rows.places(s.B * s.H * s.T);
  const bool heads = over == AttendRecipe::Over::heads;
  for (std::int64_t b = 0; b < s.B; ++b) {
    for (std::int64_t first = 0; first < (heads ? s.T : s.H); ++first) {
      for (std::int64_t second = 0; second < s.T; ++second) {
        std::vector<std::size_t> line;
        for (std::int64_t third = 0; third < (heads ? s.H : s.T); ++third) {
          const std::int64_t row =
              heads ? (b * s.H + third) * s.T + first : (b * s.H + first) * s.T + third;
          const std::int64_t place = places[static_cast<std::size_t>(row)];
          if (place >= 0) line.push_back(table.at(place, second));
        }
        if (!line.empty()) soften(table, line, recipe.form, u);
      }
    }
  }
}

/// One head of a table as factors: feature by feature with its rows beside one another, or row by row.
enum class Along { rows, features };
Factors factors_of(const RowTable& table, const Split& split, std::int64_t b, std::int64_t g,
                   Along along, const Rounding& u) {
  // So many products are added up.
  const auto terms = static_cast<double>(along == Along::rows ? split.width : split.rows);
  const std::int64_t rows = table.rows.all
                                ? table.numbers.rows
                                : std::max((b + 1) * split.rows, table.rows.ids.back() + 1);
  const std::int64_t T = split.rows, W = split.width;
  const std::int64_t wide = padded(along == Along::rows ? T : W);
  Factors out(static_cast<std::size_t>((along == Along::rows ? W : T) * wide),
              table.numbers.noisy());
  const auto columns = static_cast<std::size_t>(split.heads * W);
  const std::vector<std::int64_t> places = table.rows.places(rows);
  for (std::int64_t n = 0; n < T * W; ++n) {
    const std::int64_t t = n / W, w = n % W;
    const std::size_t from = split.at(b, g, t, w);
    const std::int64_t row = places[from / columns];
    if (row < 0) continue;
    const std::int64_t to = along == Along::rows ? w * wide + t : t * wide + w;
    out.put(static_cast<std::size_t>(to), table.numbers, table.numbers.at(row, 0) + from % columns,
            u, terms);
  }
  return out;
}

/// The scores of one query: its features, and the keys that it is multiplied with.
struct QueryRow {
  std::vector<Multiplier> features{};
  std::int64_t position = 0;
  double slope = 0;
};

void score_line(const QueryRow& query, const Factors& keys, const AttendRecipe& recipe,
                const Rounding& u, Numbers& out, std::int64_t at) {
  const std::int64_t T = out.columns, wide = padded(T), i = query.position;
  const auto seen = [&](std::int64_t j) {
    return recipe.after_softmax || visible(recipe.visible, i, j);
  };
  for (std::int64_t first = 0; first < wide; first += Sums::width) {
    const std::int64_t last = std::min(first + Sums::width, T);
    bool any = false;
    for (std::int64_t j = first; j < last; ++j) any = any || seen(j);
    Sums sums;
    auto from = static_cast<std::size_t>(first);
    for (std::size_t d = 0; any && d < query.features.size(); ++d) {
      sums.add(query.features[d], keys, from, out.noisy());
      from += static_cast<std::size_t>(wide);
    }
    for (std::int64_t j = first; j < last; ++j) {
      const std::size_t place = out.at(at, j);
      if (!seen(j)) {
        out.value[place] = -infinity;
        continue;
      }
      const auto n = static_cast<std::size_t>(j - first);
      const double far = query.slope * std::fabs(static_cast<double>(i - j));
      const Score score = finished(
          {sums.value[n], sums.spread[n] + mean_square(u.sum) * sums.partials[n], sums.limit[n]},
          recipe, far, u);
      out.set(place, score.value, score.variance, score.bound);
    }
  }
}

/// One row of weights times one head's values.
void mix_line(const Numbers& weights, std::int64_t at, const Factors& values, const Rounding& u,
              Numbers& out) {
  const std::int64_t T = weights.columns, E = out.columns, wide = padded(E);
  for (std::int64_t first = 0; first < wide; first += Sums::width) {
    Sums sums;
    for (std::int64_t j = 0; j < T; ++j) {
      const std::size_t n = weights.at(at, j);
      const auto from = static_cast<std::size_t>(j * wide + first);
      if (weights.value[n] != 0) {
        sums.add({weights, n, u}, values, from, out.noisy());
        continue;
      }
      // What is hidden has no part, whatever stands behind it; what has vanished may err.
      if (!out.noisy()) continue;
      sums.partials += sums.value * sums.value;
      if (weights.bound[n] == 0) continue;
      for (std::size_t k = 0; k < Sums::width; ++k) {
        sums.spread[k] += weights.variance[n] * values.square[from + k];
        sums.limit[k] += weights.bound[n] * std::fabs(values.value[from + k]);
      }
    }
    for (std::int64_t e = first; e < std::min(first + Sums::width, E); ++e) {
      const auto k = static_cast<std::size_t>(e - first);
      out.set(out.at(at, e), sums.value[k], sums.spread[k] + mean_square(u.sum) * sums.partials[k],
              sums.limit[k]);
    }
  }
}

/// Calls work(head, first, last) for the rows of each head, which stand together.
template <class Work>
void for_each_head(const RowSet& rows, std::int64_t count, std::int64_t T, const Work& work) {
  for (std::int64_t r = 0; r < count;) {
    const std::int64_t head = rows.at(r) / T;
    std::int64_t end = r;
    while (end < count && rows.at(end) / T == head) ++end;
    work(head, r, end);
    r = end;
  }
}

}  // namespace

Numbers attention_weights(const AttendInputs& in, const RowSet& rows, const AttendRecipe& recipe,
                          const AttendShape& shape, const Rounding& u) {
  const std::int64_t H = shape.H, T = shape.T, D = shape.D;
  const Numbers& q = in.query.numbers;
  Numbers out(rows.count(shape.B * H * T), T, q.noisy());
  const Split queries{recipe.query_heads, H, D, T}, keys{recipe.key_heads, shape.G, D, T};
  const std::vector<std::int64_t> query_places = in.query.rows.places(shape.B * T);
  for_each_head(rows, out.rows, T, [&](std::int64_t head, std::int64_t first, std::int64_t last) {
    const std::int64_t b = head / H, h = head % H;
    const Factors factors = factors_of(in.key, keys, b, group_of(recipe, shape, h), Along::rows, u);
    const double slope = slope_of_head(recipe, H, h);
    in_pieces(last - first, T * D, [&](Range range) {
      for (std::int64_t at = first + range.begin; at < first + range.end; ++at) {
        QueryRow query{{}, rows.at(at) % T, slope};
        for (std::int64_t d = 0; d < D; ++d) {
          const std::size_t from = queries.at(b, h, query.position, d);
          const auto columns = static_cast<std::size_t>(H * D);
          query.features.emplace_back(q, q.at(query_places[from / columns], 0) + from % columns, u);
        }
        score_line(query, factors, recipe, u, out, at);
      }
    });
  });
  soften_all(out, rows, recipe, shape, u);
  for (std::int64_t r = 0; recipe.after_softmax && r < out.rows; ++r) {
    for (std::int64_t j = 0; j < T; ++j) {
      if (!visible(recipe.visible, rows.at(r) % T, j)) out.set(out.at(r, j), 0, 0, 0);
    }
  }
  return scaled(std::move(out), recipe.dropout_factor, u);
}

Numbers mixed_heads(const RowTable& weights, const RowTable& value, const AttendRecipe& recipe,
                    const AttendShape& shape, const Rounding& u) {
  const std::int64_t H = shape.H, T = shape.T, E = shape.E;
  Numbers out(weights.numbers.rows, E, weights.numbers.noisy());
  const Split values{recipe.value_heads, shape.G, E, T};
  for_each_head(
      weights.rows, out.rows, T, [&](std::int64_t head, std::int64_t first, std::int64_t last) {
        const Factors factors = factors_of(value, values, head / H,
                                           group_of(recipe, shape, head % H), Along::features, u);
        in_pieces(last - first, T * E, [&](Range range) {
          for (std::int64_t at = first + range.begin; at < first + range.end; ++at) {
            mix_line(weights.numbers, at, factors, u, out);
          }
        });
      });
  store(out, u);
  return out;
}

Numbers merged_heads(const RowTable& heads, const RowSet& rows, const AttendRecipe& recipe,
                     const AttendShape& shape) {
  const auto& [B, H, G, T, D, E] = shape;
  Numbers out(rows.count(B * T), H * E, heads.numbers.noisy());
  const std::vector<std::int64_t> places = rows.places(B * T);
  const Split merged{recipe.merge, H, E, T};
  for (std::int64_t n = 0; n < heads.numbers.rows; ++n) {
    const std::int64_t r = heads.rows.at(n);
    for (std::int64_t e = 0; e < E; ++e) {
      const std::size_t to = merged.at(r / (H * T), r / T % H, r % T, e);
      const std::int64_t row = places[to / static_cast<std::size_t>(H * E)];
      if (row < 0) continue;
      const std::size_t from = heads.numbers.at(n, e);
      out.set(out.at(row, 0) + to % static_cast<std::size_t>(H * E), heads.numbers.value[from],
              heads.numbers.variance_at(from), heads.numbers.bound_at(from));
    }
  }
  return out;
}

Numbers repacked(const Numbers& query, const Numbers& key, const Numbers& value, int which,
                 Packing packing, const AttendShape& shape) {
  const auto& [B, H, G, T, D, E] = shape;
  Numbers out(query.rows, H * D, query.noisy());
  const Numbers* const parts[] = {&query, &key, &value};
  for (std::int64_t n = 0; n < H * D; ++n) {
    const std::int64_t h = n / D, d = n % D;
    std::int64_t column = 0;  // of [3][H][D], where the program finds number (which, h, d)
    switch (packing) {
      case Packing::blocked:
        column = which * H * D + n;
        break;
      case Packing::read_by_head:
        column = (h * 3 + which) * D + d;
        break;
      case Packing::read_interleaved:
        column = n * 3 + which;
        break;
      case Packing::by_head_read_blocked: {
        const std::int64_t at = which * H * D + n;  // in [H][3][D]
        column = (at / D % 3) * H * D + at / (3 * D) * D + at % D;
        break;
      }
      case Packing::interleaved_read_blocked: {
        const std::int64_t at = which * H * D + n;  // in [H][D][3]
        column = (at % 3) * H * D + at / 3;
        break;
      }
    }
    const Numbers& part = *parts[column / (H * D)];
    for (std::int64_t r = 0; r < out.rows; ++r) {
      const std::size_t from = part.at(r, column % (H * D));
      out.set(out.at(r, n), part.value[from], part.variance_at(from), part.bound_at(from));
    }
  }
  return out;
}

}  // namespace attest::check::block
