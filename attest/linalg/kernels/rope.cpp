// SPDX-License-Identifier: MIT
#include "attest/linalg/kernels/layers.h"
#include "attest/linalg/kernels/layers_io.h"

namespace attest::kernels::ATTEST_ISA {
namespace {

/// Lanes 2i and 2i + 1 exchanged.
ATTEST_INLINE F32 neighbours(F32 x) {
  const U64 pairs = bits_as<U64>(x);
  return bits_as<F32>((pairs << 32U) | (pairs >> 32U));
}
ATTEST_INLINE F64 neighbours(F64 x) {
#if defined(__AVX512F__)
  return bits_as<F64>(_mm512_permute_pd(bits_as<__m512d>(x), 0x55));
#elif defined(__AVX2__)
  return bits_as<F64>(_mm256_permute_pd(bits_as<__m256d>(x), 0x5));
#else
  return F64{x[1], x[0]};
#endif
}

// Both pairings calculate x·cos + (partner·±sin), the product in brackets rounded, so that a row
// turned in one pairing is the same row, rearranged, in the other: bit for bit.

template <class S>
ATTEST_INLINE void turn_halves(const S* x, S* y, const Calculated<S>* cosines,
                               const Calculated<S>* sines, std::int64_t pairs) {
  using T = Calculated<S>;
  sweep<T>(pairs, [&](std::int64_t i, auto which, int) {
    const Vec<T> first = Io<S>::get(x + i, which);
    const Vec<T> second = Io<S>::get(x + pairs + i, which);
    const Vec<T> cosine = Io<T>::get(cosines + i, which);
    const Vec<T> sine = Io<T>::get(sines + i, which);
    Io<S>::put(y + i, fma(first, cosine, second * -sine), which);
    Io<S>::put(y + pairs + i, fma(second, cosine, first * sine), which);
  });
}

template <class S>
ATTEST_INLINE void turn_neighbours(const S* x, S* y, const Calculated<S>* cosines,
                                   const Calculated<S>* sines, std::int64_t pairs) {
  using T = Calculated<S>;
  sweep<T>(2 * pairs, [&](std::int64_t i, auto which, int) {
    const Vec<T> own = Io<S>::get(x + i, which);
    const Vec<T> turned = neighbours(own) * Io<T>::get(sines + i, which);
    Io<S>::put(y + i, fma(own, Io<T>::get(cosines + i, which), turned), which);
  });
}

template <class S>
void turn(const RopeJob& job) noexcept {
  using T = Calculated<S>;
  const std::int64_t in_table = job.interleaved ? 2 * job.pairs : job.pairs;
  for (std::int64_t place = 0; place < job.places; ++place) {
    const T* const cosines = static_cast<const T*>(job.cos) + place * in_table;
    const T* const sines = static_cast<const T*>(job.sin) + place * in_table;
    for (std::int64_t head = 0; head < job.heads; ++head) {
      const S* const x = static_cast<const S*>(job.x) + place * job.x_place + head * job.x_head;
      S* const y = static_cast<S*>(job.y) + place * job.y_place + head * job.y_head;
      if (job.interleaved) {
        turn_neighbours(x, y, cosines, sines, job.pairs);
      } else {
        turn_halves(x, y, cosines, sines, job.pairs);
      }
      for (std::int64_t i = 2 * job.pairs; i < job.width; ++i) y[i] = x[i];
    }
  }
}

}  // namespace

RopeTable rope_table() noexcept {
  return {.turn = {turn<double>, turn<float>, turn<StoredF16>, turn<StoredBf16>}};
}

}  // namespace attest::kernels::ATTEST_ISA
