// SPDX-License-Identifier: MIT
#pragma once

#include "attest/base/result.h"
#include "attest/io/json.h"
#include "attest/io/named_tensors.h"
#include "attest/io/origin.h"

namespace attest::io {

/// Reads `__metadata__`, which safetensors and JSON tensors have alike: an object of strings, appended
/// to `out.metadata` in its order. Fails (bad-metadata) with the byte of what is something else.
[[nodiscard]] Result<void> read_metadata(NamedTensors& out, const Json& value,
                                         const Origin& origin);

}  // namespace attest::io
