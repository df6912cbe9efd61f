// SPDX-License-Identifier: MIT
#include "attest/base/text.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <string>

#include "attest/base/random.h"
#include "tests/support/bits.h"

namespace attest {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

TEST(Text, ShortestIsWhatAReaderExpects) {
  EXPECT_EQ(shortest(0.1), "0.1");
  EXPECT_EQ(shortest(1), "1");
  EXPECT_EQ(shortest(-0.0), "-0");
  EXPECT_EQ(shortest(1e300), "1e+300");
  EXPECT_EQ(shortest(5e-324), "5e-324");
  EXPECT_EQ(shortest(infinity), "inf");
  EXPECT_EQ(shortest(-infinity), "-inf");
  EXPECT_EQ(shortest(0.6697615493266569), "0.6697615493266569");
}

TEST(Text, ANaNHasNoSign) {
  EXPECT_EQ(shortest(std::nan("")), "nan");
  EXPECT_EQ(shortest(-std::nan("")), "nan");
}

TEST(Text, WithPointAWholeNumberShowsThatItFloats) {
  EXPECT_EQ(shortest_with_point(10), "10.0");
  EXPECT_EQ(shortest_with_point(-3), "-3.0");
  EXPECT_EQ(shortest_with_point(-0.0), "-0.0");
  EXPECT_EQ(shortest_with_point(0.5), "0.5");
  EXPECT_EQ(shortest_with_point(1e300), "1e+300");
  EXPECT_EQ(shortest_with_point(infinity), "inf");
  EXPECT_EQ(shortest_with_point(std::nan("")), "nan");
}

TEST(Text, ShortestReadsBackAndNoShorterTextDoes) {
  constexpr std::uint64_t seed = 11;
  Random random(seed);
  for (int n = 0; n < 50000; ++n) {
    double value = std::bit_cast<double>(random.bits());
    if (n % 2 == 0) value = random.uniform(-1000, 1000);
    if (!std::isfinite(value)) continue;
    const std::string text = shortest(value);
    ASSERT_TRUE(test::same_bits(std::strtod(text.c_str(), nullptr), value))
        << "seed " << seed << " draw " << n << ": " << text;
    // How many significant digits the text has, and whether one fewer could have done.
    std::size_t digits = 0;
    for (const char c : text.substr(0, text.find('e'))) {
      if (c >= '0' && c <= '9' && (digits > 0 || c != '0')) ++digits;
    }
    if (digits < 2) continue;
    char shorter[64];
    std::snprintf(shorter, sizeof shorter, "%.*e", static_cast<int>(digits) - 2, value);
    // Trailing zeros before the point count as digits here, so only a text that has none is judged.
    if (text.find('.') == std::string::npos && text.find('e') == std::string::npos) continue;
    ASSERT_FALSE(test::same_bits(std::strtod(shorter, nullptr), value))
        << "seed " << seed << " draw " << n << ": " << text << " and " << shorter;
  }
}

TEST(Text, SentenceJoinsTextsAndNumbers) {
  const std::string name = "query";
  EXPECT_EQ(sentence("[x] ", name, " has ", 12, " rows, ", std::int64_t{-7}, ' ', 0.5, " and ",
                     std::uint64_t{18446744073709551615ULL}),
            "[x] query has 12 rows, -7 0.5 and 18446744073709551615");
  EXPECT_EQ(sentence(), "");
}

}  // namespace
}  // namespace attest
