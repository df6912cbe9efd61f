// SPDX-License-Identifier: MIT
#include "attest/linalg/kernels/machine.h"
#include "attest/linalg/kernels/vec.h"

namespace attest::kernels::ATTEST_ISA {
namespace {

constexpr int chains = 16;  // six cycles of latency on some cores, two units

ATTEST_INLINE __m512 add_products(__m512 sum, __m512bh a, __m512bh b) {
  return _mm512_dpbf16_ps(sum, a, b);
}

/// Equal chains of equal numbers: without this a compiler may keep one of them.
ATTEST_INLINE void changed(__m512& a, __m512& b, __m512& c, __m512& d) {
  __asm__ volatile("" : "+v"(a), "+v"(b), "+v"(c), "+v"(d));
}

float multiply_add(std::int64_t rounds) {
  constexpr std::int32_t two_ones = 0x3F803F80;  // a pair of bfloat16 1
  const __m512bh ones = bits_as<__m512bh>(_mm512_set1_epi32(two_ones));
  __m512 c0 = _mm512_setzero_ps();
  __m512 c1 = c0, c2 = c0, c3 = c0, c4 = c0, c5 = c0, c6 = c0, c7 = c0, c8 = c0, c9 = c0, c10 = c0,
         c11 = c0, c12 = c0, c13 = c0, c14 = c0, c15 = c0;
  for (std::int64_t round = 0; round < rounds; ++round) {
    changed(c0, c1, c2, c3);
    changed(c4, c5, c6, c7);
    changed(c8, c9, c10, c11);
    changed(c12, c13, c14, c15);
    c0 = add_products(c0, ones, ones);
    c1 = add_products(c1, ones, ones);
    c2 = add_products(c2, ones, ones);
    c3 = add_products(c3, ones, ones);
    c4 = add_products(c4, ones, ones);
    c5 = add_products(c5, ones, ones);
    c6 = add_products(c6, ones, ones);
    c7 = add_products(c7, ones, ones);
    c8 = add_products(c8, ones, ones);
    c9 = add_products(c9, ones, ones);
    c10 = add_products(c10, ones, ones);
    c11 = add_products(c11, ones, ones);
    c12 = add_products(c12, ones, ones);
    c13 = add_products(c13, ones, ones);
    c14 = add_products(c14, ones, ones);
    c15 = add_products(c15, ones, ones);
  }
  const __m512 sums[chains] = {c0, c1, c2,  c3,  c4,  c5,  c6,  c7,
                               c8, c9, c10, c11, c12, c13, c14, c15};
  float total = 0;
  for (const __m512& sum : sums) total += sum_of_lanes<float>(bits_as<F32>(sum));
  return total / static_cast<float>(chains * lanes<float>);
}

}  // namespace

const Bf16Kernels machine_bf16{
    .multiply_add = multiply_add,
    .multiply_add_flops = 4.0 * chains * lanes<float>,
};

}  // namespace attest::kernels::ATTEST_ISA
