// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "attest/base/result.h"
#include "attest/linalg/isa.h"

namespace attest {

/// What a machine did in a second: the median of the samples, and the best of them.
///
/// Interference only ever slows a sample down, so `best` is the nearer to the machine's limit and the
/// gap to `median` says how quiet the machine was.
struct MeasuredRate {
  double median = 0;
  double best = 0;
  int samples = 0;
};

/// How a rate is measured. The defaults take about 30 ms.
struct Sampling {
  int threads = 1;
  int samples = 9;
  double seconds = 0.002;  ///< the least length of one sample
};

// The limits that speed is a share of. Each is measured with threads of its own that begin every
// sample together; a sample ends when the slowest has done its part. Nothing here knows the clock or
// the model of the processor: what it does is counted, not looked up.
//
// Fails         bad-isa: this machine lacks the instruction set; bad-option: threads not in 1 to 1024,
//               samples not in 1 to 1000, or seconds not in 0 to 10.
// Determinism   none: these are measurements.
// Cost          samples·seconds and as much again to find the length of a sample; longer if reading
//               the whole of a large buffer takes longer than a sample.

/// Floating-point operations a second of f32 multiply-adds between registers (a·b + c counts as two).
/// For avx512bf16 and amx, whose f32 arithmetic is that of avx512, it is avx512's.
[[nodiscard]] Result<MeasuredRate> measure_f32_peak(Isa isa, const Sampling& sampling = {});

/// The same for products of bfloat16 pairs, summed in f32, as the kernels of that instruction set do
/// them: matrix tiles (amx), dot products of pairs (avx512bf16), else widening to f32, whose limit is
/// that of f32.
[[nodiscard]] Result<MeasuredRate> measure_bf16_peak(Isa isa, const Sampling& sampling = {});

/// Bytes read a second from a buffer of `bytes` that all threads share out, each reading its own part
/// again and again: a small buffer gives a cache's rate, a large one the memory's.
/// Fails         also bad-option: bytes not in 0 to 2⁴⁰. A part below one vector reads nothing: rate 0.
[[nodiscard]] Result<MeasuredRate> measure_read_bandwidth(std::int64_t bytes,
                                                          const Sampling& sampling = {});

}  // namespace attest
