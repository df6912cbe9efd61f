// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "attest/attention/attention.h"
#include "attest/attention/dispatch.h"
#include "attest/attention/empty_row.h"
#include "attest/attention/row_block.h"
#include "attest/attention/scratch.h"
#include "attest/linalg/flush.h"

/// Few queries against many keys: the keys are cut into parts that any thread may take. Only parts
/// that the rules of position leave visible are counted, so memory goes by what is seen, not by S.
/// Not public.
namespace attest::engine {

/// Keys of one part; parts begin at absolute multiples, so the cuts depend on nothing else.
inline constexpr std::int64_t part_keys = 1024;

template <class T>
class DecodeCall {
 public:
  using Sum = AccumulatorOf<T>;

  DecodeCall(const Call& call, const Ranges& ranges, const AttentionOutputs<T>& outputs,
             kernels::DecodeKernel<Sum> kernel, FirstEmptyRow& empty)
      : call_(call),
        ranges_(ranges),
        outputs_(outputs),
        kernel_(kernel),
        empty_(empty),
        starts_(starts_of(call, ranges)),
        row_(kernels::decode_row(call.shape.E) + 2),
        results_({starts_.back(), call.shape.rows(), row_}),
        joined_(static_cast<std::size_t>(call.shape.E)) {}

  [[nodiscard]] std::int64_t pieces() const { return starts_.back(); }

  /// One part of the keys of one key/value head.
  void piece(std::int64_t number) {
    const auto after = std::upper_bound(starts_.begin(), starts_.end(), number);
    const std::int64_t b = after - starts_.begin() - 1;
    const std::int64_t of_batch = number - *(after - 1);
    const BlockPlace place = place_of(b, of_batch / parts_of(b));
    RowBlock<Sum> rows;
    gather(rows, call_, ranges_, place);
    const auto [begin, end] = keys_of(rows, place.rows);
    const std::int64_t first = (begin / part_keys + of_batch % parts_of(b)) * part_keys;
    const Shape& s = call_.shape;
    const auto size =
        static_cast<std::size_t>(kernels::decode_scratch<Sum>(s.D, s.E)) * sizeof(Sum);
    const kernels::ForwardBlock<Sum> task{.rows = place.rows,
                                          .D = static_cast<int>(s.D),
                                          .E = static_cast<int>(s.E),
                                          .storage = call_.query.storage,
                                          .query = rows.query_data,
                                          .query_step = call_.query.strides[3],
                                          .key = head_of(call_.key, place.b, place.g),
                                          .value = head_of(call_.value, place.b, place.g),
                                          .first_key = rows.first_key,
                                          .last_key = rows.last_key,
                                          .modify = rows.modify,
                                          .scratch = reinterpret_cast<Sum*>(scratch(size))};
    Sum peak[kernels::decode_rows];
    Sum sum[kernels::decode_rows];
    const std::int64_t width = row_ - 2;
    Sum* result = &results_(number, 0, 0);
    const FlushSubnormals flush;
    kernel_({.rows = &task,
             .begin = std::max(begin, first),
             .end = std::min({end, first + part_keys, s.S}),
             .peak = peak,
             .sum = sum,
             .output = result});
    for (int r = 0; r < place.rows; ++r) {
      result[place.rows * width + 2 * r] = peak[r];
      result[place.rows * width + 2 * r + 1] = sum[r];
    }
  }

  /// The parts of all heads, in order, into the caller's memory.
  void merge() {
    kernels::Modifiers<Sum> modify;
    set_scale(modify, call_);
    for (std::int64_t b = 0; b < call_.shape.B; ++b) {
      for (std::int64_t g = 0; g < call_.shape.G; ++g) {
        const BlockPlace place = place_of(b, g);
        for (int r = 0; r < place.rows; ++r) merge_row(place, r, modify);
      }
    }
  }

 private:
  /// The first piece of each batch, and one past the last.
  static std::vector<std::int64_t> starts_of(const Call& call, const Ranges& ranges) {
    const Shape& s = call.shape;
    std::vector<std::int64_t> starts{0};
    starts.reserve(static_cast<std::size_t>(s.B) + 1);
    for (std::int64_t b = 0; b < s.B; ++b) {
      std::int64_t begin = s.S;
      std::int64_t end = 0;
      for (std::int64_t i = 0; i < s.T; ++i) {
        const RowRange range = ranges.of(b, i);
        const std::int64_t first = std::max<std::int64_t>(range.first, 0);
        const std::int64_t last = std::min(range.last, s.S);
        if (first >= last) continue;
        begin = std::min(begin, first);
        end = std::max(end, last);
      }
      const std::int64_t parts = begin < end ? (end - 1) / part_keys - begin / part_keys + 1 : 0;
      starts.push_back(starts.back() + s.G * parts);
    }
    return starts;
  }

