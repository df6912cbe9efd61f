// SPDX-License-Identifier: MIT
#include "attest/check/diagnose/compare_inputs.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include "attest/base/text.h"

namespace attest::check {
namespace {

std::string address_of(const std::string& name, const Shape& shape, std::size_t n) {
  std::string inside;
  for (std::size_t axis = shape.size(); axis-- > 0;) {
    const auto extent = static_cast<std::size_t>(shape[axis]);
    inside = sentence(n % extent, inside.empty() ? "" : ",", inside);
    n /= extent;
  }
  return sentence(name, "[", inside, "]");
}

class Comparison {
 public:
  explicit Comparison(double unit) : unit_(unit) {}

  template <class T>
  Result<void> add(const std::string& name, const Tensor<T>* a, const Tensor<T>* b) {
    const bool has_a = a != nullptr && a->size() != 0, has_b = b != nullptr && b->size() != 0;
    if (!has_a && !has_b) return {};
    if (!has_a || !has_b) {
      rows_.push_back(
          {.name = name, .held_by = has_a ? HeldBy::first_alone : HeldBy::second_alone});
      return {};
    }
    if (a->shape() != b->shape()) {
      return Failure{ErrorKind::shape, "shape-mismatch",
                     sentence("[diff] ", name, " has shape ", to_string(a->shape()),
                              " in the first and ", to_string(b->shape()), " in the second")};
    }
    InputDifference row{.name = name};
    for (std::size_t n = 0; n < a->size(); ++n) {
      const auto one = static_cast<double>(a->data()[n]), two = static_cast<double>(b->data()[n]);
      if (compare(one, two, row)) row.address = address_of(name, a->shape(), n);
    }
    rows_.push_back(std::move(row));
    return {};
  }

  std::vector<InputDifference> rows() { return std::move(rows_); }

 private:
  /// Whether this is the first that differs.
  [[nodiscard]] bool compare(double one, double two, InputDifference& row) const {
    ++row.compared;
    if (one == two || (std::isnan(one) && std::isnan(two))) return false;
    double used = std::fabs(two - one) / (unit_ * std::max(std::fabs(one), std::fabs(two)));
    if (std::isnan(used)) used = std::numeric_limits<double>::infinity();
    row.used = std::max(row.used, used);
    if (std::isfinite(two - one)) row.largest = std::max(row.largest, std::fabs(two - one));
    if (!(used > 1) || row.different++ > 0) return false;
    row.first = one;
    row.second = two;
    return true;
  }

  double unit_;
  std::vector<InputDifference> rows_;
};

/// Nothing if there are none.
template <class T>
std::optional<Tensor<double>> tensor_of(const std::vector<T>& numbers) {
  if (numbers.empty()) return std::nullopt;
  Tensor<double> out(Shape{static_cast<std::int64_t>(numbers.size())});
  std::ranges::transform(numbers, out.data(), [](T x) { return static_cast<double>(x); });
  return out;
}

template <class T>
const T* given(const std::optional<T>& tensor) {
  return tensor ? &*tensor : nullptr;
}

}  // namespace

Result<std::vector<InputDifference>> compare_inputs(const Claim& first, const Claim& second) {
  Comparison all(std::max(unit_of(first.precision), unit_of(second.precision)));
  const AttentionCase &a = first.call, &b = second.call;
  for (const auto& [name, one, two] :
       {std::tuple{"query", &a.query, &b.query}, std::tuple{"key", &a.key, &b.key},
        std::tuple{"value", &a.value, &b.value}}) {
    if (auto ok = all.add(name, one, two); !ok) return ok.failure();
  }
  if (auto ok = all.add("mask", given(a.visible), given(b.visible)); !ok) return ok.failure();
  if (auto ok = all.add("bias", given(a.bias), given(b.bias)); !ok) return ok.failure();
  const Packing &pack_a = a.mask.packing, &pack_b = b.mask.packing;
  for (const auto& [name, one, two] :
       {std::tuple{"sink", tensor_of(a.sink), tensor_of(b.sink)},
        std::tuple{"key_lengths", tensor_of(a.mask.key_lengths), tensor_of(b.mask.key_lengths)},
        std::tuple{"query_starts", tensor_of(pack_a.query_starts), tensor_of(pack_b.query_starts)},
        std::tuple{"key_starts", tensor_of(pack_a.key_starts), tensor_of(pack_b.key_starts)}}) {
    if (auto ok = all.add(name, given(one), given(two)); !ok) return ok.failure();
  }
  return all.rows();
}

}  // namespace attest::check
