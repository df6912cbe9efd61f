// SPDX-License-Identifier: MIT
#pragma once

#include "attest/attention/kernels/forward.h"
#include "attest/linalg/kernels/convert.h"

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

/// Rows, wherever each lies, into lanes: to[column·ld + row] = factor·from[row][column], zeros in the
/// lanes beyond `rows`.
template <class T>
inline void rows_into_lanes(T* to, int ld, const void* const* from, Storage storage,
                            std::int64_t step, int rows, int columns, T factor) {
  for (int r = 0; r < rows; ++r) {
    if (storage == storage_of<T>) {
      const T* row = static_cast<const T*>(from[r]);
      for (int c = 0; c < columns; ++c) to[c * ld + r] = row[c * step] * factor;
    } else {
      for (int c = 0; c < columns; ++c) {
        to[c * ld + r] = read_number<T>(from[r], storage, c * step) * factor;
      }
    }
  }
  for (int r = rows; r < ld; ++r) {
    for (int c = 0; c < columns; ++c) to[c * ld + r] = 0;
  }
}

}  // namespace attest::kernels::ATTEST_ISA
