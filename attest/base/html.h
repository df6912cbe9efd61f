// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>

namespace attest {

/// The text as it may stand in HTML or XML, between tags or as a quoted attribute.
[[nodiscard]] std::string html_escaped(std::string_view text);

}  // namespace attest
