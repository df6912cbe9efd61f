// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>

#include "attest/base/view.h"
#include "attest/check/mistakes/scoring.h"

namespace attest::check {

/// Where a program looks in a table [B, H, T, S] for one row: for key j it reads
/// [b, h, i, j·step + first], or with `by_query` the roles of the last two changed.
struct LookupRow {
  std::int64_t b = 0;
  std::int64_t h = 0;
  std::int64_t i = 0;
  std::int64_t first = 0;
  std::int64_t step = 1;
  bool transposed = false;

  static LookupRow of(Lookup lookup, const lab::AttentionShape& shape, lab::RowPlace at) {
    LookupRow out{.b = at.b, .h = at.h, .i = at.i};
    switch (lookup) {
      case Lookup::own:
        break;
      case Lookup::batch0:
        out.b = 0;
        break;
      case Lookup::head0:
        out.h = 0;
        break;
      case Lookup::query0:
        out.i = 0;
        break;
      case Lookup::transposed:
        out.transposed = true;
        break;
      case Lookup::batch_for_head:
        out.b = at.h;
        out.h = at.b;
        break;
      case Lookup::tiled:
        out.b = (at.b * shape.H + at.h) % shape.B;
        break;
      case Lookup::other_batch:
        out.b = (at.b + 1) % shape.B;
        break;
      case Lookup::query_for_batch:
        out.b = at.i;
        out.i = 0;
        break;
      case Lookup::query_for_key:
        out.first = at.i;
        out.step = 0;
        break;
      case Lookup::one_longer:
        out.first = -1;
        break;
      case Lookup::one_shorter:
        out.first = 1;
        break;
      case Lookup::from_the_end:
        out.first = shape.S - 1;
        out.step = -1;
        break;
      case Lookup::heads_reversed:
        out.h = shape.H - 1 - at.h;
        break;
    }
    return out;
  }

  /// The place along the table's last axis for the claim's key j.
  [[nodiscard]] std::int64_t key(std::int64_t j) const { return transposed ? i : first + step * j; }
  /// The place along the axis before it.
  [[nodiscard]] std::int64_t query(std::int64_t j) const { return transposed ? j : i; }
};

/// A table that broadcasts to [B, H, T, S], read where a program looks.
template <class T>
struct TableRow {
  View<const T, 4> table{};
  LookupRow look{};

  static std::int64_t on_axis(std::int64_t place, std::int64_t extent) {
    return extent == 1 ? 0 : place;
  }
  /// The element for the claim's key j; nothing outside of the table.
  [[nodiscard]] std::optional<T> at(std::int64_t j) const {
    const std::int64_t key = on_axis(look.key(j), table.extent(3));
    const std::int64_t query = on_axis(look.query(j), table.extent(2));
    if (key < 0 || key >= table.extent(3) || query >= table.extent(2)) return std::nullopt;
    return table(on_axis(look.b, table.extent(0)), on_axis(look.h, table.extent(1)), query, key);
  }
};

}  // namespace attest::check
