// SPDX-License-Identifier: MIT
#pragma once

#include <cfenv>

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

namespace attest::lab {

/// The floating-point environment of the exact tier, for the life of this object.
///
/// On construction: round to nearest even, gradual underflow, no traps. On destruction: whatever
/// the host program had set before, status flags included. Every public entry point of the exact
/// tier holds one, so that a host that chose flush-to-zero or another rounding mode changes no bit.
///
/// Cost          one register read when the host's environment is already the standard one.
/// See also      docs/accuracy.md, "The same bits everywhere".
class ExactEnvironment {
 public:
#if defined(__SSE2__)
  ExactEnvironment() noexcept : host_(_mm_getcsr()) {
    // Everything but the six sticky status flags must be as the standard says: traps masked,
    // rounding to nearest, neither flush-to-zero nor denormals-are-zero.
    constexpr unsigned status = 0x003FU;
    constexpr unsigned standard = 0x1F80U;
    changed_ = (host_ & ~status) != standard;
    if (changed_) _mm_setcsr(standard);
    barrier();
  }
  ~ExactEnvironment() noexcept {
    barrier();
    if (changed_) _mm_setcsr(host_);
  }
#else
  ExactEnvironment() noexcept {
    std::fegetenv(&host_);
    std::fesetenv(FE_DFL_ENV);
    barrier();
  }
  ~ExactEnvironment() noexcept {
    barrier();
    std::fesetenv(&host_);
  }
#endif
  ExactEnvironment(const ExactEnvironment&) = delete;
  ExactEnvironment& operator=(const ExactEnvironment&) = delete;

  /// Forces the value to be computed before, or used after, this point: compilers do not know that
  /// arithmetic depends on the environment and would move it across the change.
  static void pin(double& value) noexcept {
#if defined(__SSE2__)
    asm volatile("" : "+x"(value)::"memory");
#else
    asm volatile("" : "+m"(value)::"memory");
#endif
  }

 private:
  static void barrier() noexcept { asm volatile("" ::: "memory"); }

#if defined(__SSE2__)
  unsigned host_;
  bool changed_;
#else
  std::fenv_t host_;
#endif
};

}  // namespace attest::lab
