// SPDX-License-Identifier: MIT
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

namespace attest {

/// What sort of mistake a failure is; decides which exception the public edge throws.
enum class ErrorKind {
  shape,  ///< two shapes, or a shape and a limit, do not fit
  value,  ///< a number or an option that is not allowed here
  type,   ///< a boolean among numbers, a string for a matrix, an unknown dtype
  file,   ///< a file that cannot be read, or is not what it claims to be
};

/// A failure as a value: what the exception-free layers return instead of a result.
///
/// `id` is stable from release to release ("shape-mismatch", "no-visible-key"); `message` is one
/// sentence for a reader, with the operation in brackets and both numbers in it:
/// "[attention] key and value must have the same S; key has 12, value has 13".
struct Failure {
  ErrorKind kind = ErrorKind::value;
  std::string id;
  std::string message;
};

/// What the public edge throws. The four kinds below let a caller catch one sort only.
class Error : public std::runtime_error {
 public:
  explicit Error(Failure failure)
      : std::runtime_error(failure.message), failure_(std::move(failure)) {}

  [[nodiscard]] const std::string& id() const noexcept { return failure_.id; }
  [[nodiscard]] ErrorKind kind() const noexcept { return failure_.kind; }

 private:
  Failure failure_;
};

class ShapeError : public Error {
 public:
  using Error::Error;
};
class ValueError : public Error {
 public:
  using Error::Error;
};
class TypeError : public Error {
 public:
  using Error::Error;
};
class FileError : public Error {
 public:
  using Error::Error;
};

#if defined(__cpp_exceptions)
/// Throws the exception that belongs to the failure's kind.
[[noreturn]] void throw_failure(const Failure& failure);
#endif

}  // namespace attest
