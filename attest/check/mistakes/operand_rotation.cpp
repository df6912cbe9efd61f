// SPDX-License-Identifier: MIT
#include "attest/check/mistakes/operand_rotation.h"

#include <cmath>
#include <numbers>

namespace attest::check {
namespace {

constexpr std::int64_t block = 64;

/// To so many bits of significand, ties to even; exponents are taken to be wide enough.
double rounded_to_bits(double x, int bits) {
  if (x == 0 || !std::isfinite(x)) return x;
  int exponent = 0;
  const double significand = std::frexp(x, &exponent);
  return std::ldexp(std::nearbyint(std::ldexp(significand, bits)), exponent - bits);
}

/// As Llama 3.1 stretches long waves: those longer than 8192 positions by `factor`, those shorter
/// than 2048 not at all, and between the two gradually.
double llama3_scaled(double frequency, double factor) {
  constexpr double original = 8192, low = 1, high = 4;
  const double waves = original * frequency / (2 * std::numbers::pi);
  if (waves > high) return frequency;
  if (waves < low) return frequency / factor;
  const double smooth = (waves - low) / (high - low);
  return (1 - smooth) * frequency / factor + smooth * frequency;
}

}  // namespace

std::optional<Rotation> Rotation::make(const RopeConfig& config, const RopeRecipe& recipe,
                                       std::int64_t width, Role role) {
  std::int64_t rotated = config.rotary_dim == 0 ? width : config.rotary_dim;
  if (recipe.width != 0) rotated = std::llround(recipe.width * static_cast<double>(width));
  if (recipe.before_split) rotated = width;
  if (rotated <= 0 || rotated > width || rotated % 2 != 0) return std::nullopt;

  const bool query = role == Role::query;
  const bool other = query ? recipe.query_other_pairing : recipe.key_other_pairing;
  const bool claimed = config.pairing == RopePairing::interleaved;
  const bool interleaved = claimed != other;
  bool tables = recipe.keep_tables ? claimed : interleaved;
  if (recipe.other_tables) tables = !tables;

  Rotation out;
  const Turn turn = query ? recipe.query : recipe.key;
  out.sign_ = turn == Turn::reversed ? -1 : 1;
  out.twice_ = turn == Turn::twice;
  out.form_ = recipe.form;
  out.rounding_ = recipe.rounding;
  out.halves_ =
      !interleaved && !tables && !recipe.last_features && recipe.form == RopeForm::claimed;
  out.pairs_.resize(static_cast<std::size_t>(rotated / 2));
  out.set_pairs(interleaved, tables, recipe.last_features ? width - rotated : 0);
  out.set_frequencies(config, recipe, width);
  return out;
}

void Rotation::set_pairs(bool interleaved, bool interleaved_tables, std::int64_t first) {
  const std::size_t half = pairs_.size();
  for (std::size_t i = 0; i < half; ++i) {
    const std::size_t x = interleaved ? 2 * i : i;
    const std::size_t y = interleaved ? 2 * i + 1 : i + half;
    const auto angle = [&](std::size_t feature) {
      return interleaved_tables ? feature / 2 : feature % half;
    };
    pairs_[i] = {first + static_cast<std::int64_t>(x), first + static_cast<std::int64_t>(y),
                 angle(x), angle(y)};
  }
}

void Rotation::set_frequencies(const RopeConfig& config, const RopeRecipe& recipe,
                               std::int64_t width) {
  const auto half = static_cast<double>(pairs_.size());
  const double base = recipe.base.value_or(config.base);
  frequencies_.resize(pairs_.size());
  for (std::size_t pair = 0; pair < pairs_.size(); ++pair) {
    const auto i = static_cast<double>(pair);
    double exponent = i / half;
    switch (recipe.exponent) {
      case RopeExponent::claimed:
      case RopeExponent::llama3_scaled:
        break;
      case RopeExponent::half:
        exponent = i / (2 * half);
        break;
      case RopeExponent::from_one:
        exponent = (i + 1) / half;
        break;
      case RopeExponent::of_head_dim:
        exponent = 2 * i / static_cast<double>(width);
        break;
      case RopeExponent::to_the_end:
        exponent = half > 1 ? i / (half - 1) : 0;
        break;
      case RopeExponent::backwards:
        exponent = (half - 1 - i) / half;
        break;
    }
    double frequency = std::pow(base, -exponent);
    if (recipe.exponent == RopeExponent::llama3_scaled) {
      frequency = llama3_scaled(frequency, recipe.long_wave_factor);
    }
    frequencies_[pair] = frequency / recipe.positions_divided_by;
  }
}

void Rotation::fill(Table& table, double position) const {
  table.cosine.resize(frequencies_.size());
  table.sine.resize(frequencies_.size());
  for (std::size_t i = 0; i < frequencies_.size(); ++i) {
    table.cosine[i] = std::cos(position * frequencies_[i]);
    table.sine[i] = std::sin(position * frequencies_[i]);
  }
}

void Rotation::prepare(std::int64_t position) {
  if (rounding_ == RopeRounding::positions_bf16) {
    position = std::llround(rounded_to_bits(static_cast<double>(position), 8));
  }
  if (prepared_ == position) return;
  std::int64_t high = position / block, low = position % block;
  if (low < 0) {
    low += block;
    --high;
  }
  if (low_.empty()) low_.resize(static_cast<std::size_t>(block));
  Table& near = low_[static_cast<std::size_t>(low)];
  if (near.cosine.empty()) fill(near, static_cast<double>(low));
  if (high_block_ != high) fill(high_, static_cast<double>(high * block));
  high_block_ = high;
  prepared_ = position;

  const std::size_t pairs = frequencies_.size();
  now_.cosine.resize(pairs);
  now_.sine.resize(pairs);
  const double *const c = near.cosine.data(), *const s = near.sine.data();
  const double *const far_c = high_.cosine.data(), *const far_s = high_.sine.data();
  double *const now_c = now_.cosine.data(), *const now_s = now_.sine.data();
  for (std::size_t i = 0; i < pairs; ++i) {
    now_c[i] = c[i] * far_c[i] - s[i] * far_s[i];
    now_s[i] = sign_ * (s[i] * far_c[i] + c[i] * far_s[i]);
  }
  if (rounding_ == RopeRounding::tables_bf16 || rounding_ == RopeRounding::tables_f16) {
    const int bits = rounding_ == RopeRounding::tables_bf16 ? 8 : 11;
    for (double& x : now_.cosine) x = rounded_to_bits(x, bits);
    for (double& x : now_.sine) x = rounded_to_bits(x, bits);
  }
}

/// What most programs do, without a table of pairs.
void Rotation::turn_halves(double* row) const {
  const std::size_t half = frequencies_.size();
  const double* const cosine = now_.cosine.data();
  const double* const sine = now_.sine.data();
  double* const second = row + half;
  for (std::size_t i = 0; i < half; ++i) {
    const double x = row[i], y = second[i];
    row[i] = x * cosine[i] - y * sine[i];
    second[i] = y * cosine[i] + x * sine[i];
  }
}

void Rotation::turn(std::span<double> row, std::int64_t position) {
  prepare(position);
  if (halves_) {
    for (int time = 0; time < (twice_ ? 2 : 1); ++time) turn_halves(row.data());
    return;
  }
  const bool swapped = form_ == RopeForm::sin_cos_swapped;
  const std::vector<double>& cosine = swapped ? now_.sine : now_.cosine;
  const std::vector<double>& sine = swapped ? now_.cosine : now_.sine;
  const double minus = form_ == RopeForm::no_minus ? 1 : -1;
  for (int time = 0; time < (twice_ ? 2 : 1); ++time) {
    for (const Pair& pair : pairs_) {
      double& at_x = row[static_cast<std::size_t>(pair.x)];
      double& at_y = row[static_cast<std::size_t>(pair.y)];
      const double x = at_x, y = at_y;
      at_x = x * cosine[pair.x_angle] + minus * (y * sine[pair.x_angle]);
      at_y = y * cosine[pair.y_angle] + x * sine[pair.y_angle];
    }
  }
}

}  // namespace attest::check
