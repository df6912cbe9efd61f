// SPDX-License-Identifier: MIT
#pragma once

#include "attest/linalg/kernels/convert.h"
#include "attest/linalg/kernels/gemm.h"
#include "attest/linalg/kernels/transpose.h"
#include "attest/linalg/kernels/vec.h"

namespace attest::kernels::ATTEST_ISA {

/// A number as it is packed.
ATTEST_INLINE float widened(StoredBf16 number) { return from_bf16(number.bits); }
ATTEST_INLINE float widened(StoredF16 number) { return from_f16(number.bits); }
ATTEST_INLINE float widened(float number) { return number; }
ATTEST_INLINE double widened(double number) { return number; }

/// The first `count` of a register of T from numbers beside each other in memory, zeros beyond.
template <class T, class S, int count = lanes<T>>
ATTEST_INLINE Vec<T> load_widened(const S* from) {
  if constexpr (sizeof(S) == sizeof(T)) {
    Vec<T> out{};
    __builtin_memcpy(&out, from, count * sizeof(T));
    return out;
  } else {
    std::uint16_t bits[lanes<T>] = {};
    __builtin_memcpy(bits, from, count * sizeof(S));
    return __is_same(S, StoredBf16) ? load_bf16(bits) : load_f16(bits);
  }
}

/// Asks for memory that a thin product will read soon: short runs of many lines, which the machine's own
/// prefetching does not follow. The address may lie beyond the end; nothing is read there.
template <int level = 1, class S>
ATTEST_INLINE void prefetch(const S* from, std::int64_t ahead) {
  const auto place = reinterpret_cast<std::uintptr_t>(from);
  const auto bytes = static_cast<std::uintptr_t>(ahead) * sizeof(S);
  const auto* there =
      reinterpret_cast<const void*>(place + bytes);  // NOLINT(performance-no-int-to-ptr)
  __builtin_prefetch(there, 0, 4 - level);
}

/// One panel, any strides, depths from `begin`: slow.
template <class T, class S, int P>
inline void pack_plainly(const GemmPack& pack, const S* from, int lines, std::int64_t begin,
                         T* to) {
  for (std::int64_t k = begin; k < pack.depth; ++k) {
    for (int i = 0; i < P; ++i) {
      const std::int64_t place = i * pack.line_stride + k * pack.depth_stride;
      to[k * P + i] = i < lines ? widened(from[place]) : T(0);
    }
  }
}

/// One panel whose lines lie in memory depth by depth: squares are transposed in registers.
template <class T, class S, int P>
inline void pack_along_depth(const GemmPack& pack, const S* from, int lines, T* to) {
  constexpr int W = lanes<T>;
  constexpr int squares = (P + W - 1) / W;
  std::int64_t k = 0;
  for (; k + W <= pack.depth; k += W) {
    Vec<T> line[squares][W];
#pragma GCC unroll 4
    for (int s = 0; s < squares; ++s) {
#pragma GCC unroll 16
      for (int i = 0; i < W; ++i) {
        const int number = s * W + i;
        line[s][i] = Vec<T>{};
        if (number < P && number < lines) {
          const S* const place = from + number * pack.line_stride + k;
          prefetch(place, 512 / sizeof(S));
          line[s][i] = load_widened<T>(place);
        }
      }
      transpose<T>(line[s]);
      if constexpr (P % W == 0) {
#pragma GCC unroll 16
        for (int i = 0; i < W; ++i) store<T>(to + (k + i) * P + s * W, line[s][i]);
      }
    }
    if constexpr (P % W != 0) {
#pragma GCC unroll 16
      for (int i = 0; i < W; ++i) {
#pragma GCC unroll 4
        for (int s = 0; s < squares; ++s) {
          T* const place = to + (k + i) * P + s * W;
          // What is written too far, the next depth overwrites; beyond the panel is another's.
          if (s + 1 < squares || i + 1 < W) {
            store<T>(place, line[s][i]);
          } else {
            __builtin_memcpy(place, &line[s][i], (P % W) * sizeof(T));
          }
        }
      }
    }
  }
  pack_plainly<T, S, P>(pack, from, lines, k, to);
}

/// One depth of one full panel whose lines lie beside each other.
template <class T, class S, int P>
ATTEST_INLINE void copy_lines(const S* from, T* to) {
  constexpr int W = lanes<T>;
  constexpr int rest = P % W;
#pragma GCC unroll 4
  for (int i = 0; i + W <= P; i += W) store<T>(to + i, load_widened<T>(from + i));
  if constexpr (rest > 0) {
    const Vec<T> last = load_widened<T, S, rest>(from + (P - rest));
    __builtin_memcpy(to + (P - rest), &last, rest * sizeof(T));
  }
}

/// All panels, each P lines wide.
template <class T, class S, int P>
inline void gemm_pack(const GemmPack& pack) noexcept {
  if (pack.depth == 0) return;  // then there may be no memory to point into
  const auto* const from = static_cast<const S*>(pack.from);
  auto* const to = static_cast<T*>(pack.to);
  const std::int64_t full = pack.lines / P * P;
  if (pack.line_stride == 1) {
    // Depth by depth through all panels, so that memory is read as it lies.
    for (std::int64_t k = 0; k < pack.depth; ++k) {
      const S* const row = from + k * pack.depth_stride;
      for (std::int64_t i = 0; i < full; i += P) {
        for (std::int64_t line = 0; line < P; line += 64 / std::int64_t{sizeof(S)}) {
          prefetch(row + i + line, 4 * pack.depth_stride);
        }
        copy_lines<T, S, P>(row + i, to + i * pack.depth + k * P);
      }
    }
  } else {
    for (std::int64_t i = 0; i < full; i += P) {
      const S* const line = from + i * pack.line_stride;
      if (pack.depth_stride == 1) {
        pack_along_depth<T, S, P>(pack, line, P, to + i * pack.depth);
      } else {
        pack_plainly<T, S, P>(pack, line, P, 0, to + i * pack.depth);
      }
    }
  }
  if (full == pack.lines) return;
  const int rest = static_cast<int>(pack.lines - full);
  const S* const line = from + full * pack.line_stride;
  if (pack.depth_stride == 1) {
    pack_along_depth<T, S, P>(pack, line, rest, to + full * pack.depth);
  } else {
    pack_plainly<T, S, P>(pack, line, rest, 0, to + full * pack.depth);
  }
}

}  // namespace attest::kernels::ATTEST_ISA
