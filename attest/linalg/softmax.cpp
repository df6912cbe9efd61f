// SPDX-License-Identifier: MIT
#include "attest/linalg/softmax.h"

#include "attest/linalg/layers_check.h"

namespace attest {
namespace {

using kernels::RowJob;
using kernels::RowKernel;
using kernels::SoftmaxTable;
using layers::Use;

Result<const SoftmaxTable*> table(const Execution& execution) {
  static const auto tables = layers::all_tables(layers::softmax_makers);
  return layers::table_for(execution, tables);
}

/// One of the table's four rows.
using Kernels = RowKernel (SoftmaxTable::*)[kernels::storage_types];

template <class S>
Result<void> forward(const char* operation, Kernels kernels, View<S, 2> y, View<const S, 2> x,
                     const Execution& execution) {
  if (auto ok = layers::check_rows(operation, "x", x, Use::read); !ok) return ok;
  if (auto ok = layers::check_like(operation, "y", y, Use::write, "x", x); !ok) return ok;
  const auto set = table(execution);
  if (!set) return set.failure();
  const RowKernel kernel = ((*set)->*kernels)[layers::storage_of<S>];
  layers::run_rows(execution, x.extent(0), x.extent(1), [&](Range part) {
    RowJob job{.rows = part.end - part.begin, .cols = x.extent(1)};
    job.in[0] = layers::rows_in(x, part.begin);
    job.out[0] = layers::rows_out(y, part.begin);
    kernel(job);
  });
  return {};
}

template <class S>
Result<void> backward(const char* operation, Kernels kernels, View<S, 2> d_x, View<const S, 2> y,
                      View<const S, 2> d_y, const Execution& execution) {
  if (auto ok = layers::check_rows(operation, "y", y, Use::read); !ok) return ok;
  if (auto ok = layers::check_like(operation, "d_y", d_y, Use::read, "y", y); !ok) return ok;
  if (auto ok = layers::check_like(operation, "d_x", d_x, Use::write, "y", y); !ok) return ok;
  const auto set = table(execution);
  if (!set) return set.failure();
  const RowKernel kernel = ((*set)->*kernels)[layers::storage_of<S>];
  layers::run_rows(execution, y.extent(0), y.extent(1), [&](Range part) {
    RowJob job{.rows = part.end - part.begin, .cols = y.extent(1)};
    job.in[0] = layers::rows_in(y, part.begin);
    job.in[1] = layers::rows_in(d_y, part.begin);
    job.out[0] = layers::rows_out(d_x, part.begin);
    kernel(job);
  });
  return {};
}

}  // namespace

template <class S>
Result<void> try_softmax(View<S, 2> y, std::type_identity_t<View<const S, 2>> x,
                         const Execution& execution) {
  return forward<S>("softmax", &SoftmaxTable::softmax, y, x, execution);
}

template <class S>
Result<void> try_softmax_backward(View<S, 2> d_x, std::type_identity_t<View<const S, 2>> y,
                                  std::type_identity_t<View<const S, 2>> d_y,
                                  const Execution& execution) {
  return backward<S>("softmax_backward", &SoftmaxTable::softmax_backward, d_x, y, d_y, execution);
}

template <class S>
Result<void> try_log_softmax(View<S, 2> y, std::type_identity_t<View<const S, 2>> x,
                             const Execution& execution) {
  return forward<S>("log_softmax", &SoftmaxTable::log_softmax, y, x, execution);
}

template <class S>
Result<void> try_log_softmax_backward(View<S, 2> d_x, std::type_identity_t<View<const S, 2>> y,
                                      std::type_identity_t<View<const S, 2>> d_y,
                                      const Execution& execution) {
  return backward<S>("log_softmax_backward", &SoftmaxTable::log_softmax_backward, d_x, y, d_y,
                     execution);
}

#if defined(__cpp_exceptions)
template <class S>
void softmax(View<S, 2> y, std::type_identity_t<View<const S, 2>> x, const Execution& execution) {
  try_softmax(y, x, execution).value();
}

template <class S>
void softmax_backward(View<S, 2> d_x, std::type_identity_t<View<const S, 2>> y,
                      std::type_identity_t<View<const S, 2>> d_y, const Execution& execution) {
  try_softmax_backward(d_x, y, d_y, execution).value();
}

template <class S>
void log_softmax(View<S, 2> y, std::type_identity_t<View<const S, 2>> x,
                 const Execution& execution) {
  try_log_softmax(y, x, execution).value();
}

template <class S>
void log_softmax_backward(View<S, 2> d_x, std::type_identity_t<View<const S, 2>> y,
                          std::type_identity_t<View<const S, 2>> d_y, const Execution& execution) {
  try_log_softmax_backward(d_x, y, d_y, execution).value();
}
#endif

template Result<void> try_softmax(View<double, 2> y, View<const double, 2> x,
                                  const Execution& execution);
template Result<void> try_softmax(View<float, 2> y, View<const float, 2> x,
                                  const Execution& execution);
template Result<void> try_softmax(View<Half, 2> y, View<const Half, 2> x,
                                  const Execution& execution);
template Result<void> try_softmax(View<BFloat16, 2> y, View<const BFloat16, 2> x,
                                  const Execution& execution);
template Result<void> try_softmax_backward(View<double, 2> d_x, View<const double, 2> y,
                                           View<const double, 2> d_y, const Execution& execution);
template Result<void> try_softmax_backward(View<float, 2> d_x, View<const float, 2> y,
                                           View<const float, 2> d_y, const Execution& execution);
template Result<void> try_softmax_backward(View<Half, 2> d_x, View<const Half, 2> y,
                                           View<const Half, 2> d_y, const Execution& execution);
template Result<void> try_softmax_backward(View<BFloat16, 2> d_x, View<const BFloat16, 2> y,
                                           View<const BFloat16, 2> d_y, const Execution& execution);
template Result<void> try_log_softmax(View<double, 2> y, View<const double, 2> x,
                                      const Execution& execution);
template Result<void> try_log_softmax(View<float, 2> y, View<const float, 2> x,
                                      const Execution& execution);
template Result<void> try_log_softmax(View<Half, 2> y, View<const Half, 2> x,
                                      const Execution& execution);
template Result<void> try_log_softmax(View<BFloat16, 2> y, View<const BFloat16, 2> x,
                                      const Execution& execution);
template Result<void> try_log_softmax_backward(View<double, 2> d_x, View<const double, 2> y,
                                               View<const double, 2> d_y,
                                               const Execution& execution);
template Result<void> try_log_softmax_backward(View<float, 2> d_x, View<const float, 2> y,
                                               View<const float, 2> d_y,
                                               const Execution& execution);
template Result<void> try_log_softmax_backward(View<Half, 2> d_x, View<const Half, 2> y,
                                               View<const Half, 2> d_y, const Execution& execution);
template Result<void> try_log_softmax_backward(View<BFloat16, 2> d_x, View<const BFloat16, 2> y,
                                               View<const BFloat16, 2> d_y,
                                               const Execution& execution);
#if defined(__cpp_exceptions)
template void softmax(View<double, 2> y, View<const double, 2> x, const Execution& execution);
template void softmax(View<float, 2> y, View<const float, 2> x, const Execution& execution);
template void softmax(View<Half, 2> y, View<const Half, 2> x, const Execution& execution);
template void softmax(View<BFloat16, 2> y, View<const BFloat16, 2> x, const Execution& execution);
template void softmax_backward(View<double, 2> d_x, View<const double, 2> y,
                               View<const double, 2> d_y, const Execution& execution);
template void softmax_backward(View<float, 2> d_x, View<const float, 2> y, View<const float, 2> d_y,
                               const Execution& execution);
template void softmax_backward(View<Half, 2> d_x, View<const Half, 2> y, View<const Half, 2> d_y,
                               const Execution& execution);
template void softmax_backward(View<BFloat16, 2> d_x, View<const BFloat16, 2> y,
                               View<const BFloat16, 2> d_y, const Execution& execution);
template void log_softmax(View<double, 2> y, View<const double, 2> x, const Execution& execution);
template void log_softmax(View<float, 2> y, View<const float, 2> x, const Execution& execution);
template void log_softmax(View<Half, 2> y, View<const Half, 2> x, const Execution& execution);
template void log_softmax(View<BFloat16, 2> y, View<const BFloat16, 2> x,
                          const Execution& execution);
template void log_softmax_backward(View<double, 2> d_x, View<const double, 2> y,
                                   View<const double, 2> d_y, const Execution& execution);
template void log_softmax_backward(View<float, 2> d_x, View<const float, 2> y,
                                   View<const float, 2> d_y, const Execution& execution);
template void log_softmax_backward(View<Half, 2> d_x, View<const Half, 2> y,
                                   View<const Half, 2> d_y, const Execution& execution);
template void log_softmax_backward(View<BFloat16, 2> d_x, View<const BFloat16, 2> y,
                                   View<const BFloat16, 2> d_y, const Execution& execution);
#endif

}  // namespace attest
