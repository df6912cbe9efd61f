// SPDX-License-Identifier: MIT
#include "attest/check/diagnose/heat_map.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "attest/check/diagnose/judge.h"
#include "attest/check/diagnose/noise.h"
#include "attest/check/mistakes/evaluate.h"

namespace attest::check {
namespace {

std::size_t index(std::int64_t n) { return static_cast<std::size_t>(n); }

/// One table while it is drawn.
struct Drawing {
  const Observed* observed = nullptr;
  const StageJudgement* judged = nullptr;
  HeatMap map{};
  std::vector<std::size_t> shown{};  ///< batch and head, as one number
  bool numbers = false;

  [[nodiscard]] double used(std::int64_t row) const {
    const bool known = judged != nullptr && index(row) < judged->rows.size();
    return known ? static_cast<double>(judged->rows[index(row)]) : 0;
  }
};

const StageJudgement* judgement_of(const Diagnosis& diagnosis, const Observed& observed) {
  for (const StageJudgement& each : diagnosis.stages) {
    if (each.stage == name_of(observed.stage)) return &each;
  }
  return nullptr;
}

/// The heads that are shown: all of them, or those with the largest errors.
std::vector<std::size_t> heads_shown(const Drawing& drawing, const lab::AttentionShape& s,
                                     std::int64_t most) {
  std::vector<std::size_t> heads(index(s.B * s.H));
  std::iota(heads.begin(), heads.end(), 0);
  if (static_cast<std::int64_t>(heads.size()) <= most) return heads;
  std::vector<double> worst(heads.size(), 0);
  for (std::size_t n = 0; n < heads.size(); ++n) {
    for (std::int64_t i = 0; i < s.T; ++i) {
      worst[n] = std::max(worst[n], drawing.used(static_cast<std::int64_t>(n) * s.T + i));
    }
  }
  std::ranges::stable_sort(heads,
                           [&](std::size_t a, std::size_t b) { return worst[a] > worst[b]; });
  heads.resize(index(most));
  std::ranges::sort(heads);
  return heads;
}

std::int64_t blocks(std::int64_t extent, std::int64_t most) {
  return std::max<std::int64_t>(1, (extent + most - 1) / most);
}

Drawing begin(const Dump& dump, const Diagnosis& diagnosis, const Observed& observed,
              const HeatLimits& limits) {
  const lab::AttentionShape& s = dump.claim.shape;
  Drawing out;
  out.observed = &observed;
  out.judged = judgement_of(diagnosis, observed);
  HeatMap& map = out.map;
  map.stage = name_of(observed.stage);
  map.name = observed.name;
  map.across = observed.stage == Stage::output        ? "feature"
               : observed.stage == Stage::log_sum_exp ? ""
                                                      : "key";
  const std::int64_t rows = s.B * s.H * s.T;
  if (rows == 0 || observed.values.size() == 0) return out;
  map.width = static_cast<std::int64_t>(observed.values.size()) / rows;
  out.shown = heads_shown(out, s, limits.panels);
  map.left_out = s.B * s.H - static_cast<std::int64_t>(out.shown.size());
  const auto each = static_cast<double>(limits.pixels) / (static_cast<double>(dump.stages.size()) *
                                                          static_cast<double>(out.shown.size()));
  const auto side =
      std::clamp<std::int64_t>(static_cast<std::int64_t>(std::sqrt(each)), 16, limits.side);
  map.block_of_columns = blocks(map.width, side);
  // A narrow table leaves its lines more room.
  const std::int64_t columns = blocks(map.width, map.block_of_columns);
  const auto tall = static_cast<std::int64_t>(each / static_cast<double>(columns));
  map.block_of_rows = blocks(s.T, std::clamp<std::int64_t>(tall, 16, limits.side));
  map.columns = columns;
  out.numbers = map.block_of_rows == 1 && map.block_of_columns == 1 &&
                static_cast<std::int64_t>(observed.values.size()) <= limits.numbers;
  return out;
}

/// Recomputes rows of the claim and says how far the dump's numbers are from them.
class RowErrors {
 public:
  RowErrors(const Dump& dump, Evaluation evaluation)
      : dump_(dump), evaluation_(std::move(evaluation)), noise_(dump), tolerances_(noise_) {}

