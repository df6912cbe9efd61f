// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "attest/check/diagnose/diagnosis.h"

/// The sentences that the screen and the page of a diagnosis share.
namespace attest::check {

/// "WRONG: causal.top_left gives these numbers"
[[nodiscard]] std::string headline_of(const Diagnosis& diagnosis);

/// "first wrong: output, only head 3", or "" if nothing is said of places.
[[nodiscard]] std::string where_of(const Diagnosis& diagnosis);

/// Whether it is right, and what explains its numbers is the claim itself.
[[nodiscard]] bool is_the_claim(const Diagnosis& diagnosis);

/// How firmly the first explanation stands, or "" if there is none.
[[nodiscard]] std::string confidence_of(const Diagnosis& diagnosis);

}  // namespace attest::check
