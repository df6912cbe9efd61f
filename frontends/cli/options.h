// SPDX-License-Identifier: MIT
#pragma once

#include <CLI/App.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace attest::cli {

/// What an option's number must satisfy besides being written as one.
struct IntegerRange {
  std::int64_t least = INT64_MIN;
  std::int64_t most = INT64_MAX;
};
enum class NumberRange { any, finite, not_negative };

// Every number on the command line is read here, and strictly: decimal, the whole word, in range,
// and rounded once (CLI11 goes through long double, wraps unsigned numbers and reads 010 as octal).
// An empty word is no value. A wrong one is a usage error that names the option and the word.

CLI::Option* add_integer(CLI::App& command, const std::string& name,
                         std::optional<std::int64_t>& target, const std::string& help,
                         IntegerRange range = {});
/// From 0 to 2^64 - 1.
CLI::Option* add_unsigned(CLI::App& command, const std::string& name,
                          std::optional<std::uint64_t>& target, const std::string& help);
CLI::Option* add_number(CLI::App& command, const std::string& name, std::optional<double>& target,
                        const std::string& help, NumberRange range = NumberRange::any);
/// A list in one word, "3,5,7".
CLI::Option* add_integers(CLI::App& command, const std::string& name,
                          std::vector<std::int64_t>& target, const std::string& help);
CLI::Option* add_numbers(CLI::App& command, const std::string& name, std::vector<double>& target,
                         const std::string& help);
/// A word that must not be empty.
CLI::Option* add_word(CLI::App& command, const std::string& name, std::string& target,
                      const std::string& help);

}  // namespace attest::cli
