// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "attest/base/result.h"
#include "attest/base/shape.h"
#include "attest/base/text.h"
#include "attest/base/view.h"

namespace attest::lab::detail {

/// "[linear] x and weight must agree; …"
template <class... Parts>
[[nodiscard]] Failure shape_mismatch(std::string_view operation, const Parts&... parts) {
  return {ErrorKind::shape, "shape-mismatch", sentence("[", operation, "] ", parts...)};
}
template <class... Parts>
[[nodiscard]] Failure bad_option(std::string_view operation, const Parts&... parts) {
  return {ErrorKind::value, "bad-option", sentence("[", operation, "] ", parts...)};
}

/// A view with the name that a sentence calls it by.
template <class T, std::size_t Rank>
struct Named {
  const char* name;
  View<T, Rank> view;
};
template <class T, std::size_t Rank>
Named(const char*, View<T, Rank>) -> Named<T, Rank>;

template <class T, std::size_t Rank>
[[nodiscard]] Result<void> check_given(std::string_view operation, Named<T, Rank> tensor) {
  if (tensor.view) return {};
  return shape_mismatch(operation, tensor.name, " must be given");
}

/// Both are there and have one shape.
template <std::size_t Rank>
[[nodiscard]] Result<void> check_same(std::string_view operation, Named<const double, Rank> a,
                                      Named<const double, Rank> b) {
  if (auto ok = check_given(operation, a); !ok) return ok;
  if (auto ok = check_given(operation, b); !ok) return ok;
  if (a.view.extents == b.view.extents) return {};
  return shape_mismatch(operation, a.name, " and ", b.name, " must have the same shape; ", a.name,
                        " has ", to_string(a.view.extents), ", ", b.name, " has ",
                        to_string(b.view.extents));
}

[[nodiscard]] inline std::size_t at_index(std::int64_t place) {
  return static_cast<std::size_t>(place);
}

[[nodiscard]] inline bool finite(double value) { return value - value == 0; }

}  // namespace attest::lab::detail
