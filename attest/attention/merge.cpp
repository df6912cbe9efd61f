// SPDX-License-Identifier: MIT
#include <array>
#include <cmath>
#include <limits>

#include "attest/attention/attention.h"
#include "attest/base/shape.h"
#include "attest/base/text.h"

namespace attest {
namespace {

double number(float value) { return value; }
double number(double value) { return value; }
double number(BFloat16 value) { return to_float(value); }
double number(Half value) { return to_double(value); }

/// Which share of the joined result each part has.
struct Shares {
  double a = 1;
  double b = 0;
  double log_sum_exp = 0;
};

Shares shares_of(double a, double b) {
  const double top = a > b || b != b ? a : b;
  // Both saw nothing, or one of them has a weight beyond all numbers.
  if (top - top != 0) return {a == top ? 1.0 : 0.0, a == top ? 0.0 : 1.0, top};
  const double of_a = std::exp(a - top);
  const double of_b = std::exp(b - top);
  return {of_a / (of_a + of_b), of_b / (of_a + of_b), top + std::log(of_a + of_b)};
}

template <class T>
void check(const AttentionOutputs<const T>& part, const AttentionOutputs<T>& into) {
  const auto& o = into.output.extents;
  const std::array<std::int64_t, 3> rows{o[0], o[1], o[2]};
  if (part.output && part.log_sum_exp && part.output.extents == o &&
      part.log_sum_exp.extents == rows && (!into.log_sum_exp || into.log_sum_exp.extents == rows)) {
    return;
  }
  throw_failure(
      {ErrorKind::shape, "shape-mismatch",
       sentence("[merge_attention] both parts must have an output of shape ", to_string(o),
                " and a log_sum_exp of shape ", to_string(rows), "; one has ",
                to_string(part.output.extents), " and ", to_string(part.log_sum_exp.extents))});
}

}  // namespace

template <class T>
void merge_attention(const AttentionOutputs<T>& into, const AttentionOutputs<const T>& a,
                     const AttentionOutputs<const T>& b) {
  check<T>(a, into);
  check<T>(b, into);
  constexpr double nothing = -std::numeric_limits<double>::infinity();
  const auto& o = into.output.extents;
  if (o[1] == 0 || o[2] == 0) return;  // however many batches there are
  for (std::int64_t n = 0; n < o[0]; ++n) {
    for (std::int64_t h = 0; h < o[1]; ++h) {
      for (std::int64_t i = 0; i < o[2]; ++i) {
        const double of_a = a.log_sum_exp(n, h, i);
        const double of_b = b.log_sum_exp(n, h, i);
        const Shares share = shares_of(of_a, of_b);
        for (std::int64_t e = 0; e < o[3]; ++e) {
          // A part that saw nothing holds no number worth adding, and leaves the other's bits alone.
          if (of_b == nothing) {
            into.output(n, h, i, e) = a.output(n, h, i, e);
          } else if (of_a == nothing) {
            into.output(n, h, i, e) = b.output(n, h, i, e);
          } else {
            into.output(n, h, i, e) = rounded_to<T>(share.a * number(a.output(n, h, i, e)) +
                                                    share.b * number(b.output(n, h, i, e)));
          }
        }
        if (into.log_sum_exp) {
          const double joined = of_b == nothing ? of_a : of_a == nothing ? of_b : share.log_sum_exp;
          into.log_sum_exp(n, h, i) = static_cast<AccumulatorOf<T>>(joined);
        }
      }
    }
  }
}

template void merge_attention<float>(const AttentionOutputs<float>&,
                                     const AttentionOutputs<const float>&,
                                     const AttentionOutputs<const float>&);
template void merge_attention<double>(const AttentionOutputs<double>&,
                                      const AttentionOutputs<const double>&,
                                      const AttentionOutputs<const double>&);
template void merge_attention<BFloat16>(const AttentionOutputs<BFloat16>&,
                                        const AttentionOutputs<const BFloat16>&,
                                        const AttentionOutputs<const BFloat16>&);
template void merge_attention<Half>(const AttentionOutputs<Half>&,
                                    const AttentionOutputs<const Half>&,
                                    const AttentionOutputs<const Half>&);

}  // namespace attest
