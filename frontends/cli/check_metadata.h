// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "attest/base/result.h"
#include "attest/io/named_tensors.h"
#include "frontends/cli/check_options.h"

namespace attest::cli {

/// Reads the claim that a file makes of itself, where the command line is silent:
///
///   attest.OPTION          the option of that name, attest.causal = top-left, in the metadata or in
///                          a tensor of text (check/probe/claim_metadata.h)
///   op, opset, attributes  an ONNX Attention node and its attributes, a JSON object
///
/// Nothing else of the metadata is read. An ONNX mask that is shorter than the keys is padded in
/// `bundle`, as opset 24 says. Fails with bad-claim, bad-metadata.
[[nodiscard]] Result<void> read_claim(io::NamedTensors& bundle, DumpOptions& options,
                                      std::vector<std::string>& remarks);

/// Whether the file claims anything in attest's own words, as those of `attest probe` do.
[[nodiscard]] bool carries_claim(const io::NamedTensors& bundle);

}  // namespace attest::cli
