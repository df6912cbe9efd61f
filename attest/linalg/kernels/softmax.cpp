// SPDX-License-Identifier: MIT
#include "attest/linalg/kernels/functions.h"
#include "attest/linalg/kernels/layers.h"
#include "attest/linalg/kernels/layers_io.h"

namespace attest::kernels::ATTEST_ISA {
namespace {

template <class T>
inline constexpr T infinity = static_cast<T>(__builtin_inf());

/// The largest number of a row, NaN passed over: the sum of the exponentials will be NaN with it.
template <class S>
Calculated<S> peak_of(const S* x, std::int64_t cols) {
  using T = Calculated<S>;
  Vec<T> best[chains];
  for (Vec<T>& part : best) part = broadcast(-infinity<T>);
  sweep<T>(cols, [&](std::int64_t j, auto which, int chain) {
    best[chain] = larger(which.kept(Io<S>::get(x + j, which), -infinity<T>), best[chain]);
  });
  const Vec<T> all = larger(larger(best[0], best[1]), larger(best[2], best[3]));
  T peak = all[0];
  for (int lane = 1; lane < lanes<T>; ++lane) peak = all[lane] > peak ? all[lane] : peak;
  return peak;
}

template <class S, bool logarithm>
void forward(const RowJob& job) noexcept {
  using T = Calculated<S>;
  for (std::int64_t row = 0; row < job.rows; ++row) {
    const S* const x = static_cast<const S*>(job.in[0].data) + row * job.in[0].stride;
    S* const y = static_cast<S*>(job.out[0].data) + row * job.out[0].stride;
    const Vec<T> peak = broadcast(peak_of(x, job.cols));
    Chains<T> sums;
    sweep<T>(job.cols, [&](std::int64_t j, auto which, int chain) {
      const Vec<T> e = exp_of<T>(Io<S>::get(x + j, which) - peak);
      sums.part[chain] += which.kept(e, T(0));
      if constexpr (Io<S>::exact && !logarithm) Io<S>::put(y + j, e, which);
    });
    const T sum = sums.sum();
    if constexpr (logarithm) {
      const Vec<T> log_sum = broadcast(static_cast<T>(log_of_sum(sum)));
      sweep<T>(job.cols, [&](std::int64_t j, auto which, int) {
        Io<S>::put(y + j, (Io<S>::get(x + j, which) - peak) - log_sum, which);
      });
    } else {
      const Vec<T> share = broadcast(T(1) / sum);
      sweep<T>(job.cols, [&](std::int64_t j, auto which, int) {
        if constexpr (Io<S>::exact) {
          Io<S>::put(y + j, Io<S>::get(y + j, which) * share, which);
        } else {  // 16 bits would round the exponentials once more
          Io<S>::put(y + j, exp_of<T>(Io<S>::get(x + j, which) - peak) * share, which);
        }
      });
    }
  }
}

template <class S, bool logarithm>
void backward(const RowJob& job) noexcept {
  using T = Calculated<S>;
  for (std::int64_t row = 0; row < job.rows; ++row) {
    const S* const y = static_cast<const S*>(job.in[0].data) + row * job.in[0].stride;
    const S* const d_y = static_cast<const S*>(job.in[1].data) + row * job.in[1].stride;
    S* const d_x = static_cast<S*>(job.out[0].data) + row * job.out[0].stride;
    Chains<T> sums;
    sweep<T>(job.cols, [&](std::int64_t j, auto which, int chain) {
      const Vec<T> d = Io<S>::get(d_y + j, which);
      if constexpr (logarithm) {
        sums.part[chain] += d;
      } else {
        sums.part[chain] = fma(Io<S>::get(y + j, which), d, sums.part[chain]);
      }
    });
    const Vec<T> sum = broadcast(sums.sum());
    sweep<T>(job.cols, [&](std::int64_t j, auto which, int) {
      const Vec<T> d = Io<S>::get(d_y + j, which);
      const Vec<T> out = Io<S>::get(y + j, which);
      if constexpr (logarithm) {
        Io<S>::put(d_x + j, d - exp_of<T>(out) * sum, which);
      } else {
        Io<S>::put(d_x + j, out * (d - sum), which);
      }
    });
  }
}

}  // namespace

SoftmaxTable softmax_table() noexcept {
  return {.softmax = {forward<double, false>, forward<float, false>, forward<StoredF16, false>,
                      forward<StoredBf16, false>},
          .log_softmax = {forward<double, true>, forward<float, true>, forward<StoredF16, true>,
                          forward<StoredBf16, true>},
          .softmax_backward = {backward<double, false>, backward<float, false>,
                               backward<StoredF16, false>, backward<StoredBf16, false>},
          .log_softmax_backward = {backward<double, true>, backward<float, true>,
                                   backward<StoredF16, true>, backward<StoredBf16, true>}};
}

}  // namespace attest::kernels::ATTEST_ISA
