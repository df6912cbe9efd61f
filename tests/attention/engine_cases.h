// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "attest/base/attention_call.h"
#include "attest/base/random.h"
#include "attest/base/shape.h"
#include "attest/base/tensor.h"
#include "attest/base/text.h"
#include "attest/linalg/isa.h"

/// Random calls of the engine with every option, replayable from their seed.
namespace attest::test {

inline constexpr double engine_infinity = std::numeric_limits<double>::infinity();

/// How a tensor [B, H, T, D] lies in memory. Gaps hold NaN.
enum class Layout {
  dense,
  heads_inside,  ///< [B, T, H, D]
  padded,        ///< rows end in a gap of an odd number of elements
  every_third,   ///< between neighbouring elements lie two others
  backwards,     ///< the stride of T is negative
};
inline constexpr int layouts = 5;

struct EngineLimits {
  std::int64_t longest = 40;  ///< T and S; one case in sixteen crosses blocks of keys
  std::int64_t crossing = 300;
  std::int64_t widest = 40;  ///< D and E; one case in sixteen is up to 512 wide
};

/// One call. The numbers are exact in `storage`.
struct EngineCase {
  std::uint64_t seed = 0;
  DType storage = DType::f32;
  DType bias_storage = DType::f32;
  Layout layout = Layout::dense;
  Tensor<double> query{};                 // [B, H, T, D]
  Tensor<double> key{};                   // [B, G, S, D]
  Tensor<double> value{};                 // [B, G, S, E]
  std::optional<Tensor<bool>> visible{};  // broadcasts to [B, H, T, S]
  std::optional<Tensor<double>> bias{};   // broadcasts to [B, H, T, S]
  AttentionOptions<double> chosen{};      // without the views
  [[nodiscard]] AttentionInputs<double> inputs() const {
    return {query.view<4>(), key.view<4>(), value.view<4>()};
  }
  [[nodiscard]] AttentionOptions<double> options() const {
    AttentionOptions<double> out = chosen;
    if (visible) out.mask.visible = visible->view<4>();
    if (bias) out.bias = bias->view<4>();
    return out;
  }
  [[nodiscard]] Shape output_shape() const {
    return {query.extent(0), query.extent(1), query.extent(2), value.extent(3)};
  }
};

inline double rounded_to(double value, DType storage) {
  switch (storage) {
    case DType::f32:
      return static_cast<double>(to_float_nearest(value));
    case DType::bf16:
      return to_double(to_bfloat16(value));
    case DType::f16:
      return to_double(to_half(value));
    default:
      return value;
  }
}

inline Tensor<double> stored_tensor(Random& random, Shape shape, double size, DType storage) {
  Tensor<double> out(std::move(shape));
  for (double& x : out.elements()) x = rounded_to(random.uniform(-size, size), storage);
  return out;
}

/// One of `n` cases.
inline bool one_in(Random& random, std::int64_t n) { return random.between(1, n) == 1; }

/// Every axis kept or broadcast at random: all sixteen patterns come.
inline Shape some_axes(Random& random, Shape whole) {
  for (std::int64_t& extent : whole) {
    if (one_in(random, 3)) extent = 1;
  }
  return whole;
}

inline std::vector<std::int64_t> random_starts(Random& random, std::int64_t documents,
                                               std::int64_t total) {
  std::vector<std::int64_t> out{0};
  for (std::int64_t n = 1; n < documents; ++n) {
    out.push_back(random.between(out.back(), total));
  }
  out.push_back(total);
  return out;
}

inline void draw_documents(Random& random, Mask& mask, std::int64_t B, std::int64_t T,
                           std::int64_t S) {
  const auto names = [&](std::int64_t count, std::int64_t runs) {
    std::vector<std::int64_t> out;
    for (std::int64_t n = 0; n < count; ++n) out.push_back(random.between(0, runs) - 7);
    return out;
  };
  if (one_in(random, 6)) {
    const std::int64_t batches = one_in(random, 2) ? 1 : B;
    mask.documents = {names(batches * T, 2), names((one_in(random, 2) ? 1 : B) * S, 2)};
  }
  if (mask.corner == Corner::square || !mask.key_lengths.empty()) return;
  if (one_in(random, 6)) {
    const std::int64_t documents = random.between(1, 4);
    mask.packing = {random_starts(random, documents, T), random_starts(random, documents, S)};
  }
}

inline void draw_mask(Random& random, EngineCase& out, const std::array<std::int64_t, 4>& whole) {
  const auto [B, H, T, S] = whole;
  Mask& mask = out.chosen.mask;
  mask.future_hidden = one_in(random, 2);
  mask.corner = static_cast<Corner>(random.between(0, 3));
  if (mask.corner == Corner::square && T != S) mask.corner = Corner::top_left;
  if (mask.corner == Corner::at_offset) {
    const std::int64_t count = one_in(random, 2) ? 1 : B;
    for (std::int64_t n = 0; n < count; ++n) mask.query_offset.push_back(random.between(-2, S));
  }
  if (one_in(random, 4)) mask.window.left = random.between(0, S / 2);
  if (one_in(random, 5)) mask.window.right = random.between(0, S / 2);
  if (one_in(random, 4)) {
    const std::int64_t count = one_in(random, 2) ? 1 : B;
    for (std::int64_t n = 0; n < count; ++n) mask.key_lengths.push_back(random.between(0, S));
  }
  draw_documents(random, mask, B, T, S);
  if (one_in(random, 3)) {
    out.visible = Tensor<bool>(some_axes(random, {B, H, T, S}));
    for (bool& seen : out.visible->elements()) seen = !one_in(random, 4);
  }
}

inline void draw_scores(Random& random, EngineCase& out, const std::array<std::int64_t, 4>& whole) {
  const auto [B, H, T, S] = whole;
  AttentionOptions<double>& chosen = out.chosen;
  if (one_in(random, 3)) {
    const double size = one_in(random, 4) ? 100 : 2;
    out.bias = stored_tensor(random, some_axes(random, {B, H, T, S}), size, out.bias_storage);
    for (double& x : out.bias->elements()) {
      if (one_in(random, 10)) x = -engine_infinity;
    }
  }
  switch (random.between(0, 9)) {
    case 0:
      chosen.scale = 0;
      break;
    case 1:
      chosen.scale = random.uniform(-2, 0);
      break;
    case 2:
      chosen.scale = random.uniform(50, 5000);
      break;
    case 3:
      chosen.scale = random.uniform(0, 2);
      break;
    default:
      break;
  }
  if (one_in(random, 4)) chosen.softcap = one_in(random, 4) ? 1e4 : random.uniform(0.5, 50);
  if (one_in(random, 4)) {
    for (std::int64_t h = 0; h < H; ++h) chosen.alibi_slopes.push_back(random.uniform(-0.2, 1));
  }
  if (one_in(random, 4)) {
    for (std::int64_t h = 0; h < H; ++h) chosen.sink.push_back(random.uniform(-3, 6));
  }
  if (one_in(random, 5)) chosen.dropout = {random.uniform(0, 0.9), random.bits()};
  chosen.empty_row = one_in(random, 2) ? EmptyRow::zero : EmptyRow::nan;
}

/// The case of this seed. `storage`: nothing means that the seed says.
inline EngineCase engine_case(std::uint64_t seed, std::optional<DType> storage = {},
                              const EngineLimits& limits = {}) {
  Random random(seed, 77);
  EngineCase out{.seed = seed};
  const DType kinds[] = {DType::f32, DType::bf16, DType::f16, DType::f64};
  out.storage = kinds[random.between(0, 3)];
  if (storage) out.storage = *storage;
  out.bias_storage = one_in(random, 2) ? DType::bf16 : DType::f32;
  if (out.storage == DType::f64) out.bias_storage = DType::f64;
  out.layout = static_cast<Layout>(random.between(0, layouts - 1));
  const bool crosses = one_in(random, 16), wide = !crosses && one_in(random, 16);
  const std::int64_t B = random.between(1, crosses || wide ? 1 : 3);
  const std::int64_t G = random.between(1, 2);
  const std::int64_t H = G * random.between(1, crosses || wide ? 2 : 3);
  const std::int64_t longest = crosses ? limits.crossing : wide ? 6 : limits.longest;
  const std::int64_t T = random.between(1, crosses ? 24 : longest);
  const std::int64_t S = one_in(random, 4) ? T : random.between(1, longest);
  const std::int64_t widest = wide ? 512 : crosses ? 12 : limits.widest;
  const std::int64_t D = random.between(1, widest);
  const std::int64_t E = random.between(1, widest);
  const double size = one_in(random, 8) ? 8 : 2;
  out.query = stored_tensor(random, {B, H, T, D}, size, out.storage);
  out.key = stored_tensor(random, {B, G, S, D}, size, out.storage);
  out.value = stored_tensor(random, {B, G, S, E}, size, out.storage);
  draw_mask(random, out, {B, H, T, S});
  draw_scores(random, out, {B, H, T, S});
  return out;
}

/// "seed 12, bf16, avx2, [2, 4, 17, 3] × [2, 2, 9, 3] → 5": what a failure says.
inline std::string name_of_case(const EngineCase& c, Isa isa) {
  return sentence("seed ", static_cast<std::int64_t>(c.seed), ", ", name_of(c.storage), ", ",
                  name_of(isa), ", query ", to_string(c.query.shape()), ", key ",
                  to_string(c.key.shape()), ", value width ", c.value.extent(3));
}

}  // namespace attest::test
