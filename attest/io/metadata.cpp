// SPDX-License-Identifier: MIT
#include "attest/io/metadata.h"

namespace attest::io {

Result<void> read_metadata(NamedTensors& out, const Json& value, const Origin& origin) {
  if (!value.is(Json::Kind::object)) {
    return origin.refuse("bad-metadata", "byte ", value.offset(), ": __metadata__ is ",
                         name_of(value.kind()), ", not an object of strings");
  }
  for (const Json::Member& member : value.members()) {
    const std::string* text = member.value.string_if();
    if (text == nullptr) {
      return origin.refuse("bad-metadata", "byte ", member.value.offset(), ": the metadata under ",
                           in_quotes(member.name), " is ", name_of(member.value.kind()),
                           ", not a string");
    }
    out.metadata.emplace_back(member.name, *text);
  }
  return {};
}

}  // namespace attest::io
