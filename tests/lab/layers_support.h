// SPDX-License-Identifier: MIT
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "attest/base/random.h"
#include "attest/io/safetensors.h"
#include "attest/lab/oracle.h"
#include "tests/support/onnx_nodes.h"

// What the tests of layers, positions and blocks share: random tensors, the oracle as judge with a
// bound for each number, and the published ONNX vectors.
namespace attest::lab::testing {

inline constexpr double u = 0x1p-53;  // half the distance from 1 to the next number

inline Tensor<double> random_tensor(Random& random, Shape shape, double low = -1, double high = 1) {
  Tensor<double> tensor(std::move(shape));
  for (double& value : tensor.elements()) value = random.uniform(low, high);
  return tensor;
}

inline Tensor<double> matrix(Shape shape, std::vector<double> values) {
  return Tensor<double>(std::move(shape), values);
}

inline View<const double, 2> view(const Tensor<double>& tensor) { return tensor.view<2>(); }
inline View<const double, 1> vector_view(const Tensor<double>& tensor) { return tensor.view<1>(); }

/// "id: message", or that there was no failure.
template <class T>
std::string message_of(const Result<T>& result) {
  return result ? "no failure" : result.failure().id + ": " + result.failure().message;
}

inline std::string seed_text(std::uint64_t seed) { return "seed " + std::to_string(seed); }

/// Equal bits, element by element.
inline void expect_same_bits(const Tensor<double>& a, const Tensor<double>& b) {
  ASSERT_EQ(a.shape(), b.shape());
  for (std::size_t n = 0; n < a.size(); ++n) {
    EXPECT_EQ(std::bit_cast<std::uint64_t>(a.data()[n]), std::bit_cast<std::uint64_t>(b.data()[n]))
        << "element " << n << ": " << a.data()[n] << " and " << b.data()[n];
  }
}

/// Measures values against the oracle, and says at its end how much of their bounds they used.
class Bound {
 public:
  explicit Bound(std::string what) : what_(std::move(what)) {}
  Bound(const Bound&) = delete;
  Bound& operator=(const Bound&) = delete;
  ~Bound() {
    std::printf("[   used   ] %s: %.3f of the bound, %zu numbers\n", what_.c_str(), worst_, count_);
    EXPECT_GT(count_, 0U) << what_ << ": nothing was compared";
  }

  /// |value − exact| ≤ bound.
  void check(double value, const oracle::Real& exact, double bound) {
    ++count_;
    const oracle::Real distance = abs(oracle::Real(value) - exact);
    EXPECT_TRUE(distance <= oracle::Real(bound))
        << what_ << ", number " << count_ << ": " << value << " instead of "
        << oracle::digits(exact, 20) << ", off by " << oracle::digits(distance, 3) << ", bound "
        << bound;
    if (bound > 0) worst_ = std::max(worst_, oracle::nearest_double(distance / bound));
  }

  /// The same for a whole tensor, the bound being `factor` times its largest exact number.
  void check(const Tensor<double>& values, const oracle::OracleTensor& exact, double factor) {
    ASSERT_EQ(values.shape(), exact.shape) << what_;
    double largest = 0;
    for (const oracle::Real& number : exact.values) {
      largest = std::max(largest, oracle::nearest_double(abs(number)));
    }
    for (std::size_t n = 0; n < values.size(); ++n) {
      check(values.data()[n], exact.values[n], factor * largest);
    }
  }

 private:
  std::string what_;
  double worst_ = 0;
  std::size_t count_ = 0;
};

// ---- the published vectors --------------------------------------------------------------------

/// Within the tolerance that the vectors' index states for float32.
inline void expect_near_onnx(const Tensor<double>& got, const Tensor<double>& published) {
  ASSERT_EQ(got.size(), published.size());
  for (std::size_t n = 0; n < got.size(); ++n) {
    EXPECT_NEAR(got.data()[n], published.data()[n], 1e-5) << "element " << n;
  }
}

}  // namespace attest::lab::testing
