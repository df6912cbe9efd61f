// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <utility>
#include <variant>

#include "attest/base/error.h"

namespace attest {

/// A value, or the failure that took its place (C++23's std::expected, as far as it is needed here).
///
/// The layers below the public edge never throw; they return this. A caller either looks,
///
///     auto out = lab::matmul(a, b);
///     if (!out) return out.failure();
///     use(*out);
///
/// or, at the edge of a program that uses exceptions, calls `value()`, which throws attest::Error.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}            // NOLINT
  Result(Failure failure) : state_(std::in_place_index<1>, std::move(failure)) {}  // NOLINT

  [[nodiscard]] bool has_value() const noexcept { return state_.index() == 0; }
  explicit operator bool() const noexcept { return has_value(); }

  /// The value; only to be called when there is one.
  [[nodiscard]] T& operator*() & noexcept { return *std::get_if<0>(&state_); }
  [[nodiscard]] const T& operator*() const& noexcept { return *std::get_if<0>(&state_); }
  [[nodiscard]] T&& operator*() && noexcept { return std::move(*std::get_if<0>(&state_)); }
  [[nodiscard]] T* operator->() noexcept { return std::get_if<0>(&state_); }
  [[nodiscard]] const T* operator->() const noexcept { return std::get_if<0>(&state_); }

  /// The failure; only to be called when there is no value.
  [[nodiscard]] const Failure& failure() const noexcept { return *std::get_if<1>(&state_); }

#if defined(__cpp_exceptions)
  /// The value, or throws the attest::Error that belongs to the failure.
  T& value() & {
    if (!has_value()) throw_failure(failure());
    return **this;
  }
  const T& value() const& {
    if (!has_value()) throw_failure(failure());
    return **this;
  }
  T&& value() && {
    if (!has_value()) throw_failure(failure());
    return *std::move(*this);
  }
#endif

 private:
  std::variant<T, Failure> state_;
};

/// Success without a value, or a failure.
template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Failure failure) : failure_(std::move(failure)) {}  // NOLINT

  [[nodiscard]] bool has_value() const noexcept { return !failure_.has_value(); }
  explicit operator bool() const noexcept { return has_value(); }
  [[nodiscard]] const Failure& failure() const noexcept { return *failure_; }

#if defined(__cpp_exceptions)
  void value() const {
    if (failure_) throw_failure(*failure_);
  }
#endif

 private:
  std::optional<Failure> failure_;
};

}  // namespace attest
