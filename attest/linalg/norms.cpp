// SPDX-License-Identifier: MIT
#include "attest/linalg/norms.h"

#include <cmath>

#include "attest/base/tensor.h"
#include "attest/linalg/layers_check.h"

namespace attest {
namespace {

using kernels::NormBackwardJob;
using kernels::NormJob;
using kernels::NormSumJob;
using kernels::NormTable;
using layers::Use;

Result<const NormTable*> table(const Execution& execution) {
  static const auto tables = layers::all_tables(layers::norm_makers);
  return layers::table_for(execution, tables);
}

/// A vector of that many numbers, or none.
template <class T>
Result<void> check_vector(const char* operation, const char* name, const View<T, 1>& vector,
                          const char* letter, std::int64_t count) {
  if (!vector || vector.extent(0) == count) return {};
  return layers::shape_mismatch(operation, "x and ", name, " must have the same ", letter,
                                "; x has ", count, ", ", name, " has ", vector.extent(0));
}

template <class T>
Result<void> check_parameter(const char* operation, const char* name, const View<T, 1>& vector,
                             std::int64_t C) {
  if (auto ok = check_vector(operation, name, vector, "C", C); !ok) return ok;
  if (!vector || C <= 1 || vector.strides[0] == 1) return {};
  return layers::bad_stride(operation, "numbers of ", name,
                            " must lie beside each other; it has stride ", vector.strides[0],
                            ", not 1");
}

template <class T>
Result<void> check_statistic(const char* operation, const char* name, const View<T, 1>& vector,
                             std::int64_t N) {
  if (auto ok = check_vector(operation, name, vector, "N", N); !ok) return ok;
  if (std::is_const_v<T> || !vector || N <= 1 || vector.strides[0] != 0) return {};
  return layers::bad_stride(operation, "numbers of ", name,
                            " must not overlap; it has stride 0 and ", N, " elements");
}

template <class T>
Result<void> check_features(const char* operation, const View<T, 2>& x) {
  if (x.extent(1) >= 1) return {};
  return layers::shape_mismatch(operation, "C must be at least 1; x has ", x.extent(1),
                                " features");
}

template <class S>
Result<void> check(View<S, 2> y, View<const S, 2> x, const NormOptions<S>& options) {
  const char* const operation = options.kind == Norm::layer_norm ? "layer_norm" : "rms_norm";
  if (auto ok = layers::check_rows(operation, "x", x, Use::read); !ok) return ok;
  if (auto ok = layers::check_like(operation, "y", y, Use::write, "x", x); !ok) return ok;
  const auto [N, C] = x.extents;
  if (auto ok = check_features(operation, x); !ok) return ok;
  if (auto ok = check_parameter(operation, "gain", options.gain, C); !ok) return ok;
  if (auto ok = check_parameter(operation, "bias", options.bias, C); !ok) return ok;
  if (auto ok = check_statistic(operation, "mean", options.mean, N); !ok) return ok;
  if (auto ok = check_statistic(operation, "inverse_deviation", options.inverse_deviation, N);
      !ok) {
    return ok;
  }
  if (options.kind == Norm::rms_norm && options.mean) {
    return layers::bad_option(operation, "there is no mean to be saved; found one of ",
                              options.mean.extent(0), " rows");
  }
  if (!(options.epsilon >= 0 && std::isfinite(options.epsilon))) {
    return layers::bad_option(operation, "epsilon must be finite and at least 0; found ",
                              options.epsilon);
  }
  return {};
}

template <class S>
Result<void> check(const NormGradients<S>& gradients, const NormBackwardInputs<S>& inputs) {
  const bool centred = inputs.kind == Norm::layer_norm;
  const char* const operation = centred ? "layer_norm_backward" : "rms_norm_backward";
  const auto& x = inputs.x;
  if (auto ok = layers::check_rows(operation, "x", x, Use::read); !ok) return ok;
  if (auto ok = layers::check_like(operation, "d_y", inputs.d_y, Use::read, "x", x); !ok) return ok;
  const auto [N, C] = x.extents;
  if (auto ok = check_features(operation, x); !ok) return ok;
  if (auto ok = check_parameter(operation, "gain", inputs.gain, C); !ok) return ok;
  if (centred && !inputs.mean) return layers::shape_mismatch(operation, "mean must be given");
  if (!inputs.inverse_deviation) {
    return layers::shape_mismatch(operation, "inverse_deviation must be given");
  }
  if (auto ok = check_statistic(operation, "mean", inputs.mean, N); !ok) return ok;
  if (auto ok = check_statistic(operation, "inverse_deviation", inputs.inverse_deviation, N); !ok) {
    return ok;
  }
  if (gradients.d_x) {
    if (auto ok = layers::check_like(operation, "d_x", gradients.d_x, Use::write, "x", x); !ok) {
      return ok;
    }
  }
  if (static_cast<bool>(gradients.d_gain) != static_cast<bool>(gradients.d_bias)) {
    return layers::shape_mismatch(operation, "d_gain and d_bias must be given together");
  }
  if (auto ok = check_parameter(operation, "d_gain", gradients.d_gain, C); !ok) return ok;
  return check_parameter(operation, "d_bias", gradients.d_bias, C);
}

template <class T>
T* from(const View<T, 1>& view, std::int64_t first) {
  return view ? view.data + first * view.strides[0] : nullptr;
}

/// The sums over the rows, in groups that N alone decides, then over the groups in their order.
template <class T>
struct Groups {
  static constexpr std::int64_t most = 64;
  static constexpr std::int64_t fewest_rows = 16;
  std::int64_t rows_each;
  std::int64_t count;
  std::int64_t width;
  Tensor<T> sums;  // [count, 2, width]: gain, then bias

