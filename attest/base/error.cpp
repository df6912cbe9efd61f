// SPDX-License-Identifier: MIT
#include "attest/base/error.h"

namespace attest {

#if defined(__cpp_exceptions)
void throw_failure(const Failure& failure) {
  switch (failure.kind) {
    case ErrorKind::shape:
      throw ShapeError(failure);
    case ErrorKind::value:
      throw ValueError(failure);
    case ErrorKind::type:
      throw TypeError(failure);
    case ErrorKind::file:
      throw FileError(failure);
  }
  throw Error(failure);
}
#endif

}  // namespace attest
