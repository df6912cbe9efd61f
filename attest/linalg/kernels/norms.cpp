// SPDX-License-Identifier: MIT
#include "attest/linalg/kernels/layers.h"
#include "attest/linalg/kernels/layers_io.h"

namespace attest::kernels::ATTEST_ISA {
namespace {

/// A row, measured.
template <class T>
struct Measured {
  T mean;
  T inverse;  // 1/√(variance + ε)
};

/// Σ x first; then Σ d and Σ d² of d = x − mean, where Σ d says how far the first mean was off:
///
///     mean += Σ d/C,    variance = Σ d²/C − (Σ d/C)²
///
/// which leaves a mean as good as its number type, however long the row and however far from zero.
/// The scalars are double for float rows too: they cost nothing and cannot overflow.
template <class S, bool centred>
ATTEST_INLINE Measured<Calculated<S>> measure(const S* x, std::int64_t cols, double epsilon) {
  using T = Calculated<S>;
  const auto count = static_cast<double>(cols);
  T rough = 0;
  if constexpr (centred) {
    Chains<T> sums;
    sweep<T>(cols, [&](std::int64_t j, auto which, int chain) {
      sums.part[chain] += Io<S>::get(x + j, which);
    });
    rough = static_cast<T>(static_cast<double>(sums.sum()) / count);
  }
  const Vec<T> centre = broadcast(rough);
  Chains<T> off;
  Chains<T> squares;
  sweep<T>(cols, [&](std::int64_t j, auto which, int chain) {
    Vec<T> d = Io<S>::get(x + j, which);
    if constexpr (centred) {
      d = which.kept(d - centre, T(0));
      off.part[chain] += d;
    }
    squares.part[chain] = fma(d, d, squares.part[chain]);
  });
  const double square = static_cast<double>(squares.sum()) / count;
  double variance = square;
  double shift = 0;
  if constexpr (centred) {
    shift = static_cast<double>(off.sum()) / count;
    if (square < __builtin_inf()) variance = square - shift * shift;
    if (variance < 0) variance = 0;  // rounding, of a row of equal numbers
  }
  const double inverse = 1 / __builtin_sqrt(variance + epsilon);
  return {static_cast<T>(static_cast<double>(rough) + shift), static_cast<T>(inverse)};
}

template <class S, bool centred>
void forward_rows(const NormJob& job) {
  using T = Calculated<S>;
  const auto* const gain = static_cast<const S*>(job.gain);
  const auto* const bias = static_cast<const S*>(job.bias);
  for (std::int64_t row = 0; row < job.rows; ++row) {
    const S* const x = static_cast<const S*>(job.x.data) + row * job.x.stride;
    S* const y = static_cast<S*>(job.y.data) + row * job.y.stride;
    const Measured<T> m = measure<S, centred>(x, job.cols, job.epsilon);
    if (job.mean != nullptr) static_cast<T*>(job.mean)[row * job.mean_stride] = m.mean;
    if (job.inverse != nullptr) static_cast<T*>(job.inverse)[row * job.inverse_stride] = m.inverse;
    const Vec<T> mean = broadcast(m.mean);
    const Vec<T> inverse = broadcast(m.inverse);
    sweep<T>(job.cols, [&](std::int64_t j, auto which, int) {
      Vec<T> n = Io<S>::get(x + j, which);
      if constexpr (centred) n = n - mean;
      n = n * inverse;
      if (gain != nullptr) n = n * Io<S>::get(gain + j, which);
      if (bias != nullptr) n = n + Io<S>::get(bias + j, which);
      Io<S>::put(y + j, n, which);
    });
  }
}

template <class S>
void forward(const NormJob& job) noexcept {
  if (job.centred) {
    forward_rows<S, true>(job);
  } else {
    forward_rows<S, false>(job);
  }
}

/// One row of numbers on the way back: n and d_n = d_y·gain, register by register.
template <class S, bool centred>
struct BackRow {
  using T = Calculated<S>;
  const S* x;
  const S* d_y;
  const S* gain;
  Vec<T> mean;
  Vec<T> inverse;

