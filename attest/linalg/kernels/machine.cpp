// SPDX-License-Identifier: MIT
#include "attest/linalg/kernels/machine.h"

#include "attest/linalg/kernels/vec.h"

namespace attest::kernels::ATTEST_ISA {
namespace {

// Twelve chains hide the latency of a multiply-add on every core so far (4 cycles × 2 units = 8), and
// leave registers for the two operands where there are only sixteen. Each chain is a variable of its
// own: compilers keep arrays in memory more often than they say.
constexpr int chains = 12;

/// Says that something may have changed these numbers, and costs nothing. Equal chains of numbers that
/// do not change would otherwise be one chain, or none.
ATTEST_INLINE void changed(F32& a, F32& b, F32& c, F32& d) {
#if defined(__AVX512F__)
  __asm__ volatile("" : "+v"(a), "+v"(b), "+v"(c), "+v"(d));
#elif defined(__x86_64__)
  __asm__ volatile("" : "+x"(a), "+x"(b), "+x"(c), "+x"(d));
#elif defined(__ARM_NEON)
  __asm__ volatile("" : "+w"(a), "+w"(b), "+w"(c), "+w"(d));
#else
  __asm__ volatile("" : "+m"(a), "+m"(b), "+m"(c), "+m"(d));
#endif
}

float multiply_add(std::int64_t rounds) {
  const F32 half = broadcast(0.5F);
  const F32 one = broadcast(1.0F);
  F32 c0 = broadcast(2.0F);  // 2·½ + 1 = 2: no number changes, and none becomes subnormal
  F32 c1 = c0, c2 = c0, c3 = c0, c4 = c0, c5 = c0, c6 = c0, c7 = c0, c8 = c0, c9 = c0, c10 = c0,
      c11 = c0;
  for (std::int64_t round = 0; round < rounds; ++round) {
    changed(c0, c1, c2, c3);
    changed(c4, c5, c6, c7);
    changed(c8, c9, c10, c11);
    c0 = fma(c0, half, one);
    c1 = fma(c1, half, one);
    c2 = fma(c2, half, one);
    c3 = fma(c3, half, one);
    c4 = fma(c4, half, one);
    c5 = fma(c5, half, one);
    c6 = fma(c6, half, one);
    c7 = fma(c7, half, one);
    c8 = fma(c8, half, one);
    c9 = fma(c9, half, one);
    c10 = fma(c10, half, one);
    c11 = fma(c11, half, one);
  }
  return sum_of_lanes<float>(((c0 + c1) + (c2 + c3)) + ((c4 + c5) + (c6 + c7)) +
                             ((c8 + c9) + (c10 + c11)));
}

constexpr int read_vectors = 8;  // sums at once: the additions must not be what limits

float read(const float* from, std::int64_t count) {
  constexpr std::int64_t step = read_vectors * lanes<float>;
  F32 s0{}, s1{}, s2{}, s3{}, s4{}, s5{}, s6{}, s7{};
  for (std::int64_t at = 0; at + step <= count; at += step) {
    const float* here = from + at;
    s0 += load(here);
    s1 += load(here + lanes<float>);
    s2 += load(here + 2 * lanes<float>);
    s3 += load(here + 3 * lanes<float>);
    s4 += load(here + 4 * lanes<float>);
    s5 += load(here + 5 * lanes<float>);
    s6 += load(here + 6 * lanes<float>);
    s7 += load(here + 7 * lanes<float>);
  }
  return sum_of_lanes<float>(((s0 + s1) + (s2 + s3)) + ((s4 + s5) + (s6 + s7)));
}

}  // namespace

const MachineKernels machine{
    .multiply_add = multiply_add,
    .multiply_add_flops = 2.0 * chains * lanes<float>,
    .read = read,
    .read_step = read_vectors * lanes<float>,
};

}  // namespace attest::kernels::ATTEST_ISA
