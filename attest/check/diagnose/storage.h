// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>

#include "attest/check/mistakes/claim.h"

/// Numbers of a wide type that all hold narrower ones: a dump made wider before it was saved.
namespace attest::check {

struct Narrower {
  Dump dump{};
  std::string remark{};
};

/// The dump as what its numbers show: a table whose numbers all fit bf16, f16 or f32 was stored in that
/// type once, whatever wider one holds them now; and if the inputs fit it too, or it is f32, the
/// program computed in it.
/// Nothing if no table shows that.
[[nodiscard]] std::optional<Narrower> narrower_storage(const Dump& dump);

}  // namespace attest::check
