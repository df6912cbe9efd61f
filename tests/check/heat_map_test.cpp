// SPDX-License-Identifier: MIT
// The pictures of a report: every error at its pixel, and files that any program reads.
#include "attest/check/diagnose/heat_map.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <cmath>
#include <limits>
#include <set>

#include "attest/base/random.h"
#include "attest/check/diagnose/dump_of.h"
#include "attest/lab/attention.h"

namespace attest::check {
namespace {

Tensor<double> bell(Shape shape, std::uint64_t seed) {
  Random random(seed);
  Tensor<double> out(std::move(shape));
  for (double& x : out.elements()) x = static_cast<float>(random.bell());
  return out;
}

/// A right dump, B 2, H 3, T 40, S 50, with its weights.
Dump right_dump() {
  AttentionCase call;
  call.query = bell({2, 3, 40, 5}, 1);
  call.key = bell({2, 3, 50, 5}, 2);
  call.value = bell({2, 3, 50, 7}, 3);
  call.mask = Mask::causal_bottom_right();
  const auto result = lab::attention(call.inputs(), call.options()).value();
  Dump dump = dump_of(std::move(call), result.output);
  dump.stages.insert(dump.stages.begin(), {Stage::weights, result.weights, DType::f32, "w"});
  return dump;
}

/// The pixel that shows query i and column n of batch b and head h.
std::uint8_t pixel(const HeatMap& map, std::int64_t panel, std::int64_t i, std::int64_t n) {
  const std::int64_t at = i / map.block_of_rows * map.columns + n / map.block_of_columns;
  return map.panels[static_cast<std::size_t>(panel)].shades[static_cast<std::size_t>(at)];
}

TEST(HeatMap, ShowsEveryErrorAtItsPlaceAndNoOther) {
  Dump dump = right_dump();
  dump.stages[0].values(1, 2, 3, 4) += 0.01;          // weights, panel 5
  dump.stages[1].values(0, 1, 39, 6) = std::nan("");  // output, panel 1
  const auto diagnosis = diagnose(dump, {.most_mistakes = 0}).value();
  const auto maps = heat_maps_of(dump, diagnosis);
  ASSERT_EQ(maps.size(), 2U);
  EXPECT_EQ(maps[0].stage, "weights");
  EXPECT_EQ(maps[1].stage, "output");
  for (const HeatMap& map : maps) {
    ASSERT_EQ(map.panels.size(), 6U);
    ASSERT_EQ(map.block_of_rows, 1);
    ASSERT_EQ(map.block_of_columns, 1);
    for (std::int64_t panel = 0; panel < 6; ++panel) {
      for (std::int64_t i = 0; i < 40; ++i) {
        for (std::int64_t n = 0; n < map.width; ++n) {
          const std::uint8_t shade = pixel(map, panel, i, n);
          const bool weights = map.stage == "weights";
          if (weights && panel == 5 && i == 3 && n == 4) {
            EXPECT_GT(shade, 100);
            EXPECT_LT(shade, nan_shade);
          } else if (!weights && panel == 1 && i == 39 && n == 6) {
            EXPECT_EQ(shade, nan_shade);
          } else {
            EXPECT_LE(shade, 100) << map.stage << " " << panel << " " << i << " " << n;
          }
        }
      }
    }
  }
}

TEST(HeatMap, ABlockShowsItsLargestError) {
  Dump dump = right_dump();
  dump.stages[0].values(1, 2, 17, 31) += 0.01;
  dump.stages[0].values(1, 2, 16, 31) += 0.001;
  const auto diagnosis = diagnose(dump, {.most_mistakes = 0}).value();
  const auto maps = heat_maps_of(dump, diagnosis, {.panels = 2, .pixels = 1, .side = 16});
  const HeatMap& map = maps[0];
  EXPECT_EQ(map.block_of_rows, 3);
  EXPECT_EQ(map.block_of_columns, 4);
  EXPECT_EQ(map.left_out, 4);
  ASSERT_EQ(map.panels.size(), 2U);
  EXPECT_EQ(map.panels[1].b, 1);  // the head with the error is one of those that are shown
  EXPECT_EQ(map.panels[1].h, 2);
  EXPECT_EQ(map.panels[1].queries[5], 17);
  EXPECT_GT(pixel(map, 1, 17, 31), 100);
  EXPECT_TRUE(map.panels[1].found.empty());
}

TEST(HeatMap, HoldsTheNumbersOfSmallTables) {
  const Dump dump = right_dump();
  const auto diagnosis = diagnose(dump, {.most_mistakes = 0}).value();
  const auto maps = heat_maps_of(dump, diagnosis);
  const HeatPanel& panel = maps[1].panels[4];  // output of batch 1, head 1
  ASSERT_EQ(panel.found.size(), 280U);
  EXPECT_EQ(panel.found[3 * 7 + 5], dump.stages[1].values(1, 1, 3, 5));
  EXPECT_NEAR(panel.expected[3 * 7 + 5], dump.stages[1].values(1, 1, 3, 5), 1e-12);
}

TEST(HeatMap, ShadesAreOneScaleForAllDumps) {
  EXPECT_EQ(shade_of(0), 1);
  EXPECT_EQ(shade_of(1), 100);
  EXPECT_EQ(shade_of(1.0000001), 101);
  EXPECT_EQ(shade_of(1e6), 240);
  EXPECT_EQ(shade_of(1e9), 240);
  EXPECT_EQ(shade_of(std::numeric_limits<double>::infinity()), nan_shade);
  std::uint8_t last = 0;
  for (double used = 1e-4; used < 1e7; used *= 1.5) {
    EXPECT_GE(shade_of(used), last);
    last = shade_of(used);
  }
}

TEST(HeatMap, NoTwoShadesHaveOneColour) {
  std::set<Colour> seen;
  for (std::size_t n = 1; n < 256; ++n) seen.insert(shade_colours()[n]);
  EXPECT_EQ(seen.size(), 255U);
}

// ---- files ---------------------------------------------------------------------------------------

std::uint32_t big_endian(const std::string& text, std::size_t at) {
  std::uint32_t out = 0;
  for (std::size_t n = 0; n < 4; ++n) out = (out << 8U) | static_cast<std::uint8_t>(text[at + n]);
  return out;
}

TEST(Png, UnpacksToItsPixels) {
  for (const auto& [width, height] : {std::pair{1U, 1U}, {13U, 7U}, {300U, 700U}}) {
    std::vector<std::uint8_t> pixels(std::size_t{width} * height);
    for (std::size_t n = 0; n < pixels.size(); ++n) pixels[n] = static_cast<std::uint8_t>(n * 7);
    const std::string png = png_of(pixels, width, height, shade_colours());
    std::string packed;
    std::size_t at = 8;
    while (at < png.size()) {
      const std::uint32_t length = big_endian(png, at);
      const std::string body = png.substr(at + 4, length + 4);
      const auto crc =
          crc32(0, reinterpret_cast<const Bytef*>(body.data()), static_cast<uInt>(body.size()));
      EXPECT_EQ(crc, big_endian(png, at + 8 + length)) << body.substr(0, 4);
      if (body.starts_with("IDAT")) packed += body.substr(4);
      if (body.starts_with("IHDR")) {
        EXPECT_EQ(big_endian(body, 4), width);
        EXPECT_EQ(big_endian(body, 8), height);
      }
      at += length + 12;
    }
    std::vector<std::uint8_t> raw(std::size_t{width + 1} * height);
    uLongf size = raw.size();
    ASSERT_EQ(
        uncompress(raw.data(), &size, reinterpret_cast<const Bytef*>(packed.data()), packed.size()),
        Z_OK);
    ASSERT_EQ(size, raw.size());
    for (std::size_t y = 0; y < height; ++y) {
      EXPECT_EQ(raw[y * (width + 1)], 0);
      for (std::size_t x = 0; x < width; ++x) {
        ASSERT_EQ(raw[y * (width + 1) + 1 + x], pixels[y * width + x]);
      }
    }
  }
}

TEST(Base64, IsPaddedAsTheRfcSays) {
  const auto of = [](std::string_view text) {
    return base64_of({reinterpret_cast<const std::uint8_t*>(text.data()), text.size()});
  };
  EXPECT_EQ(of(""), "");
  EXPECT_EQ(of("f"), "Zg==");
  EXPECT_EQ(of("fo"), "Zm8=");
  EXPECT_EQ(of("foo"), "Zm9v");
  EXPECT_EQ(of("foob"), "Zm9vYg==");
  EXPECT_EQ(of("fooba"), "Zm9vYmE=");
  EXPECT_EQ(of("foobar"), "Zm9vYmFy");
}

}  // namespace
}  // namespace attest::check
