// SPDX-License-Identifier: MIT
#include <cmath>

#include "attest/io/json_tensors.h"
#include "tests/fuzz/fuzz_support.h"

namespace {

using namespace attest;

/// Each value begins where it says, lies inside its parent, and follows its elder sibling.
void demand_offsets(const io::Json& value, std::string_view text, std::size_t depth) {
  using Kind = io::Json::Kind;
  fuzz::demand(value.offset() < text.size(), "a value begins in the text");
  fuzz::demand(depth <= io::json_depth_limit, "the depth limit holds");
  const char first = text[value.offset()];
  const bool number = first == '-' || (first >= '0' && first <= '9');
  fuzz::demand(value.is(Kind::array) == (first == '['), "arrays begin with [");
  fuzz::demand(value.is(Kind::object) == (first == '{'), "objects begin with {");
  fuzz::demand(value.is(Kind::string) == (first == '"'), "strings begin with a quote");
  fuzz::demand(value.is(Kind::boolean) == (first == 't' || first == 'f'), "booleans with t or f");
  fuzz::demand(value.is(Kind::null) == (first == 'n'), "null with n");
  fuzz::demand(!value.double_if() || (number && std::isfinite(*value.double_if())),
               "numbers are finite");
  std::size_t last = value.offset();
  for (const io::Json& item : value.items()) {
    fuzz::demand(item.offset() > last, "items stand in order");
    last = item.offset();
    demand_offsets(item, text, depth + 1);
  }
  for (const io::Json::Member& member : value.members()) {
    fuzz::demand(member.name_offset > last && text[member.name_offset] == '"', "names in order");
    last = member.value.offset();
    fuzz::demand(last > member.name_offset, "a value follows its name");
    fuzz::demand(value.find(member.name) == &member.value, "a name is given once");
    demand_offsets(member.value, text, depth + 1);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = io::as_text(fuzz::as_input(data, size));
  const auto tree = io::parse_json(text, "input");
  const auto tensors = io::parse_json_tensors(text, "input");
  if (!tree) {
    fuzz::demand_polite(tree.failure());
    fuzz::demand(!tensors.has_value(), "no tensors without JSON");
    return 0;
  }
  demand_offsets(*tree, text, 0);
  fuzz::demand_round_trip(io::TensorFormat::json, tensors);
  return 0;
}
