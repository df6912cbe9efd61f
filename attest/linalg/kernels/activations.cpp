// SPDX-License-Identifier: MIT
#include "attest/linalg/kernels/activate.h"
#include "attest/linalg/kernels/layers.h"
#include "attest/linalg/kernels/layers_io.h"

namespace attest::kernels::ATTEST_ISA {
namespace {

template <class S>
ATTEST_INLINE const S* input(const RowJob& job, int which, std::int64_t row) {
  return static_cast<const S*>(job.in[which].data) + row * job.in[which].stride;
}
template <class S>
ATTEST_INLINE S* output(const RowJob& job, int which, std::int64_t row) {
  return static_cast<S*>(job.out[which].data) + row * job.out[which].stride;
}

/// Calls body(Relu{}) … by the job's choice.
template <class Body>
ATTEST_INLINE void choose(int choice, const Body& body) {
  switch (choice) {
    case 0:
      return body(Relu{});
    case 1:
      return body(GeluErf{});
    case 2:
      return body(GeluTanh{});
    default:
      return body(Silu{});
  }
}

template <class S>
void forward(const RowJob& job) noexcept {
  using T = Calculated<S>;
  choose(job.choice, [&](auto f) {
    for (std::int64_t row = 0; row < job.rows; ++row) {
      const S* const x = input<S>(job, 0, row);
      S* const y = output<S>(job, 0, row);
      sweep<T>(job.cols, [&](std::int64_t j, auto which, int) {
        Io<S>::put(y + j, f.template value<T>(Io<S>::get(x + j, which)), which);
      });
    }
  });
}

// y = f(x)      d_x = d_y·f′(x)
template <class S>
void backward(const RowJob& job) noexcept {
  using T = Calculated<S>;
  choose(job.choice, [&](auto f) {
    for (std::int64_t row = 0; row < job.rows; ++row) {
      const S* const x = input<S>(job, 0, row);
      const S* const d_y = input<S>(job, 1, row);
      S* const d_x = output<S>(job, 0, row);
      sweep<T>(job.cols, [&](std::int64_t j, auto which, int) {
        const Vec<T> slope = f.template slope<T>(Io<S>::get(x + j, which));
        Io<S>::put(d_x + j, Io<S>::get(d_y + j, which) * slope, which);
      });
    }
  });
}

template <class S>
void gated(const RowJob& job) noexcept {
  using T = Calculated<S>;
  choose(job.choice, [&](auto f) {
    for (std::int64_t row = 0; row < job.rows; ++row) {
      const S* const gate = input<S>(job, 0, row);
      const S* const up = input<S>(job, 1, row);
      S* const y = output<S>(job, 0, row);
      sweep<T>(job.cols, [&](std::int64_t j, auto which, int) {
        const Vec<T> open = f.template value<T>(Io<S>::get(gate + j, which));
        Io<S>::put(y + j, open * Io<S>::get(up + j, which), which);
      });
    }
  });
}

// y = f(gate)·up      d_gate = d_y·up·f′(gate),  d_up = d_y·f(gate)
template <class S>
void gated_backward(const RowJob& job) noexcept {
  using T = Calculated<S>;
  choose(job.choice, [&](auto f) {
    for (std::int64_t row = 0; row < job.rows; ++row) {
      const S* const gate = input<S>(job, 0, row);
      const S* const up = input<S>(job, 1, row);
      const S* const d_y = input<S>(job, 2, row);
      S* const d_gate = output<S>(job, 0, row);
      S* const d_up = output<S>(job, 1, row);
      sweep<T>(job.cols, [&](std::int64_t j, auto which, int) {
        const Vec<T> x = Io<S>::get(gate + j, which);
        const Vec<T> d = Io<S>::get(d_y + j, which);
        const Vec<T> d_open = d * Io<S>::get(up + j, which);
        Io<S>::put(d_gate + j, d_open * f.template slope<T>(x), which);
        Io<S>::put(d_up + j, d * f.template value<T>(x), which);
      });
    }
  });
}

}  // namespace

ActivationTable activation_table() noexcept {
  return {
      .forward = {forward<double>, forward<float>, forward<StoredF16>, forward<StoredBf16>},
      .backward = {backward<double>, backward<float>, backward<StoredF16>, backward<StoredBf16>},
      .gated = {gated<double>, gated<float>, gated<StoredF16>, gated<StoredBf16>},
      .gated_backward = {gated_backward<double>, gated_backward<float>, gated_backward<StoredF16>,
                         gated_backward<StoredBf16>}};
}

}  // namespace attest::kernels::ATTEST_ISA
