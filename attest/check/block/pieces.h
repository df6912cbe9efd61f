// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstdint>

#include "attest/base/threads.h"

namespace attest::check::block {

/// Calls work(Range) on parts of `count` items, on all processors where so many products an item are worth
/// it. What one item gives must not depend on its part.
template <class Work>
void in_pieces(std::int64_t count, std::int64_t products, const Work& work) {
  constexpr double worth = 0x1p22;
  if (static_cast<double>(count) * static_cast<double>(products) < worth || count < 2) {
    work(Range{0, count});
    return;
  }
  ThreadPool pool;
  const std::int64_t parts = std::min<std::int64_t>(count, std::int64_t{8} * pool.threads());
  pool.run(parts, [&](std::int64_t part) { work(partition(count, parts, part)); });
}

}  // namespace attest::check::block
