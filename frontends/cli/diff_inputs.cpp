// SPDX-License-Identifier: MIT
// attest diff --stages: what the two implementations were given.
#include "frontends/cli/diff_inputs.h"

#include <fmt/format.h>

#include <algorithm>

#include "attest/io/json.h"

namespace attest::cli {

const check::InputDifference* first_different(const InputDifferences& inputs) {
  const auto found = std::ranges::find_if(
      inputs, [](const check::InputDifference& each) { return each.different > 0; });
  return found == inputs.end() ? nullptr : &*found;
}

std::string rows_of(const InputDifferences& inputs) {
  std::string out;
  for (const check::InputDifference& each : inputs) out += row_of(each.name, each);
  return out;
}

std::string json_list_of(const InputDifferences& inputs) {
  std::string out = "[";
  for (const check::InputDifference& each : inputs) {
    if (out.back() != '[') out += ',';
    out += "{\"input\":";
    io::append_json_string(out, each.name);
    out += fmt::format(",\"compared\":{},\"different\":{}", each.compared, each.different);
    append_size_and_place(out, each);
    out += '}';
  }
  return out + "]";
}

}  // namespace attest::cli
