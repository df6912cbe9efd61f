// SPDX-License-Identifier: MIT
#pragma once

#include "attest/attention/kernels/decode_numbers.h"

/// Few rows, many keys: where queries, outputs and scores lie, and what is asked of memory ahead.
///
/// Rows are worked on in groups of 4, 2 and 1. Of a group's queries and outputs the registers lie side by
/// side, those of all its rows for the first columns, then for the next: one address, and constants.
namespace attest::kernels::ATTEST_ISA {

/// Keys that are worked on together; a turn has as many or several times as many.
inline constexpr int keys_together = 4;

/// The keys and values of one block and the scores of the rows: [rows][decode_keys].
template <class T, class Stored>
struct KeyPart {
  using Number = typename Stored::Number;
  std::int64_t begin = 0;
  int keys = 0;
  int last = 0;  // the last row that may be asked for, counted from the block's first
  Rows<Number> key;
  Rows<Number> value;
  T* scores = nullptr;
};

/// Queries and outputs of all rows.
template <class T, class Stored>
struct DecodeRows {
  typename Stored::QueryNumber* query = nullptr;  // [groups][columns][rows of the group]
  T* output = nullptr;                            // as well
  T product_factor = 1;
  int D = 0;
  int E = 0;
  int turn = keys_together;  // keys
  int key_distance = 0;      // rows between what is read and what is asked for
  int value_distance = 0;
};

/// How far ahead of its use a line is asked for: about as much as a core has under way when it reads as
/// fast as it can. At 8 KiB what is asked for falls into the same sets of the first cache as what is read.
inline constexpr int bytes_ahead = 7168;

template <class Number>
int rows_ahead(int columns) {
  if (columns == 0) return keys_together;
  const int rows = bytes_ahead / static_cast<int>(sizeof(Number)) / columns;
  return rows < keys_together ? keys_together : rows;
}

/// Keys of a block: about 16 KiB of keys and as much of values, which the first level of cache holds.
template <class Number>
constexpr std::int64_t keys_of_block(std::int64_t columns) {
  constexpr std::int64_t wanted = 16384 / static_cast<std::int64_t>(sizeof(Number));
  std::int64_t keys = 16;
  while (keys < decode_keys && keys * columns < wanted) keys *= 2;
  return keys;
}

/// Keys of a turn. The shorter the turns the steadier memory is asked; the change from one product to the
/// other costs about ten cycles. 4 KiB of each; 8 of 16-bit numbers, whose products last as long for half
/// the bytes.
template <class Number>
int keys_of_turn(int columns) {
  constexpr int wanted = (sizeof(Number) == 2 ? 8192 : 4096) / static_cast<int>(sizeof(Number));
  int keys = keys_together;
  while (keys < decode_keys && keys * columns < wanted) keys *= 2;
  return keys;
}

/// Where rows lie that a later turn will read. Memory is fastest in the order in which they lie: rows that
/// follow each other closely are asked for as one, others side by side, as they are read. Addresses are
/// numbers here: the last may lie behind the tensor.
struct Ahead {
  std::uintptr_t begin = 0;
  std::uintptr_t row = 0;  // bytes from one row to the next
  bool close = false;

  template <class Number>
  ATTEST_INLINE Ahead(const Rows<Number>& rows, int first, int last, int columns) {
    row = static_cast<std::uintptr_t>(rows.row) * sizeof(Number);
    begin = reinterpret_cast<std::uintptr_t>(rows.data) +
            static_cast<std::uintptr_t>(first < last ? first : last) * row;
    close = rows.row == columns;
  }
};
/// Asks for as many lines as `bytes` have, one at least.
template <int bytes>
ATTEST_INLINE void fetch(std::uintptr_t address) {
  for (int line = 0; line < bytes || line == 0; line += 64) {
    // NOLINTNEXTLINE(performance-no-int-to-ptr): nothing is read through it
    __builtin_prefetch(reinterpret_cast<const void*>(address + static_cast<std::uintptr_t>(line)));
  }
}

/// Calls body with 4, 2 or 1 and the first row of as many, until all rows have had their turn.
template <class Body>
ATTEST_INLINE void for_rows(int rows, Body body) {
  int r = 0;
  for (; r + 4 <= rows; r += 4) body.template operator()<4>(r);
  if (r + 2 <= rows) {
    body.template operator()<2>(r);
    r += 2;
  }
  if (r < rows) body.template operator()<1>(r);
}

/// Calls body with where in its group's part each register of row r lies: (column, place).
template <class Body>
ATTEST_INLINE void for_registers(int rows, int r, int columns, int step, Body body) {
  const int row = static_cast<int>(decode_row(columns));
  const int whole = rows / 4 * 4;
  int first = r / 4 * 4;
  int together = 4;
  if (r >= whole) {
    const bool pair = rows - whole >= 2 && r < whole + 2;
    first = pair ? whole : r;
    together = pair ? 2 : 1;
  }
  for (int column = 0; column < row; column += step) {
    body(column, first * row + column * together + (r - first) * step);
  }
}

}  // namespace attest::kernels::ATTEST_ISA
