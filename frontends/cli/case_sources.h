// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "attest/base/result.h"
#include "attest/base/tensor.h"
#include "attest/io/named_tensors.h"
#include "attest/io/tensor_file.h"
#include "frontends/cli/case_options.h"

namespace attest::cli {

/// Finds the tensor of each role: in a file of its own, or in the bundle under its name or one that
/// people commonly give it. Remembers what the bundle holds and nobody asked for.
class Sources {
 public:
  Sources(const CaseOptions& options, io::NamedTensors bundle);

  /// Reads the bundle that the options name, if they do.
  static Result<Sources> open(const CaseOptions& options);

  /// The tensor of a role, or nothing if there is none. `flag` is the option that may name it.
  Result<std::optional<AnyTensor>> find(const std::string& role, const std::string& flag);

  struct Named {
    AnyTensor tensor;
    std::string name;  ///< in the bundle, or of the file
  };
  /// The same, and what it is called there.
  Result<std::optional<Named>> find_named(const std::string& role, const std::string& flag);

  /// Whether the bundle holds a tensor of that name.
  [[nodiscard]] bool holds(const std::string& name) const { return bundle_.find(name) != nullptr; }

  /// The tensors that nobody asked for yet, handed on: no longer this object's, nor its remark.
  [[nodiscard]] io::NamedTensors rest();

  void remark(std::string text) { remarks_.push_back(std::move(text)); }

  /// Everything that was taken for granted; to be called once, at the end.
  std::vector<std::string> remarks();

  /// The tensors of the file that nothing has asked for, with their shapes.
  [[nodiscard]] std::vector<UnreadTensor> unread() const;

  /// "q [2, 3], k [2, 3]", or "nothing".
  [[nodiscard]] std::string listing() const;

 private:
  const AnyTensor* take(const std::string& name);

  const CaseOptions& options_;
  io::TensorFileOptions limits_;
  io::NamedTensors bundle_;
  std::vector<std::string> taken_;
  std::vector<std::string> remarks_;
};

/// What the names of one call's tensors begin with in a file that holds several, "layer3.attn.", or "".
[[nodiscard]] std::string prefix_of_a_call(const io::NamedTensors& bundle);

}  // namespace attest::cli
