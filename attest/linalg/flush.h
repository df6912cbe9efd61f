// SPDX-License-Identifier: MIT
#pragma once

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace attest {

enum class Subnormals { kept, flushed };

/// While it lives, this thread rounds to nearest and traps nothing, and subnormal numbers count as said;
/// then the host's settings come back. So the host's settings, which its other threads need not share,
/// change no bit.
template <Subnormals subnormals>
class ArithmeticMode {
 public:
#if defined(__SSE__)
  ArithmeticMode() noexcept : before_(_mm_getcsr()) { _mm_setcsr(flushed ? 0x9FC0U : 0x1F80U); }
  ~ArithmeticMode() { _mm_setcsr(before_); }
#elif defined(__aarch64__)
  ArithmeticMode() noexcept {
    __asm__ volatile("mrs %0, fpcr" : "=r"(before_));
    __asm__ volatile("msr fpcr, %0" : : "r"(flushed ? 1UL << 24U : 0UL));
  }
  ~ArithmeticMode() { __asm__ volatile("msr fpcr, %0" : : "r"(before_)); }
#else
  ArithmeticMode() noexcept = default;
  ~ArithmeticMode() = default;
#endif
  ArithmeticMode(const ArithmeticMode&) = delete;
  ArithmeticMode& operator=(const ArithmeticMode&) = delete;

 private:
  static constexpr bool flushed = subnormals == Subnormals::flushed;
#if defined(__SSE__)
  unsigned before_;
#elif defined(__aarch64__)
  unsigned long before_ = 0;
#endif
};

/// Arithmetic as IEEE 754 says.
using PlainArithmetic = ArithmeticMode<Subnormals::kept>;
/// Subnormal weights would cost a kernel half its speed and change no result beyond its bound.
using FlushSubnormals = ArithmeticMode<Subnormals::flushed>;

}  // namespace attest
