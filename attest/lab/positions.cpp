// SPDX-License-Identifier: MIT
#include "attest/lab/positions.h"

#include <algorithm>

#include "attest/lab/elementary.h"
#include "attest/lab/environment.h"
#include "attest/lab/exact_sum.h"
#include "attest/lab/layers_check.h"

namespace attest::lab {
namespace {

using detail::bad_option;
using detail::Named;
using detail::shape_mismatch;

/// R: how many features turn.
std::int64_t rotated_width(const RopeConfig& config, std::int64_t head_dim) {
  return config.rotary_dim == 0 ? head_dim : config.rotary_dim;
}

Result<void> check_config(const RopeConfig& config, std::int64_t head_dim) {
  constexpr std::int64_t widest = std::int64_t{1} << 20U;  // what rational_power takes
  const std::int64_t R = rotated_width(config, head_dim);
  if (R < 2 || R % 2 != 0 || R > head_dim || R > widest) {
    return bad_option("rope",
                      "rotary_dim must be even and between 2 and D = ", std::min(head_dim, widest),
                      "; found ", R);
  }
  if (!(config.base > 0 && detail::finite(config.base))) {
    return bad_option("rope", "base must be positive and finite; found ", config.base);
  }
  return {};
}

Result<void> check_positions(const RopeRows& rows) {
  constexpr std::int64_t far = std::int64_t{1} << 53U;
  if (rows.T < 0 || rows.T > far) {
    return shape_mismatch("rope", "T must be between 0 and 2^53; found ", rows.T);
  }
  for (const std::int64_t offset : rows.offsets) {
    if (offset >= -far && offset <= far - rows.T) continue;
    return bad_option("rope", "positions must stay within 2^53; ", rows.T, " rows start at ",
                      offset);
  }
  return {};
}

Result<void> check_turns(View<const double, 4> x, const RopeTurns& turns) {
  const char* const operation = "rope";
  if (auto ok = detail::check_given(operation, Named{"x", x}); !ok) return ok;
  if (auto ok = detail::check_same(operation, Named{"cos", turns.cos}, Named{"sin", turns.sin});
      !ok) {
    return ok;
  }
  const auto [B, T, pairs] = turns.cos.extents;
  if ((B != 1 && B != x.extent(0)) || T != x.extent(2) || 2 * pairs > x.extent(3)) {
    return shape_mismatch(operation, "cos must be [B or 1, T, at most D/2]; x has shape ",
                          to_string(x.extents), ", cos has ", to_string(turns.cos.extents));
  }
  return {};
}

enum class Direction { forward, back };

Result<Tensor<double>> turn(View<const double, 4> x, const RopeConfig& config,
                            std::span<const std::int64_t> offsets, Direction direction) {
  if (auto ok = detail::check_given("rope", Named{"x", x}); !ok) return ok.failure();
  if (offsets.size() > 1 && offsets.size() != detail::at_index(x.extent(0))) {
    return bad_option("rope", "offsets must have 1 or B = ", x.extent(0), " entries; it has ",
                      offsets.size());
  }
  auto table = rope_table(config, x.extent(3), {x.extent(2), offsets});
  if (!table) return table.failure();
  if (direction == Direction::back) {
    for (double& value : table->sin.elements()) value = -value;
  }
  const RopeTable& fixed = *table;
  return rope_turn(x, {fixed.cos.view<3>(), fixed.sin.view<3>(), config.pairing});
}

}  // namespace

std::vector<double> alibi_slopes(std::int64_t heads) {
  const ExactEnvironment environment;
  std::int64_t power = 1;
  while (power * 2 <= heads) power *= 2;
  std::vector<double> slopes;
  for (std::int64_t h = 0; h < heads; ++h) {
    slopes.push_back(h < power ? rational_power(2, -8 * (h + 1), power)
                               : rational_power(2, -8 * (2 * (h - power) + 1), 2 * power));
  }
  return slopes;
}

Result<std::vector<double>> rope_frequencies(const RopeConfig& config, std::int64_t head_dim) {
  const ExactEnvironment environment;
  if (auto ok = check_config(config, head_dim); !ok) return ok.failure();
  const std::int64_t R = rotated_width(config, head_dim);
  std::vector<double> frequencies;
  for (std::int64_t i = 0; i < R / 2; ++i) {
    frequencies.push_back(rational_power(config.base, -2 * i, R));
  }
  return frequencies;
}

Result<RopeTable> rope_table(const RopeConfig& config, std::int64_t head_dim,
                             const RopeRows& rows) {
  const ExactEnvironment environment;
  const auto frequencies = rope_frequencies(config, head_dim);
  if (!frequencies) return frequencies.failure();
  if (auto ok = check_positions(rows); !ok) return ok.failure();
  const std::size_t batches = std::max<std::size_t>(rows.offsets.size(), 1);
  const Shape shape{static_cast<std::int64_t>(batches), rows.T, std::ssize(*frequencies)};
  RopeTable table{Tensor<double>(shape), Tensor<double>(shape), Tensor<double>(shape)};
  std::size_t place = 0;
  for (std::size_t b = 0; b < batches; ++b) {
    const std::int64_t offset = rows.offsets.empty() ? 0 : rows.offsets[b];
    for (std::int64_t t = 0; t < rows.T; ++t) {
      for (const double frequency : *frequencies) {
        const double angle = static_cast<double>(offset + t) * frequency;
        table.angle.data()[place] = angle;
        table.cos.data()[place] = cos(angle);
        table.sin.data()[place] = sin(angle);
        ++place;
      }
    }
  }
  return table;
}

Result<Tensor<double>> rope_turn(View<const double, 4> x, const RopeTurns& turns) {
  const ExactEnvironment environment;
  if (auto ok = check_turns(x, turns); !ok) return ok.failure();
  const auto [B, H, T, D] = x.extents;
  const std::int64_t pairs = turns.cos.extent(2);
  const bool half = turns.pairing == RopePairing::half;
  Tensor<double> out({B, H, T, D});
  for (std::int64_t n = 0; n < B * H * T; ++n) {
    const std::int64_t b = n / (H * T);
    const std::int64_t h = n / T % H;
    const std::int64_t t = n % T;
    const std::int64_t table = turns.cos.extent(0) == 1 ? 0 : b;
    for (std::int64_t i = 0; i < pairs; ++i) {
      const std::int64_t first = half ? i : 2 * i;
      const std::int64_t second = half ? i + pairs : 2 * i + 1;
      const double cosine = turns.cos(table, t, i);
      const double sine = turns.sin(table, t, i);
      const double one[] = {x(b, h, t, first) * cosine, -(x(b, h, t, second) * sine)};
      const double two[] = {x(b, h, t, second) * cosine, x(b, h, t, first) * sine};
      out(b, h, t, first) = exact_sum(one);
      out(b, h, t, second) = exact_sum(two);
    }
    for (std::int64_t d = 2 * pairs; d < D; ++d) out(b, h, t, d) = x(b, h, t, d);
  }
  return out;
}

Result<Tensor<double>> rope(View<const double, 4> x, const RopeConfig& config,
                            std::span<const std::int64_t> offsets) {
  const ExactEnvironment environment;
  return turn(x, config, offsets, Direction::forward);
}

Result<Tensor<double>> rope_backward(View<const double, 4> d_y, const RopeConfig& config,
                                     std::span<const std::int64_t> offsets) {
  const ExactEnvironment environment;
  // y = turn(x, angle)      d_x = turn(d_y, −angle)
  return turn(d_y, config, offsets, Direction::back);
}

}  // namespace attest::lab
