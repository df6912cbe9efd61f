// SPDX-License-Identifier: MIT
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <vector>

#include "attest/base/text.h"
#include "attest/check/diagnose/compare_inputs.h"
#include "attest/io/json.h"
#include "frontends/cli/print.h"

namespace attest::cli {

using InputDifferences = std::vector<check::InputDifference>;

/// The first tensor that the two were not given alike, or nullptr.
[[nodiscard]] const check::InputDifference* first_different(const InputDifferences& inputs);

/// Rows of the table of `attest diff --stages`, below its header.
[[nodiscard]] std::string rows_of(const InputDifferences& inputs);
/// A line for each tensor that one dump alone holds.
[[nodiscard]] std::string said_of_missing(const InputDifferences& inputs);
/// A JSON list.
[[nodiscard]] std::string json_list_of(const InputDifferences& inputs);

/// A row of that table: an input's difference, or a stage's.
template <class Difference>
[[nodiscard]] std::string row_of(std::string_view name, const Difference& each) {
  std::string out =
      fmt::format("{}  {}  {}  {}  {}", left(std::string(name), 11),
                  right(std::to_string(each.compared), 9), right(std::to_string(each.different), 9),
                  right(three_digits(each.largest), 9), right(three_digits(each.used), 9));
  if (each.different > 0) {
    out += fmt::format("  {} {} against {}", each.address, shortest(each.first),
                       shortest(each.second));
  }
  return out + '\n';
}

/// The last members of its JSON object, from the largest difference on.
template <class Difference>
void append_size_and_place(std::string& out, const Difference& each) {
  out += ",\"largest\":";
  io::append_json_number(out, each.largest);
  out += ",\"used\":";
  io::append_json_number(out, each.used);
  if (each.different == 0) return;
  out += ",\"address\":";
  io::append_json_string(out, each.address);
  out += ",\"first\":";
  io::append_json_number(out, each.first);
  out += ",\"second\":";
  io::append_json_number(out, each.second);
}

}  // namespace attest::cli
