// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <cstdlib>

/// How much of what a test could try it does try.
///
/// A program that includes this header runs twice: with a part of its draws among the tests of every
/// day, and with all of them under the label `long` (ATTEST_ALL_DRAWS=1). Under a sanitizer, which is
/// there for what the code does and not for the figures, the part is an eighth.
namespace attest::test {

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define ATTEST_FEWER_DRAWS
#endif
#endif

#if defined(ATTEST_FEWER_DRAWS)
inline constexpr std::uint64_t fewer = 8;
#else
inline constexpr std::uint64_t fewer = 1;
#endif

[[nodiscard]] inline bool all_draws() { return std::getenv("ATTEST_ALL_DRAWS") != nullptr; }

/// `all`, or as many as a run of every day has time for: at least one.
[[nodiscard]] inline std::uint64_t draws(std::uint64_t some, std::uint64_t all) {
  return all_draws() ? all : (some + fewer - 1) / fewer;
}

/// Of a list, every so-manieth is tried: 1 for all of it.
[[nodiscard]] inline std::uint64_t stride(std::uint64_t some) {
  return all_draws() ? 1 : some * fewer;
}

}  // namespace attest::test