  void draw(const Drawing& drawing, lab::RowPlace at, HeatPanel& panel) {
    const HeatMap& map = drawing.map;
    const lab::AttentionShape& s = dump_.claim.shape;
    const StageRow& row = evaluation_.row(at);
    const RowView view(row);
    const Stage stage = drawing.observed->stage;
    tolerances_.begin(at, row);
    tolerances_.of(stage, drawing.observed->dtype, limits_);
    const std::int64_t number = (at.b * s.H + at.h) * s.T + at.i;
    const auto found =
        drawing.observed->values.elements().subspan(index(number * map.width), index(map.width));
    const std::span<const double> expected = row.of(stage);
    std::vector<std::uint8_t> line(index(map.columns), 0);
    for (std::size_t n = 0; n < found.size() && n < expected.size(); ++n) {
      std::uint8_t& pixel = line[n / index(map.block_of_columns)];
      pixel = std::max(pixel, shade(view, stage, n, found[n], expected[n]));
    }
    panel.queries.push_back(at.i);
    panel.shades.insert(panel.shades.end(), line.begin(), line.end());
    if (!drawing.numbers) return;
    panel.found.insert(panel.found.end(), found.begin(), found.end());
    panel.expected.insert(panel.expected.end(), expected.begin(), expected.end());
  }

 private:
  [[nodiscard]] std::uint8_t shade(const RowView& view, Stage stage, std::size_t n, double found,
                                   double expected) const {
    switch (view.standing(stage, n, found, expected)) {
      case Standing::left_out:
        return 0;
      case Standing::same:
      case Standing::both_nan:
        return 1;
      case Standing::nan_apart:
        return nan_shade;
      case Standing::compared:
        break;
    }
    const double error = std::fabs(found - expected);
    return error == 0 ? std::uint8_t{1} : shade_of(error / limits_.worst[n]);
  }

  const Dump& dump_;
  Evaluation evaluation_;
  Noise noise_;
  Noise::Row tolerances_;
  RowNoise limits_{};
};

void draw(const lab::AttentionShape& s, RowErrors& errors, Drawing& drawing) {
  for (const std::size_t head : drawing.shown) {
    HeatPanel panel;
    panel.b = static_cast<std::int64_t>(head) / s.H;
    panel.h = static_cast<std::int64_t>(head) % s.H;
    for (std::int64_t begin = 0; begin < s.T; begin += drawing.map.block_of_rows) {
      const std::int64_t end = std::min(s.T, begin + drawing.map.block_of_rows);
      std::int64_t worst = begin;
      const std::int64_t first = static_cast<std::int64_t>(head) * s.T;
      for (std::int64_t i = begin; i < end; ++i) {
        if (drawing.used(first + i) > drawing.used(first + worst)) worst = i;
      }
      errors.draw(drawing, {panel.b, panel.h, worst}, panel);
    }
    drawing.map.panels.push_back(std::move(panel));
  }
}

Colour between(const Colour& from, const Colour& to, double part) {
  Colour out{};
  for (std::size_t n = 0; n < 3; ++n) {
    out[n] = static_cast<std::uint8_t>(std::lround(from[n] + part * (to[n] - from[n])));
  }
  return out;
}

}  // namespace

std::vector<HeatMap> heat_maps_of(const Dump& dump, const Diagnosis& diagnosis,
                                  const HeatLimits& limits) {
  std::vector<HeatMap> out;
  auto evaluation = Evaluation::make(dump, Recipe{});
  if (!evaluation) return out;
  RowErrors errors(dump, *std::move(evaluation));
  for (const Observed& observed : dump.stages) {
    Drawing drawing = begin(dump, diagnosis, observed, limits);
    draw(dump.claim.shape, errors, drawing);
    if (!drawing.map.panels.empty()) out.push_back(std::move(drawing.map));
  }
  return out;
}

std::uint8_t shade_of(double used) {
  if (std::isnan(used) || std::isinf(used)) return nan_shade;
  if (used <= 1) {
    const double part = used <= 1e-3 ? 0 : (std::log10(used) + 3) / 3;
    return static_cast<std::uint8_t>(1 + std::lround(99 * part));
  }
  const double part = std::min(1.0, std::log10(used) / 6);
  return static_cast<std::uint8_t>(101 + std::lround(139 * part));
}

const std::array<Colour, 256>& shade_colours() {
  static const std::array<Colour, 256> colours = [] {
    std::array<Colour, 256> out{};
    // Blue within the tolerance; from yellow over red to violet beyond it.
    for (std::size_t n = 1; n <= 100; ++n) {
      out[n] = between({214, 230, 244}, {66, 122, 180}, static_cast<double>(n - 1) / 99);
    }
    for (std::size_t n = 101; n <= 240; ++n) {
      const double part = static_cast<double>(n - 101) / 139;
      out[n] = part < 0.5 ? between({255, 221, 87}, {222, 45, 38}, part * 2)
                          : between({222, 45, 38}, {92, 16, 112}, part * 2 - 1);
    }
    for (std::size_t n = 241; n < 255; ++n) {
      out[n] = {static_cast<std::uint8_t>(n), 0, 1};  // no number has these
    }
    out[nan_shade] = {0, 168, 107};
    return out;
  }();
  return colours;
}

}  // namespace attest::check
