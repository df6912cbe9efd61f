// SPDX-License-Identifier: MIT
#include "attest/linalg/kernels/functions.h"
#include "attest/linalg/kernels/layers.h"
#include "attest/linalg/kernels/layers_io.h"

namespace attest::kernels::ATTEST_ISA {
namespace {

/// x times the share of it that passes; where nothing passes, −∞ counts too.
template <class T>
ATTEST_INLINE Vec<T> passed(Vec<T> x, Vec<T> share) {
  return select(share == Vec<T>{}, broadcast(T(-0.0)), x * share);
}

/// Flat on the left, the identity on the right: what every slope comes to where the bend is below
/// the smallest number. Asked apart, because ∞ times a vanished density is no number.
template <class T>
ATTEST_INLINE Vec<T> bent(Vec<T> bend, Vec<T> x, Vec<T> slope) {
  const Vec<T> straight = select(x > Vec<T>{}, broadcast(T(1)), Vec<T>{});
  return select(bend == Vec<T>{}, straight, slope);
}

// Each activation: f(x), then f′(x).

struct Relu {
  template <class T>
  ATTEST_INLINE static Vec<T> value(Vec<T> x) {
    return select(x <= Vec<T>{}, Vec<T>{}, x);  // NaN stays
  }
  template <class T>
  ATTEST_INLINE static Vec<T> slope(Vec<T> x) {
    const Vec<T> step = select(x > Vec<T>{}, broadcast(T(1)), Vec<T>{});
    return select(x == x, step, x);
  }
};

struct GeluErf {
  template <class T>
  ATTEST_INLINE static Vec<T> value(Vec<T> x) {
    const NormalParts<T> p = normal_parts<T>(size<T>(x));
    return passed<T>(x, distribution<T>(x, p));
  }
  template <class T>
  ATTEST_INLINE static Vec<T> slope(Vec<T> x) {
    constexpr T most = NormalTailFit<T>::most;
    constexpr T density_at_0 = T(0.398942280401432677940);  // 1/√(2π)
    const NormalParts<T> p = normal_parts<T>(size<T>(x));
    // Φ(x) + x·φ(x); φ is 0 at the limits where x is held
    return fma(held<T>(x, -most, most) * broadcast(density_at_0), p.bell, distribution<T>(x, p));
  }

 private:
  template <class T>
  ATTEST_INLINE static Vec<T> size(Vec<T> x) {
    return held<T>(absolute<T>(x), T(0), NormalTailFit<T>::most);
  }
  template <class T>
  ATTEST_INLINE static Vec<T> distribution(Vec<T> x, const NormalParts<T>& p) {
    const Vec<T> outside = select(x < Vec<T>{}, p.tail, broadcast(T(1)) - p.tail);
    return select(absolute<T>(x) < broadcast(T(1)), normal_middle<T>(x), outside);
  }
};

/// x·σ(2w), w = √(2/π)·(x + 0.044715·x³).
struct GeluTanh {
  static constexpr double twice = 1.59576912160573071176;  // 2·√(2/π)
  static constexpr double cubic = 0.044715;

  template <class T>
  ATTEST_INLINE static Vec<T> value(Vec<T> x) {
    return passed<T>(x, sigmoid_of<T>(angle<T>(x)).here);
  }
  template <class T>
  ATTEST_INLINE static Vec<T> slope(Vec<T> x) {
    const Sigmoid<T> s = sigmoid_of<T>(angle<T>(x));
    // σ(2w) + x·(2w)′·σ(2w)·σ(−2w)
    const Vec<T> d_angle =
        fma(x * x, broadcast(T(3 * twice * cubic)), broadcast(static_cast<T>(twice)));
    return bent<T>(s.smaller, x, fma(x * d_angle * s.here, s.opposite, s.here));
  }

 private:
  template <class T>
  ATTEST_INLINE static Vec<T> angle(Vec<T> x) {
    return x * fma(x * x, broadcast(T(twice * cubic)), broadcast(static_cast<T>(twice)));
  }
};

struct Silu {
  template <class T>
  ATTEST_INLINE static Vec<T> value(Vec<T> x) {
    return passed<T>(x, sigmoid_of<T>(x).here);
  }
  template <class T>
  ATTEST_INLINE static Vec<T> slope(Vec<T> x) {
    const Sigmoid<T> s = sigmoid_of<T>(x);
    return bent<T>(s.smaller, x, s.here * fma(x, s.opposite, broadcast(T(1))));
  }
};

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
