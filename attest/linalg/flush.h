// SPDX-License-Identifier: MIT
#pragma once

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace attest {

/// While it lives, subnormal results and operands count as zero on this thread, rounding is to
/// nearest and no exception traps; then the host's settings come back. Subnormal weights would cost
/// a kernel half its speed and change no result beyond its bound.
class FlushSubnormals {
 public:
#if defined(__SSE__)
  FlushSubnormals() noexcept : before_(_mm_getcsr()) { _mm_setcsr(0x9FC0U); }
  ~FlushSubnormals() { _mm_setcsr(before_); }
#elif defined(__aarch64__)
  FlushSubnormals() noexcept {
    __asm__ volatile("mrs %0, fpcr" : "=r"(before_));
    __asm__ volatile("msr fpcr, %0" : : "r"(1UL << 24U));
  }
  ~FlushSubnormals() { __asm__ volatile("msr fpcr, %0" : : "r"(before_)); }
#else
  FlushSubnormals() noexcept = default;
  ~FlushSubnormals() = default;
#endif
  FlushSubnormals(const FlushSubnormals&) = delete;
  FlushSubnormals& operator=(const FlushSubnormals&) = delete;

 private:
#if defined(__SSE__)
  unsigned before_;
#elif defined(__aarch64__)
  unsigned long before_ = 0;
#endif
};

}  // namespace attest
