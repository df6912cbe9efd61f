// SPDX-License-Identifier: MIT
#include "attest/check/block/attend.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "attest/check/block/layer_math.h"

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

/// One score with its error.
struct Score {
  double value = 0, variance = 0, bound = 0;
};

struct Scores {
  const AttendInputs& in;
  const AttendRecipe& recipe;
  const AttendShape& shape;
  const Rounding& u;

  [[nodiscard]] Score at(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
    const Split queries{recipe.query_heads, shape.H, shape.D, shape.T};
    const Split keys{recipe.key_heads, shape.G, shape.D, shape.T};
    const std::int64_t g = group_of(recipe, shape, h);
    const Numbers& q = *in.query;
    const Numbers& k = *in.key;
    NoisySum sum;
    const double f = 2 * u.factor;
    for (std::int64_t d = 0; d < shape.D; ++d) {
      const std::size_t m = queries.at(b, h, i, d), n = keys.at(b, g, j, d);
      const double x = q.value[m], y = k.value[n];
      const double ex = q.bound_at(m) + f * std::fabs(x), ey = k.bound_at(n) + f * std::fabs(y);
      sum.add(x * y,
              x * x * (k.variance_at(n) + mean_square(f * y)) +
                  y * y * (q.variance_at(m) + mean_square(f * x)) + mean_square(u.sum * x * y),
              std::fabs(x) * ey + std::fabs(y) * ex + ex * ey + u.sum * std::fabs(x * y));
    }
    const double c = recipe.scale;
    Score out{c * sum.value, c * c * sum.variance(u), std::fabs(c) * sum.bound(u)};
    if (recipe.softcap) {
      const double cap = *recipe.softcap;
      const double t = std::tanh(out.value / cap);
      const double slope = 1 - t * t;
      out = {cap * t, slope * slope * out.variance + mean_square(2 * u.sum * cap * t),
             out.bound + 4 * u.sum * std::fabs(cap * t)};
    }
    const double far = slope_of_head(recipe, shape.H, h) * std::fabs(static_cast<double>(i - j));
    out.value -= far;
    const double lost = 4 * u.sum * (std::fabs(out.value) + std::fabs(far)) +
                        u.store * (std::fabs(out.value) + std::fabs(far));
    out.variance += mean_square(lost / 2);
    out.bound += lost;
    return out;
  }
};

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

void soften_all(Numbers& table, const AttendRecipe& recipe, const AttendShape& s,
                const Rounding& u) {
  const AttendRecipe::Over over = recipe.softmax;
  if (over == AttendRecipe::Over::nothing) {
    for (std::size_t n = 0; n < table.value.size(); ++n) {
      if (table.value[n] == -infinity) table.set(n, 0, 0, 0);
    }
    return;
  }
  const auto place = [&](std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) {
    return table.at((b * s.H + h) * s.T + i, j);
  };
  const bool heads = over == AttendRecipe::Over::heads;
  for (std::int64_t b = 0; b < s.B; ++b) {
    for (std::int64_t first = 0; first < (heads ? s.T : s.H); ++first) {
      for (std::int64_t second = 0; second < s.T; ++second) {
        std::vector<std::size_t> line;
        for (std::int64_t third = 0; third < (heads ? s.H : s.T); ++third) {
          line.push_back(heads                                 ? place(b, third, first, second)
                         : over == AttendRecipe::Over::queries ? place(b, first, third, second)
                                                               : place(b, first, second, third));
        }
        soften(table, line, recipe.form, u);
      }
    }
  }
}

}  // namespace

Numbers attention_weights(const AttendInputs& in, const AttendRecipe& recipe,
                          const AttendShape& shape, const Rounding& u) {
  const auto& [B, H, G, T, D, E] = shape;
  Numbers out(B * H * T, T, in.query->noisy() || in.key->noisy());
  const Scores scores{in, recipe, shape, u};
  for (std::int64_t r = 0; r < out.rows; ++r) {
    for (std::int64_t j = 0; j < T; ++j) {
      const bool seen = visible(recipe.visible, r % T, j);
      const std::size_t at = out.at(r, j);
      if (!seen && !recipe.after_softmax) {
        out.value[at] = -infinity;
        continue;
      }
      const Score score = scores.at(r / (H * T), r / T % H, r % T, j);
      out.set(at, score.value, score.variance, score.bound);
    }
  }
  soften_all(out, recipe, shape, u);
  for (std::int64_t r = 0; recipe.after_softmax && r < out.rows; ++r) {
    for (std::int64_t j = 0; j < T; ++j) {
      if (!visible(recipe.visible, r % T, j)) out.set(out.at(r, j), 0, 0, 0);
    }
  }
  return scaled(std::move(out), recipe.dropout_factor, u);
}

Numbers mixed_heads(const Numbers& weights, const Numbers& value, const AttendRecipe& recipe,
                    const AttendShape& shape, const Rounding& u) {
  const auto& [B, H, G, T, D, E] = shape;
  Numbers out(B * H * T, E, weights.noisy() || value.noisy());
  const Split values{recipe.value_heads, G, E, T};
  const double f = 2 * u.factor;
  for (std::int64_t r = 0; r < out.rows; ++r) {
    const std::int64_t b = r / (H * T), g = group_of(recipe, shape, r / T % H);
    for (std::int64_t e = 0; e < E; ++e) {
      NoisySum sum;
      for (std::int64_t j = 0; j < T; ++j) {
        const std::size_t m = weights.at(r, j), n = values.at(b, g, j, e);
        const double w = weights.value[m], v = value.value[n];
        if (w == 0) {
          const double most = weights.bound_at(m);
          sum.add(0, v * v * weights.variance_at(m), most == 0 ? 0 : most * std::fabs(v));
          continue;
        }
        const double ew = weights.bound_at(m) + f * w, ev = value.bound_at(n) + f * std::fabs(v);
        sum.add(w * v,
                w * w * (value.variance_at(n) + mean_square(f * v)) +
                    v * v * (weights.variance_at(m) + mean_square(f * w)) +
                    mean_square(u.sum * w * v),
                std::fabs(w) * ev + std::fabs(v) * ew + ew * ev + u.sum * std::fabs(w * v));
      }
      out.set(out.at(r, e), sum.value, sum.variance(u), sum.bound(u));
    }
  }
  store(out, u);
  return out;
}

Numbers merged_heads(const Numbers& heads, const AttendRecipe& recipe, const AttendShape& shape) {
  const auto& [B, H, G, T, D, E] = shape;
  Numbers out(B * T, H * E, heads.noisy());
  const Split merged{recipe.merge, H, E, T};
  for (std::int64_t r = 0; r < heads.rows; ++r) {
    for (std::int64_t e = 0; e < E; ++e) {
      const std::size_t from = heads.at(r, e);
      out.set(merged.at(r / (H * T), r / T % H, r % T, e), heads.value[from],
              heads.variance_at(from), heads.bound_at(from));
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
