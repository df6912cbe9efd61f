// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "attest/base/result.h"
#include "attest/io/json.h"
#include "attest/io/named_tensors.h"
#include "frontends/cli/check_options.h"

namespace attest::cli {

/// An ONNX Attention node as the metadata of a file describes it.
struct OnnxNode {
  std::int64_t opset = 23;
  io::Json attributes;  ///< an object
};

/// Nothing if the file describes none. Fails with bad-metadata.
[[nodiscard]] Result<std::optional<OnnxNode>> onnx_node_of(const io::NamedTensors& bundle);

/// The node's claim in our options: the text of the operator today, of 1.23 and later. Pads a mask that
/// is shorter than the keys. Fails with bad-metadata.
[[nodiscard]] Result<void> read_onnx(const OnnxNode& node, io::NamedTensors& bundle,
                                     DumpOptions& options, std::vector<std::string>& remarks);

}  // namespace attest::cli
