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

namespace {

bool in_one_alone(const check::InputDifference& each) {
  return each.held_by != check::HeldBy::both;
}

const char* holder_of(const check::InputDifference& each) {
  return each.held_by == check::HeldBy::first_alone ? "first" : "second";
}

}  // namespace

std::string rows_of(const InputDifferences& inputs) {
  std::string out;
  for (const check::InputDifference& each : inputs) {
    out += in_one_alone(each) ? fmt::format("{}  in the {} alone: not compared\n",
                                            left(each.name, 11), holder_of(each))
                              : row_of(each.name, each);
  }
  return out;
}

std::string said_of_missing(const InputDifferences& inputs) {
  std::string out;
  for (const check::InputDifference& each : inputs) {
    if (!in_one_alone(each)) continue;
    const bool first = each.held_by == check::HeldBy::first_alone;
    out += fmt::format("{} is in the {} dump alone: whether the {} was given it is not known\n",
                       each.name, holder_of(each), first ? "second" : "first");
  }
  return out;
}

std::string json_list_of(const InputDifferences& inputs) {
  std::string out = "[";
  for (const check::InputDifference& each : inputs) {
    if (out.back() != '[') out += ',';
    out += "{\"input\":";
    io::append_json_string(out, each.name);
    out += fmt::format(",\"compared\":{},\"different\":{}", each.compared, each.different);
    if (in_one_alone(each)) out += fmt::format(",\"alone_in\":\"{}\"", holder_of(each));
    append_size_and_place(out, each);
    out += '}';
  }
  return out + "]";
}

}  // namespace attest::cli
