// SPDX-License-Identifier: MIT
#include "attest/linalg/activations.h"

#include <initializer_list>

#include "attest/linalg/layers_check.h"

namespace attest {
namespace {

using kernels::ActivationTable;
using kernels::RowJob;
using kernels::RowKernel;
using layers::Use;

Result<const ActivationTable*> table(const Execution& execution) {
  static const auto tables = layers::all_tables(layers::activation_makers);
  return layers::table_for(execution, tables);
}

template <class View2>
struct Named {
  const char* name;
  View2 view;
};

/// A call of any of the four: what goes in, what comes out, and which row of the table does it.
template <class S>
struct Call {
  const char* operation;
  RowKernel (ActivationTable::*kernels)[kernels::storage_types];
  std::initializer_list<Named<View<const S, 2>>> in;
  std::initializer_list<Named<View<S, 2>>> out;
  Activation kind;
};

template <class S>
Result<void> check(const Call<S>& call) {
  const auto& first = *call.in.begin();
  if (auto ok = layers::check_rows(call.operation, first.name, first.view, Use::read); !ok) {
    return ok;
  }
  for (const auto& [name, view] : call.in) {
    if (auto ok = layers::check_like(call.operation, name, view, Use::read, first.name, first.view);
        !ok) {
      return ok;
    }
  }
  for (const auto& [name, view] : call.out) {
    if (auto ok =
            layers::check_like(call.operation, name, view, Use::write, first.name, first.view);
        !ok) {
      return ok;
    }
  }
  const int choice = static_cast<int>(call.kind);
  if (choice < 0 || choice > static_cast<int>(Activation::silu)) {
    return layers::bad_option(call.operation, "an activation must be one of 0 to 3; found ",
                              choice);
  }
  return {};
}

/// Whether the rows follow each other without a gap, so that they may be cut anywhere.
template <class T>
bool dense(const View<T, 2>& view) {
  return view.extent(0) <= 1 || view.strides[0] == view.extent(1);
}

template <class T>
View<T, 2> cut(const View<T, 2>& view, std::int64_t width) {
  return {view.data, {view.extent(0) * view.extent(1) / width, width}};
}

template <class S>
Result<void> run(Call<S> call, const Execution& execution) {
  if (auto ok = check(call); !ok) return ok;
  const auto set = table(execution);
  if (!set) return set.failure();
  const RowKernel kernel = ((*set)->*call.kernels)[layers::storage_of<S>];
  const std::int64_t N = call.in.begin()->view.extent(0);
  const std::int64_t F = call.in.begin()->view.extent(1);
  // One long row, or many short ones beside each other, are work for several threads as well.
  bool flat = N * F > 0;
  for (const auto& [name, view] : call.in) flat = flat && dense(view);
  for (const auto& [name, view] : call.out) flat = flat && dense(view);
  const std::int64_t rows = flat ? N * F : N;
  layers::run_rows(execution, rows, flat ? 1 : F, [&](Range part) {
    const std::int64_t count = part.end - part.begin;
    RowJob job{
        .rows = flat ? 1 : count, .cols = flat ? count : F, .choice = static_cast<int>(call.kind)};
    int n = 0;
    for (const auto& [name, view] : call.in) {
      job.in[n++] = layers::rows_in(flat ? cut(view, 1) : view, part.begin);
    }
    n = 0;
    for (const auto& [name, view] : call.out) {
      job.out[n++] = layers::rows_out(flat ? cut(view, 1) : view, part.begin);
    }
    kernel(job);
  });
  return {};
}

}  // namespace

template <class S>
Result<void> try_activate(View<S, 2> y, std::type_identity_t<View<const S, 2>> x, Activation kind,
                          const Execution& execution) {
  return run<S>({"activate", &ActivationTable::forward, {{"x", x}}, {{"y", y}}, kind}, execution);
}

template <class S>
Result<void> try_activate_backward(View<S, 2> d_x, std::type_identity_t<View<const S, 2>> x,
                                   std::type_identity_t<View<const S, 2>> d_y, Activation kind,
                                   const Execution& execution) {
  return run<S>({"activate_backward",
                 &ActivationTable::backward,
                 {{"x", x}, {"d_y", d_y}},
                 {{"d_x", d_x}},
                 kind},
                execution);
}

template <class S>
Result<void> try_gated_activation(View<S, 2> y, std::type_identity_t<View<const S, 2>> gate,
                                  std::type_identity_t<View<const S, 2>> up, Activation kind,
                                  const Execution& execution) {
  return run<S>(
      {"gated_activation", &ActivationTable::gated, {{"gate", gate}, {"up", up}}, {{"y", y}}, kind},
      execution);
}

template <class S>
Result<void> try_gated_activation_backward(View<S, 2> d_gate, std::type_identity_t<View<S, 2>> d_up,
                                           const std::type_identity_t<GatedInputs<S>>& inputs,
                                           Activation kind, const Execution& execution) {
  return run<S>({"gated_activation_backward",
                 &ActivationTable::gated_backward,
                 {{"gate", inputs.gate}, {"up", inputs.up}, {"d_y", inputs.d_y}},
                 {{"d_gate", d_gate}, {"d_up", d_up}},
                 kind},
                execution);
}

#if defined(__cpp_exceptions)
template <class S>
void activate(View<S, 2> y, std::type_identity_t<View<const S, 2>> x, Activation kind,
              const Execution& execution) {
  try_activate(y, x, kind, execution).value();
}

template <class S>
void activate_backward(View<S, 2> d_x, std::type_identity_t<View<const S, 2>> x,
                       std::type_identity_t<View<const S, 2>> d_y, Activation kind,
                       const Execution& execution) {
  try_activate_backward(d_x, x, d_y, kind, execution).value();
}

template <class S>
void gated_activation(View<S, 2> y, std::type_identity_t<View<const S, 2>> gate,
                      std::type_identity_t<View<const S, 2>> up, Activation kind,
                      const Execution& execution) {
  try_gated_activation(y, gate, up, kind, execution).value();
}

template <class S>
void gated_activation_backward(View<S, 2> d_gate, std::type_identity_t<View<S, 2>> d_up,
                               const std::type_identity_t<GatedInputs<S>>& inputs, Activation kind,
                               const Execution& execution) {
  try_gated_activation_backward(d_gate, d_up, inputs, kind, execution).value();
}
#endif

template Result<void> try_activate(View<double, 2> y, View<const double, 2> x, Activation kind,
                                   const Execution& execution);
template Result<void> try_activate(View<float, 2> y, View<const float, 2> x, Activation kind,
                                   const Execution& execution);
template Result<void> try_activate(View<Half, 2> y, View<const Half, 2> x, Activation kind,
                                   const Execution& execution);
template Result<void> try_activate(View<BFloat16, 2> y, View<const BFloat16, 2> x, Activation kind,
                                   const Execution& execution);
template Result<void> try_activate_backward(View<double, 2> d_x, View<const double, 2> x,
                                            View<const double, 2> d_y, Activation kind,
                                            const Execution& execution);
template Result<void> try_activate_backward(View<float, 2> d_x, View<const float, 2> x,
                                            View<const float, 2> d_y, Activation kind,
                                            const Execution& execution);
template Result<void> try_activate_backward(View<Half, 2> d_x, View<const Half, 2> x,
                                            View<const Half, 2> d_y, Activation kind,
                                            const Execution& execution);
template Result<void> try_activate_backward(View<BFloat16, 2> d_x, View<const BFloat16, 2> x,
                                            View<const BFloat16, 2> d_y, Activation kind,
                                            const Execution& execution);
template Result<void> try_gated_activation(View<double, 2> y, View<const double, 2> gate,
                                           View<const double, 2> up, Activation kind,
                                           const Execution& execution);
template Result<void> try_gated_activation(View<float, 2> y, View<const float, 2> gate,
                                           View<const float, 2> up, Activation kind,
                                           const Execution& execution);
template Result<void> try_gated_activation(View<Half, 2> y, View<const Half, 2> gate,
                                           View<const Half, 2> up, Activation kind,
                                           const Execution& execution);
template Result<void> try_gated_activation(View<BFloat16, 2> y, View<const BFloat16, 2> gate,
                                           View<const BFloat16, 2> up, Activation kind,
                                           const Execution& execution);
template Result<void> try_gated_activation_backward(View<double, 2> d_gate, View<double, 2> d_up,
                                                    const GatedInputs<double>& inputs,
                                                    Activation kind, const Execution& execution);
template Result<void> try_gated_activation_backward(View<float, 2> d_gate, View<float, 2> d_up,
                                                    const GatedInputs<float>& inputs,
                                                    Activation kind, const Execution& execution);
template Result<void> try_gated_activation_backward(View<Half, 2> d_gate, View<Half, 2> d_up,
                                                    const GatedInputs<Half>& inputs,
                                                    Activation kind, const Execution& execution);
template Result<void> try_gated_activation_backward(View<BFloat16, 2> d_gate,
                                                    View<BFloat16, 2> d_up,
                                                    const GatedInputs<BFloat16>& inputs,
                                                    Activation kind, const Execution& execution);
#if defined(__cpp_exceptions)
template void activate(View<double, 2> y, View<const double, 2> x, Activation kind,
                       const Execution& execution);
template void activate(View<float, 2> y, View<const float, 2> x, Activation kind,
                       const Execution& execution);
template void activate(View<Half, 2> y, View<const Half, 2> x, Activation kind,
                       const Execution& execution);
template void activate(View<BFloat16, 2> y, View<const BFloat16, 2> x, Activation kind,
                       const Execution& execution);
template void activate_backward(View<double, 2> d_x, View<const double, 2> x,
                                View<const double, 2> d_y, Activation kind,
                                const Execution& execution);
template void activate_backward(View<float, 2> d_x, View<const float, 2> x,
                                View<const float, 2> d_y, Activation kind,
                                const Execution& execution);
template void activate_backward(View<Half, 2> d_x, View<const Half, 2> x, View<const Half, 2> d_y,
                                Activation kind, const Execution& execution);
template void activate_backward(View<BFloat16, 2> d_x, View<const BFloat16, 2> x,
                                View<const BFloat16, 2> d_y, Activation kind,
                                const Execution& execution);
template void gated_activation(View<double, 2> y, View<const double, 2> gate,
                               View<const double, 2> up, Activation kind,
                               const Execution& execution);
template void gated_activation(View<float, 2> y, View<const float, 2> gate, View<const float, 2> up,
                               Activation kind, const Execution& execution);
template void gated_activation(View<Half, 2> y, View<const Half, 2> gate, View<const Half, 2> up,
                               Activation kind, const Execution& execution);
template void gated_activation(View<BFloat16, 2> y, View<const BFloat16, 2> gate,
                               View<const BFloat16, 2> up, Activation kind,
                               const Execution& execution);
template void gated_activation_backward(View<double, 2> d_gate, View<double, 2> d_up,
                                        const GatedInputs<double>& inputs, Activation kind,
                                        const Execution& execution);
template void gated_activation_backward(View<float, 2> d_gate, View<float, 2> d_up,
                                        const GatedInputs<float>& inputs, Activation kind,
                                        const Execution& execution);
template void gated_activation_backward(View<Half, 2> d_gate, View<Half, 2> d_up,
                                        const GatedInputs<Half>& inputs, Activation kind,
                                        const Execution& execution);
template void gated_activation_backward(View<BFloat16, 2> d_gate, View<BFloat16, 2> d_up,
                                        const GatedInputs<BFloat16>& inputs, Activation kind,
                                        const Execution& execution);
#endif

}  // namespace attest