  /// How many parts each head of a batch has.
  [[nodiscard]] std::int64_t parts_of(std::int64_t b) const {
    const auto n = static_cast<std::size_t>(b);
    return (starts_[n + 1] - starts_[n]) / call_.shape.G;
  }

  [[nodiscard]] BlockPlace place_of(std::int64_t b, std::int64_t g) const {
    return {.b = b, .g = g, .first_row = 0, .rows = static_cast<int>(call_.shape.rows())};
  }

  void merge_row(const BlockPlace& place, int r, const kernels::Modifiers<Sum>& modify) {
    constexpr Sum infinity = std::numeric_limits<Sum>::infinity();
    constexpr Sum ln2 = Sum(0.69314718055994530942);
    const std::int64_t width = row_ - 2;
    const std::int64_t group = call_.shape.heads_per_group();
    const std::int64_t h = place.g * group + r % group;
    const std::int64_t i = r / group;
    const std::int64_t parts = parts_of(place.b);
    const std::int64_t first_piece = starts_[static_cast<std::size_t>(place.b)] + place.g * parts;
    const auto of_part = [&](std::int64_t part) { return &results_(first_piece + part, 0, 0); };
    const auto peak_of = [&](std::int64_t part) {
      return of_part(part)[place.rows * width + 2 * r];
    };
    const auto sum_of = [&](std::int64_t part) {
      return of_part(part)[place.rows * width + 2 * r + 1];
    };
    Sum top = -infinity;
    bool seen = false;
    for (std::int64_t part = 0; part < parts; ++part) {
      top = std::max(top, peak_of(part));
      seen |= !(peak_of(part) == -infinity && sum_of(part) == 0);
    }
    if (!seen) {
      if (sees_a_key(call_, ranges_, place.b, h, i)) {
        write_scores_of_minus_infinity(call_, outputs_, place.b, h, i);
        return;
      }
      empty_.found(place.b, h, i);
      fill(place.b, h, i,
           call_.empty_row == EmptyRow::nan ? std::numeric_limits<Sum>::quiet_NaN() : Sum(0));
      return;
    }
    const bool with_sink = call_.sink != nullptr;
    const Sum sink =
        with_sink ? static_cast<Sum>((*call_.sink)[static_cast<std::size_t>(h)]) : Sum(0);
    if (with_sink) top = std::max(top, sink);
    const Sum base = top == -infinity ? Sum(0) : top;
    const auto power = [&](Sum score) { return std::exp2((score - base) * modify.exponent); };
    Sum total = with_sink ? power(sink) : Sum(0);
    std::fill(joined_.begin(), joined_.end(), Sum(0));
    for (std::int64_t part = 0; part < parts; ++part) {
      if (peak_of(part) == -infinity && sum_of(part) == 0) continue;
      const Sum factor = power(peak_of(part));
      total += sum_of(part) * factor;
      const Sum* output = of_part(part) + r * width;
      for (std::size_t e = 0; e < joined_.size(); ++e) joined_[e] += output[e] * factor;
    }
    for (std::int64_t e = 0; e < call_.shape.E; ++e) {
      put(place.b, h, i, e, joined_[static_cast<std::size_t>(e)] / total);
    }
    if (outputs_.log_sum_exp) {
      outputs_.log_sum_exp(place.b, h, i) = base * modify.peak_factor + std::log2(total) * ln2;
    }
  }

  void fill(std::int64_t b, std::int64_t h, std::int64_t i, Sum number) {
    for (std::int64_t e = 0; e < call_.shape.E; ++e) put(b, h, i, e, number);
    if (outputs_.log_sum_exp) {
      outputs_.log_sum_exp(b, h, i) = -std::numeric_limits<Sum>::infinity();
    }
  }

  void put(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t e, Sum number) {
    outputs_.output(b, h, i, e) = rounded(number);
  }
  /// As rounded_to, which goes by way of binary64: a twentieth of a call in bfloat16.
  static T rounded(Sum number) {
    if constexpr (std::is_same_v<T, BFloat16>) {
      const auto bits = std::bit_cast<std::uint32_t>(number);
      if (!std::isnan(number)) {
        return {static_cast<std::uint16_t>((bits + 0x7FFFU + ((bits >> 16U) & 1U)) >> 16U)};
      }
    }
    return rounded_to<T>(number);
  }

  const Call& call_;
  const Ranges& ranges_;
  const AttentionOutputs<T>& outputs_;
  kernels::DecodeKernel<Sum> kernel_;
  FirstEmptyRow& empty_;
  std::vector<std::int64_t> starts_;  // [B + 1]
  std::int64_t row_;                  // numbers of one row: output, peak, sum
  Tensor<Sum> results_;               // [pieces, rows, row]
  std::vector<Sum> joined_;           // [E], of the row that is being merged
};

}  // namespace attest::engine
