// SPDX-License-Identifier: MIT
// attest diff --stages: what the two implementations were given.
#include "frontends/cli/diff_inputs.h"

#include <fmt/format.h>

#include <algorithm>

#include "attest/base/text.h"
#include "attest/io/json.h"
#include "frontends/cli/print.h"

namespace attest::cli {

const check::InputDifference* first_different(const InputDifferences& inputs) {
  const auto found = std::ranges::find_if(
      inputs, [](const check::InputDifference& each) { return each.different > 0; });
  return found == inputs.end() ? nullptr : &*found;
}

std::string rows_of(const InputDifferences& inputs) {
  std::string out;
  for (const check::InputDifference& each : inputs) {
    out += fmt::format("{}  {}  {}  {}  {}", left(each.name, 11),
                       right(std::to_string(each.compared), 9),
                       right(std::to_string(each.different), 9),
                       right(three_digits(each.largest), 9), right(three_digits(each.used), 9));
    if (each.different > 0) {
      out += fmt::format("  {} {} against {}", each.address, shortest(each.first),
                         shortest(each.second));
    }
    out += '\n';
  }
  return out;
}

std::string json_list_of(const InputDifferences& inputs) {
  std::string out = "[";
  for (const check::InputDifference& each : inputs) {
    if (out.back() != '[') out += ',';
    out += "{\"input\":";
    io::append_json_string(out, each.name);
    out += fmt::format(",\"compared\":{},\"different\":{},\"largest\":", each.compared,
                       each.different);
    io::append_json_number(out, each.largest);
    out += ",\"used\":";
    io::append_json_number(out, each.used);
    if (each.different > 0) {
      out += ",\"address\":";
      io::append_json_string(out, each.address);
      out += ",\"first\":";
      io::append_json_number(out, each.first);
      out += ",\"second\":";
      io::append_json_number(out, each.second);
    }
    out += '}';
  }
  return out + "]";
}

}  // namespace attest::cli
