// SPDX-License-Identifier: MIT
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "attest/base/dtype.h"
#include "attest/base/random.h"
#include "attest/base/tensor.h"
#include "attest/base/threads.h"
#include "attest/linalg/execution.h"

/// What the tests of the layers share: numbers of any storage type, bounds, and the plain loop as a
/// rival.
namespace attest::test::layers {

inline constexpr double inf = std::numeric_limits<double>::infinity();
inline constexpr double nan = std::numeric_limits<double>::quiet_NaN();

/// Every instruction set that this machine has.
inline std::vector<Isa> present_sets() {
  std::vector<Isa> out;
  for (const IsaState& row : instruction_sets()) {
    if (row.present) out.push_back(row.isa);
  }
  return out;
}

template <class S>
S stored(double x) {
  if constexpr (std::is_same_v<S, Half>) {
    return to_half(x);
  } else if constexpr (std::is_same_v<S, BFloat16>) {
    return to_bfloat16(x);
  } else {
    return static_cast<S>(x);
  }
}
template <class S>
double number(S x) {
  if constexpr (std::is_floating_point_v<S>) {
    return static_cast<double>(x);
  } else {
    return to_double(x);
  }
}

template <class S>
Tensor<S> stored(const Tensor<double>& x) {
  Tensor<S> out(x.shape());
  for (std::size_t n = 0; n < x.size(); ++n) out.data()[n] = stored<S>(x.data()[n]);
  return out;
}
template <class S>
Tensor<double> numbers(const Tensor<S>& x) {
  Tensor<double> out(x.shape());
  for (std::size_t n = 0; n < x.size(); ++n) out.data()[n] = number(x.data()[n]);
  return out;
}

/// Numbers that S has, as doubles, each row of another size.
template <class S>
Tensor<double> random_rows(Random& random, Shape shape, double size) {
  Tensor<double> out(std::move(shape));
  const std::int64_t width = std::max<std::int64_t>(1, out.extent(out.rank() - 1));
  for (std::size_t n = 0; n < out.size(); ++n) {
    const auto row = static_cast<std::int64_t>(n) / width;
    const double stretch = row % 3 == 0 ? 1 : row % 3 == 1 ? 0.01 : 0.3;
    out.data()[n] = number(stored<S>(random.uniform(-size, size) * stretch));
  }
  return out;
}

template <class S>
bool same_bytes(const Tensor<S>& a, const Tensor<S>& b) {
  return a.shape() == b.shape() && std::memcmp(a.data(), b.data(), a.size() * sizeof(S)) == 0;
}

/// u of what is calculated with, and the smallest subnormal.
template <class S>
inline constexpr double unit = std::is_same_v<S, double> ? 0x1p-53 : 0x1p-24;
template <class S>
inline constexpr double least = std::is_same_v<S, double> ? 0x1p-1074 : 0x1p-149;

/// What rounding a number of this size to storage adds: nothing where it is calculated with.
template <class S>
double storing(double size) {
  if constexpr (std::is_same_v<S, Half>) {
    return 0x1p-11 * size + 0x1p-25;
  } else if constexpr (std::is_same_v<S, BFloat16>) {
    return 0x1p-8 * size + 0x1p-134;
  } else {
    return 0;
  }
}

template <class S>
constexpr std::string_view type_name() {
  return name_of(dtype_of<S>);
}

/// Holds results against the exact twin's by a bound, and keeps how much of it was used, by us and by
/// a plain loop in the same type. DESIGN: a bound alone is too loose to catch a sloppy kernel.
class Contest {
 public:
  Contest(std::string name, Isa isa, std::string_view type)
      : name_(std::move(name) + " " + std::string(type) + " " + std::string(attest::name_of(isa))) {
  }

  /// Two results for one element; NaN and infinities must be those of the twin.
  void judge(double ours, double plain, double exact, double bound, const std::string& where) {
    if (std::isnan(exact) || std::isinf(exact)) {
      const bool same = std::isnan(exact) ? std::isnan(ours) : ours == exact;
      if (!same && failures_++ < 5) {
        ADD_FAILURE() << name_ << " " << where << ": found " << ours << ", expected " << exact;
      }
      return;
    }
    const double error = std::fabs(ours - exact);
    if (!(error <= bound) && failures_++ < 5) {
      ADD_FAILURE() << name_ << " " << where << ": found " << ours << ", expected " << exact
                    << ", error " << error << " above the bound " << bound;
    }
    if (bound <= 0) return;
    ours_ = std::max(ours_, error / bound);
    const double rival = std::fabs(plain - exact);
    if (rival > plain_ * bound) plain_ = rival / bound;
  }

  /// Prints what was used; fails if we err more than twice as much as the plain loop.
  void finish() const {
    finish_alone();
    EXPECT_LE(ours_, 2 * plain_) << name_ << " errs more than twice as much as a plain loop";
  }
  /// The same where the plain loop loses all digits, so that to be better says nothing.
  void finish_alone() const {
    std::printf("%-44s used fraction %.3f, plain loop %.3g\n", name_.c_str(), ours_, plain_);
    EXPECT_EQ(failures_, 0) << name_;
  }

 private:
  std::string name_;
  int failures_ = 0;
  double ours_ = 0;
  double plain_ = 0;
};

/// Widths around every register's and chain's end, and long ones.
inline std::vector<std::int64_t> widths() {
  std::vector<std::int64_t> out;
  for (std::int64_t width = 1; width <= 70; ++width) out.push_back(width);
  for (const std::int64_t width : {127, 256, 1000, 4099}) out.push_back(width);
  return out;
}

}  // namespace attest::test::layers
