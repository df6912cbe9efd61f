// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>

#include "attest/base/result.h"
#include "attest/check/probe/probe.h"

namespace attest::check {

// Failure ids of this header:
//
//   unknown-framework  none of the five
//   not-offered        the framework's own attention, or the snippet, cannot do what the probe asks

enum class Framework { numpy, pytorch, jax, onnxruntime, cpp };
[[nodiscard]] std::string_view name_of(Framework framework) noexcept;
[[nodiscard]] Result<Framework> framework_of(std::string_view name);

/// How a probe's file is stored.
enum class ProbeFormat { safetensors, npz, npy_folder };

/// Where the probe lies, seen from the snippet, and how it is stored.
struct ProbePlace {
  std::string name;  ///< "probe.safetensors", "probe.npz", or the folder's "probe"
  ProbeFormat format = ProbeFormat::safetensors;
};

/// What a snippet writes: the inputs and beside them the outputs, for `attest check`.
[[nodiscard]] std::string name_of_dump(const ProbePlace& place);
/// "probe_numpy.py", "probe_cpp.cpp".
[[nodiscard]] std::string name_of_snippet(const ProbePlace& place, Framework framework);

/// A small program that reads the probe, calls one function `attention`, which is to be replaced, and
/// writes what it gives beside the inputs.
///
/// The function that stands there already is right: the framework's own attention where that has what
/// the probe asks for (pytorch, jax, onnxruntime), and the formula written out elsewhere.
/// Fails         not-offered.
[[nodiscard]] Result<std::string> snippet_for(const Probe& probe, const ProbePlace& place,
                                              Framework framework);

}  // namespace attest::check
