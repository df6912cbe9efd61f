// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "attest/check/diagnose/judge.h"

/// Where a table is wrong, before anybody asks why.
namespace attest::check {

/// The numbers of a set in words: "3", "2 and 5", "from 4 on", "up to 2", "3 to 7",
/// "all but 0", "16, 32 and 48: multiples of 16"; "" for all of them, or none.
[[nodiscard]] std::string places_in_words(const std::vector<bool>& in, std::string_view one,
                                          std::string_view many);

/// Sentences about the unusual numbers of one table: "only batch 1", "only head 3", "from query 64
/// on", "only the last query", "only queries that see no key", "only features 8 to 15". Those that
/// say something; "everywhere" if nothing does, and nothing if no number is unusual.
[[nodiscard]] std::vector<std::string> localise(const Judged& judged, std::size_t table);

}  // namespace attest::check
