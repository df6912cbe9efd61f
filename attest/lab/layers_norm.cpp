// SPDX-License-Identifier: MIT
#include "attest/lab/layers_norm.h"

#include <cmath>
#include <vector>

#include "attest/lab/environment.h"
#include "attest/lab/exact_sum.h"
#include "attest/lab/layers_check.h"

namespace attest::lab {
namespace {

using detail::Named;
using detail::shape_mismatch;

/// Where deviations are measured from: all that sets the two norms apart.
enum class Centre { at_mean, at_zero };

struct Call {
  const char* operation;
  Centre centre;
  View<const double, 2> x;  // [N, C]
  const NormParameters& norm;

  [[nodiscard]] std::int64_t N() const { return x.extent(0); }
  [[nodiscard]] std::int64_t C() const { return x.extent(1); }
  [[nodiscard]] double gain(std::int64_t c) const { return norm.gain ? norm.gain(c) : 1; }
};

Result<void> check(const Call& call) {
  if (auto ok = detail::check_given(call.operation, Named{"x", call.x}); !ok) return ok;
  if (call.C() < 1) {
    return shape_mismatch(call.operation, "C must be at least 1; x has ", call.C(), " features");
  }
  for (const auto& [name, vector] :
       {Named{"gain", call.norm.gain}, Named{"bias", call.norm.bias}}) {
    if (!vector || vector.extent(0) == call.C()) continue;
    return shape_mismatch(call.operation, "x and ", name, " must have the same C; x has ", call.C(),
                          ", ", name, " has ", vector.extent(0));
  }
  const double epsilon = call.norm.epsilon;
  if (!(epsilon >= 0 && detail::finite(epsilon))) {
    return detail::bad_option(call.operation, "epsilon must be finite and at least 0; found ",
                              epsilon);
  }
  return {};
}

double mean_of(const std::vector<double>& terms) {
  return exact_sum(terms) / static_cast<double>(terms.size());
}

/// One row, measured: what forward returns and backward starts from.
struct Row {
  double mean = 0;
  double variance = 0;
  double root = 0;                 // √(variance + ε)
  std::vector<double> normalised;  // [C], n
};

Row measure(const Call& call, std::int64_t n) {
  Row row;
  std::vector<double> terms;
  for (std::int64_t c = 0; c < call.C(); ++c) terms.push_back(call.x(n, c));
  if (call.centre == Centre::at_mean) row.mean = mean_of(terms);
  for (std::int64_t c = 0; c < call.C(); ++c) row.normalised.push_back(call.x(n, c) - row.mean);

  terms.clear();
  for (const double deviation : row.normalised) terms.push_back(deviation * deviation);
  row.variance = mean_of(terms);
  row.root = std::sqrt(row.variance + call.norm.epsilon);
  for (double& deviation : row.normalised) deviation /= row.root;
  return row;
}

Result<NormResult> forward(const Call& call) {
  const ExactEnvironment environment;
  if (auto ok = check(call); !ok) return ok.failure();
  const bool centred = call.centre == Centre::at_mean;
  NormResult out{Tensor<double>({call.N(), call.C()}),
                 centred ? Tensor<double>({call.N()}) : Tensor<double>(),
                 Tensor<double>({call.N()})};
  for (std::int64_t n = 0; n < call.N(); ++n) {
    const Row row = measure(call, n);
    if (centred) out.mean(n) = row.mean;
    out.variance(n) = row.variance;
    for (std::int64_t c = 0; c < call.C(); ++c) {
      const double scaled = row.normalised[detail::at_index(c)] * call.gain(c);
      out.output(n, c) = call.norm.bias ? scaled + call.norm.bias(c) : scaled;
    }
  }
  return out;
}

/// n = (x − mean)/root:  d_x = (d_n − mean of d_n − n·mean of d_n·n) / root, for one row.
void back_through_row(const Call& call, const Row& row, const std::vector<double>& d_n,
                      double* d_x) {
  std::vector<double> along;  // d_n·n: what stretching the row would change
  for (std::size_t c = 0; c < d_n.size(); ++c) along.push_back(d_n[c] * row.normalised[c]);
  const double shift = call.centre == Centre::at_mean ? mean_of(d_n) : 0;
  const double stretch = mean_of(along);
  for (std::size_t c = 0; c < d_n.size(); ++c) {
    const double terms[] = {d_n[c], -shift, -(row.normalised[c] * stretch)};
    d_x[c] = exact_sum(terms) / row.root;
  }
}

Result<NormGradients> backward(const Call& call, View<const double, 2> d_y) {
  const ExactEnvironment environment;
  if (auto ok = check(call); !ok) return ok.failure();
  if (auto ok = detail::check_same(call.operation, Named{"x", call.x}, Named{"d_y", d_y}); !ok) {
    return ok.failure();
  }
  const auto [N, C] = call.x.extents;
  NormGradients out{Tensor<double>({N, C}), Tensor<double>({C}), Tensor<double>({C})};
  Tensor<double> normalised({N, C});
  for (std::int64_t n = 0; n < N; ++n) {
    const Row row = measure(call, n);
    // y = n·gain + bias      d_n = d_y·gain
    std::vector<double> d_n;
    for (std::int64_t c = 0; c < C; ++c) {
      normalised(n, c) = row.normalised[detail::at_index(c)];
      d_n.push_back(d_y(n, c) * call.gain(c));
    }
    back_through_row(call, row, d_n, out.d_x.data() + n * C);
  }
  // y = n·gain + bias        d_gain = Σ d_y·n,   d_bias = Σ d_y      over the rows
  std::vector<double> gain_terms;
  std::vector<double> bias_terms;
  for (std::int64_t c = 0; c < C; ++c) {
    gain_terms.clear();
    bias_terms.clear();
    for (std::int64_t n = 0; n < N; ++n) {
      gain_terms.push_back(d_y(n, c) * normalised(n, c));
      bias_terms.push_back(d_y(n, c));
    }
    out.d_gain(c) = exact_sum(gain_terms);
    out.d_bias(c) = exact_sum(bias_terms);
  }
  return out;
}

}  // namespace

Result<NormResult> layer_norm(View<const double, 2> x, const NormParameters& norm) {
  return forward({"layer_norm", Centre::at_mean, x, norm});
}

Result<NormGradients> layer_norm_backward(View<const double, 2> x, const NormParameters& norm,
                                          View<const double, 2> d_y) {
  return backward({"layer_norm_backward", Centre::at_mean, x, norm}, d_y);
}

Result<NormResult> rms_norm(View<const double, 2> x, const NormParameters& norm) {
  return forward({"rms_norm", Centre::at_zero, x, norm});
}

Result<NormGradients> rms_norm_backward(View<const double, 2> x, const NormParameters& norm,
                                        View<const double, 2> d_y) {
  return backward({"rms_norm_backward", Centre::at_zero, x, norm}, d_y);
}

}  // namespace attest::lab