  template <class Which>
  ATTEST_INLINE Vec<T> normalised(std::int64_t j, Which which) const {
    const Vec<T> given = Io<S>::get(x + j, which);
    if constexpr (centred) return which.kept((given - mean) * inverse, T(0));
    return which.kept(given * inverse, T(0));
  }
  template <class Which>
  ATTEST_INLINE Vec<T> d_normalised(std::int64_t j, Which which) const {
    const Vec<T> d = Io<S>::get(d_y + j, which);
    return gain != nullptr ? d * Io<S>::get(gain + j, which) : d;
  }
};

template <class S, bool centred>
void backward_rows(const NormBackwardJob& job) {
  using T = Calculated<S>;
  auto* const d_gain = static_cast<T*>(job.d_gain);
  auto* const d_bias = static_cast<T*>(job.d_bias);
  const T count = static_cast<T>(job.cols);
  for (std::int64_t row = 0; row < job.rows; ++row) {
    BackRow<S, centred> r{static_cast<const S*>(job.x.data) + row * job.x.stride,
                          static_cast<const S*>(job.d_y.data) + row * job.d_y.stride,
                          static_cast<const S*>(job.gain), Vec<T>{},
                          broadcast(static_cast<const T*>(job.inverse)[row * job.inverse_stride])};
    if constexpr (centred) {
      r.mean = broadcast(static_cast<const T*>(job.mean)[row * job.mean_stride]);
    }
    // y = n·gain + bias        d_n = d_y·gain,  d_gain += d_y·n,  d_bias += d_y
    Chains<T> shifts;
    Chains<T> stretches;
    sweep<T>(job.cols, [&](std::int64_t j, auto which, int chain) {
      const Vec<T> n = r.normalised(j, which);
      const Vec<T> d_n = r.d_normalised(j, which);
      if constexpr (centred) shifts.part[chain] += d_n;
      stretches.part[chain] = fma(d_n, n, stretches.part[chain]);
      if (d_gain == nullptr) return;
      const Vec<T> d = Io<S>::get(r.d_y + j, which);
      Io<T>::put(d_gain + j, fma(d, n, Io<T>::get(d_gain + j, which)), which);
      Io<T>::put(d_bias + j, d + Io<T>::get(d_bias + j, which), which);
    });
    if (job.d_x.data == nullptr) continue;
    // n = (x − mean)·inverse   d_x = (d_n − Σ d_n/C − n·Σ (d_n·n)/C)·inverse
    S* const d_x = static_cast<S*>(job.d_x.data) + row * job.d_x.stride;
    const Vec<T> shift = broadcast(shifts.sum() / count);
    const Vec<T> stretch = broadcast(stretches.sum() / count);
    sweep<T>(job.cols, [&](std::int64_t j, auto which, int) {
      Vec<T> d = r.d_normalised(j, which);
      if constexpr (centred) d = d - shift;
      Io<S>::put(d_x + j, fma(-r.normalised(j, which), stretch, d) * r.inverse, which);
    });
  }
}

template <class S>
void backward(const NormBackwardJob& job) noexcept {
  if (job.centred) {
    backward_rows<S, true>(job);
  } else {
    backward_rows<S, false>(job);
  }
}

template <class T>
void add_parts(const NormSumJob& job) noexcept {
  const auto* const from = static_cast<const T*>(job.from);
  auto* const to = static_cast<T*>(job.to);
  sweep<T>(job.cols, [&](std::int64_t j, auto which, int) {
    Vec<T> sum{};
    for (std::int64_t part = 0; part < job.parts; ++part) {
      sum += Io<T>::get(from + part * job.part_stride + j, which);
    }
    Io<T>::put(to + j, sum, which);
  });
}

}  // namespace

NormTable norm_table() noexcept {
  return {
      .forward = {forward<double>, forward<float>, forward<StoredF16>, forward<StoredBf16>},
      .backward = {backward<double>, backward<float>, backward<StoredF16>, backward<StoredBf16>},
      .sum_f64 = add_parts<double>,
      .sum_f32 = add_parts<float>};
}

}  // namespace attest::kernels::ATTEST_ISA
