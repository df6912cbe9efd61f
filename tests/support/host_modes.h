// SPDX-License-Identifier: MIT
#pragma once

#include <cfenv>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

/// What a host program may have set before it calls: rounding modes, and flushing of subnormals.
namespace attest::test {

using Numbers = std::vector<double>;

/// The results of `compute` under each mode, with the mode's name; the modes are undone again.
inline std::vector<std::pair<std::string, Numbers>> under_host_modes(
    const std::function<Numbers()>& compute) {
  std::vector<std::pair<std::string, std::function<void()>>> modes{
      {"upward", [] { std::fesetround(FE_UPWARD); }},
      {"downward", [] { std::fesetround(FE_DOWNWARD); }},
      {"toward zero", [] { std::fesetround(FE_TOWARDZERO); }}};
#if defined(__SSE2__)
  modes.emplace_back("flush to zero", [] { _mm_setcsr(_mm_getcsr() | 0x8040U); });
#endif
  std::vector<std::pair<std::string, Numbers>> out;
  for (const auto& [name, set] : modes) {
    std::fenv_t host;
    std::fegetenv(&host);
    set();
    Numbers numbers = compute();
    std::fesetenv(&host);
    out.emplace_back(name, std::move(numbers));
  }
  return out;
}

}  // namespace attest::test