  Groups(std::int64_t N, std::int64_t C)
      : rows_each(std::max(fewest_rows, (N + most - 1) / most)),
        count((N + rows_each - 1) / rows_each),
        width(C),
        sums(Shape{count, 2, width}) {}

  void add_up(const NormTable& set, T* d_gain, T* d_bias) const {
    constexpr auto sum = sizeof(T) == 8 ? &NormTable::sum_f64 : &NormTable::sum_f32;
    NormSumJob job{.parts = count, .part_stride = 2 * width, .cols = width};
    job.from = sums.data();
    job.to = d_gain;
    (set.*sum)(job);
    job.from = sums.data() + width;
    job.to = d_bias;
    (set.*sum)(job);
  }
};

template <class S>
NormBackwardJob job_for(const NormGradients<S>& gradients, const NormBackwardInputs<S>& inputs,
                        Range part) {
  NormBackwardJob job{.rows = part.end - part.begin, .cols = inputs.x.extent(1)};
  job.x = layers::rows_in(inputs.x, part.begin);
  job.d_y = layers::rows_in(inputs.d_y, part.begin);
  if (gradients.d_x) job.d_x = layers::rows_out(gradients.d_x, part.begin);
  job.gain = inputs.gain.data;
  job.centred = inputs.kind == Norm::layer_norm;
  job.mean = from(inputs.mean, part.begin);
  job.mean_stride = inputs.mean.strides[0];
  job.inverse = from(inputs.inverse_deviation, part.begin);
  job.inverse_stride = inputs.inverse_deviation.strides[0];
  return job;
}

}  // namespace

template <class S>
Result<void> try_norm(View<S, 2> y, std::type_identity_t<View<const S, 2>> x,
                      const std::type_identity_t<NormOptions<S>>& options,
                      const Execution& execution) {
  if (auto ok = check(y, x, options); !ok) return ok;
  const auto set = table(execution);
  if (!set) return set.failure();
  const auto kernel = (*set)->forward[layers::storage_of<S>];
  layers::run_rows(execution, x.extent(0), x.extent(1), [&](Range part) {
    NormJob job{.rows = part.end - part.begin, .cols = x.extent(1)};
    job.x = layers::rows_in(x, part.begin);
    job.y = layers::rows_out(y, part.begin);
    job.gain = options.gain.data;
    job.bias = options.bias.data;
    job.epsilon = options.epsilon;
    job.centred = options.kind == Norm::layer_norm;
    job.mean = from(options.mean, part.begin);
    job.mean_stride = options.mean.strides[0];
    job.inverse = from(options.inverse_deviation, part.begin);
    job.inverse_stride = options.inverse_deviation.strides[0];
    kernel(job);
  });
  return {};
}

template <class S>
Result<void> try_norm_backward(const NormGradients<S>& gradients,
                               const std::type_identity_t<NormBackwardInputs<S>>& inputs,
                               const Execution& execution) {
  using T = AccumulatorOf<S>;
  if (auto ok = check(gradients, inputs); !ok) return ok;
  const auto set = table(execution);
  if (!set) return set.failure();
  const auto kernel = (*set)->backward[layers::storage_of<S>];
  const std::int64_t N = inputs.x.extent(0);
  const std::int64_t C = inputs.x.extent(1);
  if (!gradients.d_gain) {
    if (!gradients.d_x) return {};
    layers::run_rows(execution, N, C,
                     [&](Range part) { kernel(job_for(gradients, inputs, part)); });
    return {};
  }
  Groups<T> groups(N, C);
  layers::run_pieces(execution, groups.count, [&](std::int64_t group) {
    const std::int64_t begin = group * groups.rows_each;
    NormBackwardJob job =
        job_for(gradients, inputs, {begin, std::min(N, begin + groups.rows_each)});
    job.d_gain = groups.sums.data() + group * 2 * C;
    job.d_bias = groups.sums.data() + (group * 2 + 1) * C;
    kernel(job);
  });
  layers::run_pieces(execution, 1, [&](std::int64_t) {
    groups.add_up(**set, gradients.d_gain.data, gradients.d_bias.data);
  });
  return {};
}

#if defined(__cpp_exceptions)
template <class S>
void norm(View<S, 2> y, std::type_identity_t<View<const S, 2>> x,
          const std::type_identity_t<NormOptions<S>>& options, const Execution& execution) {
  try_norm(y, x, options, execution).value();
}

template <class S>
void norm_backward(const NormGradients<S>& gradients,
                   const std::type_identity_t<NormBackwardInputs<S>>& inputs,
                   const Execution& execution) {
  try_norm_backward(gradients, inputs, execution).value();
}
#endif

template Result<void> try_norm(View<double, 2> y, View<const double, 2> x,
                               const NormOptions<double>& options, const Execution& execution);
template Result<void> try_norm(View<float, 2> y, View<const float, 2> x,
                               const NormOptions<float>& options, const Execution& execution);
template Result<void> try_norm(View<Half, 2> y, View<const Half, 2> x,
                               const NormOptions<Half>& options, const Execution& execution);
template Result<void> try_norm(View<BFloat16, 2> y, View<const BFloat16, 2> x,
                               const NormOptions<BFloat16>& options, const Execution& execution);
template Result<void> try_norm_backward(const NormGradients<double>& gradients,
                                        const NormBackwardInputs<double>& inputs,
                                        const Execution& execution);
template Result<void> try_norm_backward(const NormGradients<float>& gradients,
                                        const NormBackwardInputs<float>& inputs,
                                        const Execution& execution);
template Result<void> try_norm_backward(const NormGradients<Half>& gradients,
                                        const NormBackwardInputs<Half>& inputs,
                                        const Execution& execution);
template Result<void> try_norm_backward(const NormGradients<BFloat16>& gradients,
                                        const NormBackwardInputs<BFloat16>& inputs,
                                        const Execution& execution);
#if defined(__cpp_exceptions)
template void norm(View<double, 2> y, View<const double, 2> x, const NormOptions<double>& options,
                   const Execution& execution);
template void norm(View<float, 2> y, View<const float, 2> x, const NormOptions<float>& options,
                   const Execution& execution);
template void norm(View<Half, 2> y, View<const Half, 2> x, const NormOptions<Half>& options,
                   const Execution& execution);
template void norm(View<BFloat16, 2> y, View<const BFloat16, 2> x,
                   const NormOptions<BFloat16>& options, const Execution& execution);
template void norm_backward(const NormGradients<double>& gradients,
                            const NormBackwardInputs<double>& inputs, const Execution& execution);
template void norm_backward(const NormGradients<float>& gradients,
                            const NormBackwardInputs<float>& inputs, const Execution& execution);
template void norm_backward(const NormGradients<Half>& gradients,
                            const NormBackwardInputs<Half>& inputs, const Execution& execution);
template void norm_backward(const NormGradients<BFloat16>& gradients,
                            const NormBackwardInputs<BFloat16>& inputs, const Execution& execution);
#endif

}  // namespace attest
