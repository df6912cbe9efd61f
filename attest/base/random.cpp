// SPDX-License-Identifier: MIT
#include "attest/base/random.h"

namespace attest {

std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter,
                                    std::array<std::uint32_t, 2> key) noexcept {
  // The multipliers and the Weyl increments (golden ratio, √3 − 1) of the paper's table 2.
  constexpr std::uint64_t multiplier0 = 0xD2511F53U;
  constexpr std::uint64_t multiplier1 = 0xCD9E8D57U;
  constexpr std::uint32_t weyl0 = 0x9E3779B9U;
  constexpr std::uint32_t weyl1 = 0xBB67AE85U;
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = multiplier0 * counter[0];
    const std::uint64_t product1 = multiplier1 * counter[2];
    counter = {static_cast<std::uint32_t>(product1 >> 32U) ^ counter[1] ^ key[0],
               static_cast<std::uint32_t>(product1),
               static_cast<std::uint32_t>(product0 >> 32U) ^ counter[3] ^ key[1],
               static_cast<std::uint32_t>(product0)};
    key[0] += weyl0;
    key[1] += weyl1;
  }
  return counter;
}

namespace {

/// The two 64-bit words of block `block`.
std::array<std::uint64_t, 2> words_of(std::uint64_t seed, std::uint64_t stream,
                                      std::uint64_t block) noexcept {
  const auto words =
      philox({static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32U),
              static_cast<std::uint32_t>(stream), static_cast<std::uint32_t>(stream >> 32U)},
             {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32U)});
  return {words[0] | (static_cast<std::uint64_t>(words[1]) << 32U),
          words[2] | (static_cast<std::uint64_t>(words[3]) << 32U)};
}

}  // namespace

std::uint64_t Random::at(std::uint64_t position) const noexcept {
  return words_of(seed_, stream_, position / 2)[position % 2];
}

std::int64_t Random::between(std::int64_t low, std::int64_t high) noexcept {
  const std::uint64_t count =
      static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low) + 1;
  if (count == 0) return static_cast<std::int64_t>(bits());  // all 2⁶⁴ of them
  // Rejecting the short last interval keeps every value equally likely.
  const std::uint64_t limit = UINT64_MAX - (UINT64_MAX % count + 1) % count;
  std::uint64_t word = bits();
  while (word > limit) word = bits();
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(low) + word % count);
}

double Random::bell() noexcept {
  double sum = -6;
  std::array<std::uint64_t, 2> words{};
  for (int i = 0; i < 12; ++i, ++position_) {
    // A block has two of them: it is made once for both.
    if (i == 0 || position_ % 2 == 0) words = words_of(seed_, stream_, position_ / 2);
    sum += static_cast<double>(words[position_ % 2] >> 11U) * 0x1p-53;
  }
  return sum;
}

}  // namespace attest
