// SPDX-License-Identifier: MIT
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "attest/attention/attention.h"
#include "attest/attention/attention_backward.h"
#include "attest/base/widened.h"
#include "tests/attention/engine_cases.h"
#include "tests/support/bits.h"

/// Running the engine on a case: in the case's type, with the case's strides.
namespace attest::test {

/// Elements with strides, among gaps of NaN.
template <class T, std::size_t Rank>
struct Placed {
  std::vector<T> memory{};
  View<T, Rank> view{};
  std::vector<bool> used{};

  /// Whether nothing was written between the elements.
  [[nodiscard]] bool gaps_are_untouched() const {
    for (std::size_t n = 0; n < memory.size(); ++n) {
      if (!used[n] && !std::isnan(widened(memory[n]))) return false;
    }
    return true;
  }
};

/// Calls f(index) for every index of a shape.
template <std::size_t Rank, class F>
void for_each_index(const std::array<std::int64_t, Rank>& shape, F f) {
  std::int64_t count = 1;
  for (const std::int64_t extent : shape) count *= extent;
  for (std::int64_t n = 0; n < count; ++n) {
    std::array<std::int64_t, Rank> index{};
    std::int64_t rest = n;
    for (std::size_t axis = Rank; axis-- > 0;) {
      index[axis] = rest % shape[axis];
      rest /= shape[axis];
    }
    f(index);
  }
}

template <class T, std::size_t Rank>
std::int64_t offset_in(const View<T, Rank>& view, const std::array<std::int64_t, Rank>& index) {
  std::int64_t out = 0;
  for (std::size_t axis = 0; axis < Rank; ++axis) out += index[axis] * view.strides[axis];
  return out;
}

template <class T>
Placed<T, 4> place_for(const Shape& extents, Layout layout) {
  const std::array<std::int64_t, 4> shape{extents[0], extents[1], extents[2], extents[3]};
  const std::int64_t step = layout == Layout::every_third ? 3 : 1;
  const std::int64_t row = (shape[3] * step) + (layout == Layout::padded ? 3 : 0);
  std::array<std::int64_t, 4> strides{shape[1] * shape[2] * row, shape[2] * row, row, step};
  if (layout == Layout::heads_inside) {
    strides = {shape[1] * shape[2] * row, row, shape[1] * row, step};
  }
  Placed<T, 4> out;
  const auto size = static_cast<std::size_t>(shape[0] * shape[1] * shape[2] * row);
  out.memory.assign(size, attest::rounded_to<T>(std::numeric_limits<double>::quiet_NaN()));
  out.used.assign(size, false);
  T* first = out.memory.data();
  if (layout == Layout::backwards && shape[2] > 0) {
    first += (shape[2] - 1) * row;
    strides[2] = -row;
  }
  static T nothing{};
  out.view = View<T, 4>(first == nullptr ? &nothing : first, shape, strides);
  for_each_index(shape, [&](const auto& index) {
    out.used[static_cast<std::size_t>(first - out.memory.data() + offset_in(out.view, index))] =
        true;
  });
  return out;
}

template <class T>
Placed<T, 4> placed(const Tensor<double>& tensor, Layout layout) {
  Placed<T, 4> out = place_for<T>(tensor.shape(), layout);
  const auto from = tensor.view<4>();
  for_each_index(out.view.extents, [&](const auto& index) {
    out.view.data[offset_in(out.view, index)] =
        attest::rounded_to<T>(from.data[offset_in(from, index)]);
  });
  return out;
}

template <class T, std::size_t Rank>
Tensor<double> widened_tensor(const View<const T, Rank>& view) {
  Tensor<double> out(Shape(view.extents.begin(), view.extents.end()));
  std::size_t n = 0;
  for_each_index(view.extents, [&](const auto& index) {
    out.elements()[n++] = widened(view.data[offset_in(view, index)]);
  });
  return out;
}
template <class T>
Tensor<double> widened_tensor(const Tensor<T>& tensor) {
  Tensor<double> out(tensor.shape());
  for (std::size_t n = 0; n < out.size(); ++n) out.elements()[n] = widened(tensor.elements()[n]);
  return out;
}

/// A case in its own types. Not copyable: the views look into it.
template <class T, class Bias>
struct TypedCase {
  Placed<T, 4> query, key, value;
  Placed<Bias, 4> bias{};
  AttentionOptions<Bias> options{};

  explicit TypedCase(const EngineCase& c)
      : query(placed<T>(c.query, c.layout)),
        key(placed<T>(c.key, c.layout)),
        value(placed<T>(c.value, c.layout)) {
    if (c.bias) bias = placed<Bias>(*c.bias, Layout::every_third);
    options = options_with<Bias>(c.options(), bias.view);
  }
  TypedCase(const TypedCase&) = delete;
  TypedCase& operator=(const TypedCase&) = delete;
  [[nodiscard]] AttentionInputs<T> inputs() const { return {query.view, key.view, value.view}; }
};

/// Calls f<T, Bias>() for the types of the case.
template <class F>
auto with_types(const EngineCase& c, F f) {
  const bool narrow = c.bias_storage == DType::bf16;
  switch (c.storage) {
    case DType::f64:
      return f.template operator()<double, double>();
    case DType::bf16:
      return narrow ? f.template operator()<BFloat16, BFloat16>()
                    : f.template operator()<BFloat16, float>();
    case DType::f16:
      return narrow ? f.template operator()<Half, BFloat16>()
                    : f.template operator()<Half, float>();
    default:
      return narrow ? f.template operator()<float, BFloat16>()
                    : f.template operator()<float, float>();
  }
}

struct EngineForward {
  std::optional<Failure> failure{};
  Tensor<double> output{};       // [B, H, T, E]
  Tensor<double> log_sum_exp{};  // [B, H, T]
  bool gaps_untouched = true;
};

/// The engine's results, widened; written into memory of the case's layout.
inline EngineForward run_engine(const EngineCase& c, const Execution& execution = {}) {
  return with_types(c, [&]<class T, class Bias>() {
    const TypedCase<T, Bias> typed(c);
    Placed<T, 4> output = place_for<T>(c.output_shape(), c.layout);
    const Shape rows{c.query.extent(0), c.query.extent(1), c.query.extent(2)};
    Tensor<AccumulatorOf<T>> sums(rows);
    const AttentionOutputs<T> outputs{output.view, sums.template view<3>()};
    const auto done = try_attention(outputs, typed.inputs(), typed.options, execution);
    EngineForward out;
    if (!done) out.failure = done.failure();
    const View<const T, 4> written = output.view;
    out.output = widened_tensor(written);
    out.log_sum_exp = widened_tensor(sums);
    out.gaps_untouched = output.gaps_are_untouched();
    return out;
  });
}

/// The instruction sets that this machine runs, or the one that ATTEST_ISA forces.
inline std::vector<Isa> present_isas() {
  if (std::getenv("ATTEST_ISA") != nullptr) return {default_isa().value()};
  std::vector<Isa> out;
  for (const IsaState& state : instruction_sets()) {
    if (state.built && state.present) out.push_back(state.isa);
  }
  return out;
}

/// The same bits, the sign of zero included; any NaN for any NaN.
inline ::testing::AssertionResult same_bits(const EngineForward& a, const EngineForward& b) {
  if (auto same = same_bits(a.output.elements(), b.output.elements()); !same) {
    return same << " of the output";
  }
  if (auto same = same_bits(a.log_sum_exp.elements(), b.log_sum_exp.elements()); !same) {
    return same << " of log_sum_exp";
  }
  return ::testing::AssertionSuccess();
}

}  // namespace attest::test
