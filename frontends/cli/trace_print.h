// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>

#include "attest/base/attention_case.h"
#include "attest/lab/trace.h"
#include "frontends/cli/print.h"

namespace attest::cli {

/// The first lines of a trace: what was calculated.
struct TraceTitle {
  std::string name;   ///< "workbook/two-position", or the file
  std::string mode;   ///< "causal", "all visible", …
  std::string sizes;  ///< "T 2  S 2  D 2  E 2  scale 1/sqrt(D)"
};
[[nodiscard]] std::string describe(const Mask& mask, bool has_visible);
[[nodiscard]] std::string describe(const AttentionCase& call);

/// Aligned lines for people; the format's name and version stand first. With `only`, that row alone.
[[nodiscard]] std::string trace_as_text(const lab::Trace& trace, const TraceTitle& title,
                                        const NumberStyle& style, std::optional<std::int64_t> only);

/// One object a line: first what was calculated, then each stage with id, shape, first_row and its
/// numbers row by row, in shortest round-trip form; −∞ is the string "-inf".
[[nodiscard]] std::string trace_as_json(const lab::Trace& trace, const TraceTitle& title);

/// `address,value` lines, each number in shortest round-trip form.
[[nodiscard]] std::string trace_as_csv(const lab::Trace& trace);

/// The sentence of one number, and those of its operands `depth` steps back.
[[nodiscard]] Result<std::string> why_as_text(const lab::Trace& trace, const lab::Address& address,
                                              const NumberStyle& style, int depth);

}  // namespace attest::cli
