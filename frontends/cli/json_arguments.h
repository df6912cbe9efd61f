// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "attest/base/result.h"
#include "attest/base/tensor.h"
#include "attest/io/json.h"

namespace attest::cli {

/// The arguments of one calculation, given as a JSON object: the dynamic edge, where a boolean
/// among numbers, a string, a ragged row, a null or a huge integer is refused with the argument's
/// name and index. What C++ types exclude further in is excluded here.
class JsonArguments {
 public:
  /// Fails (bad-type, unknown-key) unless `json` is an object with no keys but these and op, expect,
  /// error.
  [[nodiscard]] static Result<JsonArguments> read(const io::Json& json, std::string_view operation,
                                                  const std::vector<std::string>& keys);

  [[nodiscard]] bool has(std::string_view name) const { return json_->find(name) != nullptr; }

  /// An array of equally long arrays of numbers.
  [[nodiscard]] Result<Tensor<double>> matrix(std::string_view name) const;
  /// An array of numbers, in which null means −∞.
  [[nodiscard]] Result<std::vector<double>> scores(std::string_view name) const;
  /// An array of equally long arrays of booleans; absent or null: none.
  [[nodiscard]] Result<std::optional<Tensor<bool>>> mask(std::string_view name) const;
  [[nodiscard]] Result<bool> boolean(std::string_view name, bool otherwise) const;
  /// A finite number above zero.
  [[nodiscard]] Result<double> positive(std::string_view name, double otherwise) const;

 private:
  JsonArguments(const io::Json& json, std::string_view operation)
      : json_(&json), operation_(operation) {}
  [[nodiscard]] Failure wrong(std::string_view id, std::string_view what, const io::Json& at) const;
  [[nodiscard]] Result<const io::Json*> required(std::string_view name) const;
  template <class T, class Read>
  [[nodiscard]] Result<Tensor<T>> rectangle(std::string_view name, const io::Json& rows,
                                            const Read& read) const;

  const io::Json* json_;
  std::string operation_;
};

}  // namespace attest::cli
