// SPDX-License-Identifier: MIT
#include "attest/check/plain_row.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "attest/base/dropout.h"

namespace attest::check {
namespace {

std::size_t index(std::int64_t n) { return static_cast<std::size_t>(n); }

/// A row in arithmetic of type X.
template <class X>
struct PlainRow {
  const lab::AttentionCall& call;
  lab::RowPlace at;
  const lab::AttentionRow& exact;
  std::int64_t g = 0;

  [[nodiscard]] X score(std::int64_t j) const {
    const auto& options = call.options;
    X dot{};
    for (std::int64_t d = 0; d < call.shape.D; ++d) {
      dot += static_cast<X>(call.in.query(at.b, at.h, at.i, d)) *
             static_cast<X>(call.in.key(at.b, g, j, d));
    }
    X out = options.scale ? dot * static_cast<X>(*options.scale)
                          : dot / std::sqrt(static_cast<X>(call.shape.D));
    if (options.softcap) {
      const X cap = static_cast<X>(*options.softcap);
      out = cap * std::tanh(out / cap);
    }
    return out + static_cast<X>(call.visibility.bias(at, j)) +
           static_cast<X>(exact.alibi[index(j)]);
  }

  [[nodiscard]] std::vector<X> output() const {
    std::vector<std::int64_t> seen;
    std::vector<X> numbers;
    for (std::int64_t j = 0; j < call.shape.S; ++j) {
      if (exact.hidden[index(j)] != lab::HiddenBy::nothing) continue;
      seen.push_back(j);
      numbers.push_back(score(j));
    }
    const auto& sinks = call.options.sink;
    const X sink =
        sinks.empty() ? -std::numeric_limits<X>::infinity() : static_cast<X>(sinks[index(at.h)]);
    X peak = sink;
    for (const X x : numbers) peak = x > peak || x != x ? x : peak;
    X sum = std::exp(sink - peak);
    for (X& x : numbers) sum += x = std::exp(x - peak);
    std::vector<X> out(index(call.shape.E));
    const X kept = static_cast<X>(1 / (1 - call.options.dropout.rate));
    for (std::size_t n = 0; n < seen.size(); ++n) {
      if (exact.dropped[index(seen[n])]) continue;
      const X weight = numbers[n] / sum * kept;
      for (std::int64_t e = 0; e < call.shape.E; ++e) {
        out[index(e)] += weight * static_cast<X>(call.in.value(at.b, g, seen[n], e));
      }
    }
    return out;
  }
};

}  // namespace

std::vector<double> plain_row(const lab::AttentionCall& call, lab::RowPlace at,
                              const lab::AttentionRow& exact, DType storage) {
  std::vector<double> out(index(call.shape.E));
  if (exact.empty) return out;
  const std::int64_t g = at.h / (call.shape.H / call.shape.G);
  if (storage == DType::f64) return PlainRow<double>{call, at, exact, g}.output();
  const std::vector<float> row = PlainRow<float>{call, at, exact, g}.output();
  std::ranges::transform(row, out.begin(), [&](float x) -> double {
    if (storage == DType::bf16) return to_double(to_bfloat16(x));
    if (storage == DType::f16) return to_double(to_half(x));
    return x;
  });
  return out;
}

}  // namespace attest::check
