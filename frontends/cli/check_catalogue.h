// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "attest/base/result.h"

namespace attest::cli {

/// The catalogue of mistakes, one a line.
[[nodiscard]] std::string list_of_mistakes();
/// One mistake, whole. Fails with no-such-mistake, naming those that are spelled alike.
[[nodiscard]] Result<std::string> explanation_of(const std::string& name);
/// docs/mistakes.md, which a test holds to this.
[[nodiscard]] std::string mistakes_page();

}  // namespace attest::cli
