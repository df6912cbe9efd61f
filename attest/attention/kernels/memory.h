// SPDX-License-Identifier: MIT
#pragma once

#include "attest/attention/kernels/forward.h"
#include "attest/linalg/kernels/convert.h"
#include "attest/linalg/kernels/layers_io.h"
#include "attest/linalg/kernels/transpose.h"

/// Numbers of any storage to and from the numbers that kernels compute with.
namespace attest::kernels::ATTEST_ISA {

template <class T>
ATTEST_INLINE T read_number(const void* base, Storage storage, std::int64_t index) {
  switch (storage) {
    case Storage::f32:
      return static_cast<T>(static_cast<const float*>(base)[index]);
    case Storage::f64:
      return static_cast<T>(static_cast<const double*>(base)[index]);
    case Storage::bf16:
      return static_cast<T>(from_bf16(static_cast<const std::uint16_t*>(base)[index]));
    case Storage::f16:
      return static_cast<T>(from_f16(static_cast<const std::uint16_t*>(base)[index]));
  }
  return 0;
}

template <class T>
ATTEST_INLINE void write_number(void* base, Storage storage, std::int64_t index, T number) {
  switch (storage) {
    case Storage::f32:
      static_cast<float*>(base)[index] = static_cast<float>(number);
      break;
    case Storage::f64:
      static_cast<double*>(base)[index] = static_cast<double>(number);
      break;
    case Storage::bf16:
      static_cast<std::uint16_t*>(base)[index] = to_bf16(static_cast<float>(number));
      break;
    case Storage::f16:
      static_cast<std::uint16_t*>(base)[index] = to_f16(static_cast<float>(number));
      break;
  }
}

ATTEST_INLINE const void* element(const void* base, Storage storage, std::int64_t index) {
  const std::int64_t size = storage == Storage::f64 ? 8 : storage == Storage::f32 ? 4 : 2;
  return static_cast<const char*>(base) + index * size;
}

template <class T>
inline constexpr Storage storage_of = sizeof(T) == 4 ? Storage::f32 : Storage::f64;

/// A matrix of T with its columns side by side: the one in memory if it is so, else a copy.
template <class T>
struct Rows {
  const T* data = nullptr;
  std::int64_t row = 0;
};

template <class T>
ATTEST_INLINE bool row_is_finite(const T* row, int columns) {
  Vec<T> zero{};
  int c = 0;
  for (; c + lanes<T> <= columns; c += lanes<T>) zero += load(row + c) * T(0);
  if (c < columns) zero += load_first(row + c, columns - c) * T(0);
  return !any(zero != Vec<T>{});
}

/// One row of 16-bit numbers, widened.
template <class T>
ATTEST_INLINE void widen_row(T* to, const void* from, Storage storage, int count) {
  int at = 0;
  if constexpr (sizeof(T) == 4) {
    const auto* source = static_cast<const std::uint16_t*>(from);
    if (storage == Storage::bf16) {
      for (; at + lanes<T> <= count; at += lanes<T>) store<T>(to + at, load_bf16(source + at));
    } else {
      for (; at + lanes<T> <= count; at += lanes<T>) store<T>(to + at, load_f16(source + at));
    }
  }
  for (; at < count; ++at) to[at] = read_number<T>(from, storage, at);
}

template <class T>
inline Rows<T> rows_of(const Matrix& matrix, Storage storage, std::int64_t first, int count,
                       int columns, T* room) {
  const void* start = element(matrix.data, storage, first * matrix.row);
  if (matrix.column == 1 && storage == storage_of<T>)
    return {static_cast<const T*>(start), matrix.row};
  for (int r = 0; r < count; ++r) {
    const void* row = element(start, storage, r * matrix.row);
    T* to = room + static_cast<std::int64_t>(r) * columns;
    if (matrix.column == 1 && (storage == Storage::bf16 || storage == Storage::f16)) {
      widen_row(to, row, storage, columns);
    } else {
      for (int c = 0; c < columns; ++c) to[c] = read_number<T>(row, storage, c * matrix.column);
    }
  }
  return {room, columns};
}

/// Calls body<S>() with the type that `storage` stands for, if it is calculated with T. False if not.
template <class T, class Body>
ATTEST_INLINE bool with_stored(Storage storage, Body body) {
  if (storage == storage_of<T>) {
    body.template operator()<T>();
    return true;
  }
  if constexpr (sizeof(T) == 4) {
    if (storage == Storage::bf16) {
      body.template operator()<StoredBf16>();
      return true;
    }
    if (storage == Storage::f16) {
      body.template operator()<StoredF16>();
      return true;
    }
  }
  return false;
}

/// use(c, numbers of column c, a row in each lane) for columns 0, 1, … of up to W rows, wherever each
/// lies; zeros in the lanes beyond `rows`.
///
/// Squares of W × W are turned in registers, so that each row is read W numbers at a time.
template <class S, class T, class Use>
ATTEST_INLINE void turn_rows(const void* const* from, int rows, int columns, Use use) {
  constexpr int W = lanes<T>;
  const auto turn = [&](int c, auto part, int count) __attribute__((always_inline)) {
    Vec<T> square[W];
    if (rows >= W) {
#pragma GCC unroll 16
      for (int r = 0; r < W; ++r) {
        square[r] = Io<S>::get(static_cast<const S*>(from[r]) + c, part);
      }
    } else {
      for (int r = 0; r < W; ++r) square[r] = Vec<T>{};
      for (int r = 0; r < rows; ++r) {
        square[r] = Io<S>::get(static_cast<const S*>(from[r]) + c, part);
      }
    }
    transpose<T>(square);
#pragma GCC unroll 16
    for (int k = 0; k < W; ++k) {
      if (k < count) use(c + k, square[k]);
    }
  };
  int c = 0;
  for (; c + W <= columns; c += W) turn(c, Whole<T>{}, W);
  if (c < columns) turn(c, Part<T>{columns - c}, columns - c);
}

/// The same for any step from column to column.
template <class T, class Use>
ATTEST_INLINE void columns_of_rows(const void* const* from, Storage storage, std::int64_t step,
                                   int rows, int columns, Use use) {
  if (step == 1 && with_stored<T>(
                       storage, [&]<class S>() __attribute__((always_inline)) {
                         turn_rows<S, T>(from, rows, columns, use);
                       })) {
    return;
  }
  for (int c = 0; c < columns; ++c) {
    T column[lanes<T>] = {};
    for (int r = 0; r < rows; ++r) column[r] = read_number<T>(from[r], storage, c * step);
    use(c, load(column));
  }
}

/// Rows, wherever each lies, into lanes: to[column·ld + row] = factor·from[row][column], zeros in the
/// lanes beyond `rows`. ld is a multiple of W.
template <class T>
inline void rows_into_lanes(T* to, int ld, const void* const* from, Storage storage,
                            std::int64_t step, int rows, int columns, T factor) {
  constexpr int W = lanes<T>;
  for (int r = 0; r < ld; r += W) {
    const int count = rows - r < W ? rows - r : W;
    columns_of_rows<T>(
        from + r, storage, step, count,
        columns, [&](int c, Vec<T> numbers) __attribute__((always_inline)) {
          store<T>(to + c * ld + r, numbers * factor);
        });
  }
}

/// And back: use(row, column, numbers, part) for up to W rows, the numbers of `part` columns each; they
/// lie at from[column·ld + row].
template <class T, class Use>
ATTEST_INLINE void turn_lanes(const T* from, int ld, int rows, int columns, Use use) {
  constexpr int W = lanes<T>;
  const auto turn = [&](int c, auto part, int count) __attribute__((always_inline)) {
    Vec<T> square[W];
    if (count >= W) {
#pragma GCC unroll 16
      for (int k = 0; k < W; ++k) square[k] = load(from + (c + k) * ld);
    } else {
      for (int k = 0; k < W; ++k) square[k] = Vec<T>{};
      for (int k = 0; k < count; ++k) square[k] = load(from + (c + k) * ld);
    }
    transpose<T>(square);
#pragma GCC unroll 16
    for (int r = 0; r < W; ++r) {
      if (r < rows) use(r, c, square[r], part);
    }
  };
  int c = 0;
  for (; c + W <= columns; c += W) turn(c, Whole<T>{}, W);
  if (c < columns) turn(c, Part<T>{columns - c}, columns - c);
}

/// to[row][column] = factor·from[column·ld + row]
template <class T>
inline void lanes_into_rows(void* const* to, Storage storage, std::int64_t step, const T* from,
                            int ld, int rows, int columns, T factor) {
  constexpr int W = lanes<T>;
  for (int first = 0; first < rows; first += W) {
    const int count = rows - first < W ? rows - first : W;
    if (step == 1 &&
        with_stored<T>(
            storage, [&]<class S>() __attribute__((always_inline)) {
              turn_lanes<T>(
                  from + first, ld, count, columns,
                  [&](int r, int c, Vec<T> numbers, auto part) __attribute__((always_inline)) {
                    Io<S>::put(static_cast<S*>(to[first + r]) + c, numbers * factor, part);
                  });
            })) {
      continue;
    }
    for (int r = first; r < first + count; ++r) {
      for (int c = 0; c < columns; ++c) {
        write_number<T>(to[r], storage, c * step, from[c * ld + r] * factor);
      }
    }
  }
}

}  // namespace attest::kernels::ATTEST_ISA
