// SPDX-License-Identifier: MIT
#pragma once

#include <CLI/App.hpp>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "frontends/cli/case_options.h"

namespace attest::cli {

/// What `attest check` and `attest diff --stages` can be told about a dump: the call, as every command
/// takes it, and what only a dump has.
struct DumpOptions {
  CaseOptions inputs;
  std::string prefix;                ///< of the names in FILE that belong to this call
  std::string output_layout;         ///< "": found out from the shapes
  std::string scores_are;            ///< dot, scaled, capped, biased or masked
  std::string precision;             ///< "": the coarsest of the dump's types
  std::optional<std::int64_t> past;  ///< so many of the keys came from a cache
  std::string rope;                  ///< "", half or interleaved
  std::optional<double> rope_base;
  std::optional<std::int64_t> rope_dim;
  std::vector<std::int64_t> query_positions, key_positions;
};

/// The roles that a dump has and a call has not, with what the help says of them. The flag is the
/// role's name with - for _.
using Role = std::pair<const char*, const char*>;
inline constexpr std::array<Role, 19> dump_roles{{
    {"output", "what it produced: [B,H,T,E], [B,T,H,E] or packed"},
    {"weights", "after the softmax, [B,H,T,S]"},
    {"scores", "a table of scores; --scores-are says which"},
    {"dot", "query·key before the scale"},
    {"scaled", "after the scale"},
    {"capped", "after softcap"},
    {"biased", "after bias and ALiBi"},
    {"masked", "with hidden keys at -inf"},
    {"lse", "log_sum_exp [B,H,T], natural"},
    {"past-key", "cached keys [B,G,P,D], put before key"},
    {"past-value", "cached values [B,G,P,E]"},
    {"cos", "rotary table [positions, R/2] or [positions, R]"},
    {"sin", "likewise"},
    {"d-output", "gradient that came in, laid out as the output"},
    {"d-query", "gradient of query"},
    {"d-key", "gradient of key"},
    {"d-value", "gradient of value"},
    {"d-bias", "gradient of the bias"},
    {"d-sink", "gradient of the sink"},
}};

void add_dump_options(CLI::App& command, DumpOptions& options);

/// Whether anything says what the implementation is meant to compute. Tensors alone do not.
[[nodiscard]] bool makes_claim(const DumpOptions& options);

}  // namespace attest::cli
