// SPDX-License-Identifier: MIT
#pragma once

#include <optional>

#include "attest/base/threads.h"
#include "attest/linalg/isa.h"

namespace attest {

/// Which results must agree bit for bit, beyond those of equal calls.
enum class Reproducible {
  per_call,  ///< any number of threads, any batch mates; one instruction set
  per_row,   ///< and however a row's queries come: all at once, in chunks, one by one (cached keys)
};

/// How a call is carried out. Nothing here changes what is computed, beyond rounding.
struct Execution {
  ThreadPool* threads = nullptr;  ///< nothing: the process's own pool, one thread per processor
  std::optional<Isa> isa{};       ///< nothing: `default_isa()`
  Reproducible reproducible = Reproducible::per_call;
};

/// The pool that calls share which bring none; made at the first use.
[[nodiscard]] ThreadPool& shared_threads();

/// The pool that a call uses.
[[nodiscard]] inline ThreadPool& threads_for(const Execution& execution) {
  return execution.threads != nullptr ? *execution.threads : shared_threads();
}

/// The instruction set that a call uses.
/// Fails         bad-isa, as `isa_of` and `default_isa`.
[[nodiscard]] inline Result<Isa> isa_for(const Execution& execution) {
  return execution.isa ? isa_of(name_of(*execution.isa)) : default_isa();
}

}  // namespace attest
