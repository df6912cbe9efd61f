// SPDX-License-Identifier: MIT
// x·W + b as the plain loop computes it, several numbers of a row beside one another.
#include <algorithm>
#include <cmath>

#include "attest/check/block/lanes.h"
#include "attest/check/block/layer_math.h"
#include "attest/check/block/pieces.h"

namespace attest::check::block {
namespace {

constexpr std::int64_t width = lanes;

/// `width` columns of a matrix, row by row; what is beyond its edge is 0.
struct Columns {
  std::vector<double> factor{};  // [inner, width]
  std::vector<double> square{};
  std::vector<double> size{};

  Columns(const Tensor<double>& weight, bool transposed, std::int64_t first, bool noisy) {
    const std::int64_t inner = weight.extent(0), outer = weight.extent(1);
    factor.resize(static_cast<std::size_t>(inner * width));
    for (std::int64_t i = 0; i < inner; ++i) {
      for (std::int64_t o = first; o < std::min(first + width, outer); ++o) {
        factor[static_cast<std::size_t>(i * width + o - first)] =
            weight.data()[transposed ? o * outer + i : i * outer + o];
      }
    }
    if (!noisy) return;
    square = size = factor;
    for (double& each : square) each *= each;
    for (double& each : size) each = std::fabs(each);
  }
};

/// What an element of x does to the errors of the sums that it goes into.
struct Element {
  double value = 0, spread = 0, limit = 0;
};

struct Sums {
  Lanes value{}, partials{}, spread{}, limit{};
};

void multiply(std::span<const double> x, const Columns& columns, Sums& out) {
  Lanes value{};
  const double* w = columns.factor.data();
  for (std::size_t i = 0; i < x.size(); ++i, w += width) add_product(value, x[i], w);
  out.value = value;
}

void multiply(std::span<const Element> x, const Columns& columns, Sums& out) {
  Lanes value{}, partials{}, spread{}, limit{};
  const double* w = columns.factor.data();
  const double* w2 = columns.square.data();
  const double* w1 = columns.size.data();
  for (std::size_t i = 0; i < x.size(); ++i, w += width, w2 += width, w1 += width) {
    add_product(value, x[i].value, w);
    partials += value * value;
    add_product(spread, x[i].spread, w2);
    add_product(limit, x[i].limit, w1);
  }
  out = {value, partials, spread, limit};
}

/// Few rows without errors: the matrix is read once, as it lies.
void few_rows(const Numbers& x, const Tensor<double>& weight, Range columns, Numbers& out) {
  const std::int64_t inner = weight.extent(0), outer = weight.extent(1);
  for (std::int64_t i = 0; i < inner; ++i) {
    const double* w = weight.data() + i * outer;
    for (std::int64_t r = 0; r < x.rows; ++r) {
      const double value = x.value[x.at(r, i)];
      double* y = out.value.data() + out.at(r, 0);
      for (std::int64_t o = columns.begin; o < columns.end; ++o) y[o] += value * w[o];
    }
  }
}

}  // namespace

Numbers project(const Numbers& x, const LinearRecipe& recipe, const Tensor<double>& weight,
                const Tensor<double>& bias, const Rounding& u) {
  if (x.empty()) return {};
  const std::int64_t inner = weight.extent(0);
  const std::int64_t outer = weight.extent(1);
  if (recipe.missing) return inner == outer ? x : Numbers{};
  if (x.columns != inner || (recipe.transposed && inner != outer)) return {};
  Numbers out(x.rows, outer, x.noisy());
  const double bias_share = recipe.without_bias || bias.size() == 0 ? 0 : recipe.bias_twice ? 2 : 1;
  constexpr std::int64_t few = 16;
  if (!x.noisy() && !recipe.transposed && x.rows <= few) {
    in_pieces(outer, x.rows * inner, [&](Range range) { few_rows(x, weight, range, out); });
    for (std::size_t n = 0; bias_share != 0 && n < out.value.size(); ++n) {
      out.value[n] += bias_share * bias.elements()[n % static_cast<std::size_t>(outer)];
    }
    return out;
  }
  // The products' roundings, and those of all partial sums, which are no larger than Σ |x·w|.
  std::vector<Element> elements(x.noisy() ? x.value.size() : 0);
  for (std::size_t n = 0; n < elements.size(); ++n) {
    const double value = x.value[n];
    elements[n] = {
        value, x.variance[n] + mean_square(2 * u.factor * value) + mean_square(u.sum * value),
        x.bound[n] + (2 * u.factor + u.sum * (static_cast<double>(inner) + 1)) * std::fabs(value)};
  }
  const std::int64_t tiles = (outer + width - 1) / width;
  const auto multiply_tile = [&](std::int64_t tile, Range rows) {
    const std::int64_t first = tile * width;
    const auto count = static_cast<std::size_t>(inner);
    const Columns columns(weight, recipe.transposed, first, x.noisy());
    for (std::int64_t r = rows.begin; r < rows.end; ++r) {
      Sums sums;
      if (x.noisy()) {
        multiply(std::span<const Element>(elements).subspan(x.at(r, 0), count), columns, sums);
      } else {
        multiply(std::span<const double>(x.value).subspan(x.at(r, 0), count), columns, sums);
      }
      for (std::int64_t o = first; o < std::min(first + width, outer); ++o) {
        const auto k = static_cast<std::size_t>(o - first);
        const double added =
            bias_share == 0 ? 0 : bias_share * bias.elements()[static_cast<std::size_t>(o)];
        const double y = sums.value[k] + added;
        out.set(out.at(r, o), y, sums.spread[k] + mean_square(u.sum) * (sums.partials[k] + y * y),
                sums.limit[k] + u.sum * std::fabs(y));
      }
    }
  };
  // So many rows of x stay near while all columns pass: 24 bytes a number with its errors.
  constexpr std::int64_t block = 32;
  if (x.rows >= 2 * block) {
    const std::int64_t blocks = (x.rows + block - 1) / block;
    in_pieces(blocks, block * inner * outer, [&](Range range) {
      for (std::int64_t n = range.begin; n < range.end; ++n) {
        const Range rows{n * block, std::min((n + 1) * block, x.rows)};
        for (std::int64_t tile = 0; tile < tiles; ++tile) multiply_tile(tile, rows);
      }
    });
  } else {
    in_pieces(tiles, x.rows * inner * width, [&](Range range) {
      for (std::int64_t tile = range.begin; tile < range.end; ++tile) {
        multiply_tile(tile, {0, x.rows});
      }
    });
  }
  store(out, u);
  return out;
}

}  // namespace attest::check::block
