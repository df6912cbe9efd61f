// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "attest/check/diagnose/diagnosis.h"
#include "attest/check/diagnose/png.h"

/// The errors of a dump as pictures: one pixel a number, or for large tables a block of them.
namespace attest::check {

/// One batch and head of one table. A line of pixels is the worst query of its block.
struct HeatPanel {
  std::int64_t b = 0;
  std::int64_t h = 0;
  std::vector<std::uint8_t> shades{};   // [lines, columns]
  std::vector<std::int64_t> queries{};  ///< which query each line shows, [lines]
  /// Where the picture has a pixel for every number: [lines, columns]; otherwise empty.
  std::vector<double> found{}, expected{};
};

struct HeatMap {
  std::string stage;               ///< "weights"
  std::string name;                ///< of the tensor in the file
  std::string across;              ///< "key", "feature" or ""
  std::int64_t width = 0;          ///< numbers in a row of the table
  std::int64_t columns = 0;        ///< pixels in a line
  std::int64_t block_of_rows = 1;  ///< queries for a line
  std::int64_t block_of_columns = 1;
  std::vector<HeatPanel> panels{};  ///< in the order of batch and head
  std::int64_t left_out = 0;        ///< heads that are not shown: those with the smallest errors
};

struct HeatLimits {
  std::int64_t panels = 48;        ///< heads of one table
  std::int64_t pixels = 1 << 20;   ///< of all tables together
  std::int64_t side = 512;         ///< pixels of one panel, each way
  std::int64_t numbers = 1 << 14;  ///< of one table that are also written out
};

/// Every table of the dump. The claim is recomputed for the rows that are shown, in binary64.
[[nodiscard]] std::vector<HeatMap> heat_maps_of(const Dump& dump, const Diagnosis& diagnosis,
                                                const HeatLimits& limits = {});

/// What a shade stands for: |found − expected| / tolerance, on a logarithmic scale that is the same for
/// every head and every dump.
///
///     0           nothing is compared there
///     1 … 100     0.001 or less … 1, within the tolerance
///     101 … 240   above 1 … 1e6 or more
///     255         NaN or an infinity in one alone
[[nodiscard]] std::uint8_t shade_of(double used);
inline constexpr std::uint8_t nan_shade = 255;
/// 256 different colours, of falling lightness on both sides of 1; entry 0 is transparent.
[[nodiscard]] const std::array<Colour, 256>& shade_colours();

}  // namespace attest::check
