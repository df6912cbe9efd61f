// SPDX-License-Identifier: MIT
#include "attest/attention/attention.h"

#include "attest/attention/call.h"
#include "attest/attention/call_check.h"
#include "attest/attention/decode.h"
#include "attest/attention/dispatch.h"
#include "attest/attention/forward_call.h"
#include "attest/base/shape.h"
#include "attest/base/text.h"

namespace attest {
namespace engine {
namespace {

template <class T>
Result<void> check_outputs(const AttentionOutputs<T>& out, const AttentionInputs<T>& in,
                           const Shape& s) {
  const auto wrong = [](const char* name, const attest::Shape& wanted, const auto& found) {
    return Failure{ErrorKind::shape, "shape-mismatch",
                   sentence("[attention] ", name, " must have shape ", to_string(wanted),
                            "; it has ", to_string(found))};
  };
  if (out.output.extents != std::array<std::int64_t, 4>{s.B, s.H, s.T, s.E}) {
    return wrong("output", {s.B, s.H, s.T, s.E}, out.output.extents);
  }
  if (out.log_sum_exp && out.log_sum_exp.extents != std::array<std::int64_t, 3>{s.B, s.H, s.T}) {
    return wrong("log_sum_exp", {s.B, s.H, s.T}, out.log_sum_exp.extents);
  }
  return check_places(
      {place_of("output", out.output), place_of("log_sum_exp", out.log_sum_exp)},
      {place_of("query", in.query), place_of("key", in.key), place_of("value", in.value)});
}

/// Multiply-adds that one thread does sooner than it can wake another.
constexpr double small_call = 1 << 20;

}  // namespace
}  // namespace engine

template <class T, BiasFor<T> Bias>
Result<void> try_attention(const AttentionOutputs<T>& outputs, const AttentionInputs<T>& inputs,
                           const AttentionOptions<Bias>& options, const Execution& execution) {
  auto call = engine::checked_call(inputs, options);
  if (!call) return call.failure();
  if (auto ok = engine::check_outputs(outputs, inputs, call->shape); !ok) return ok;
  const auto table = engine::kernel_table(execution);
  if (!table) return table.failure();
  const engine::Shape& s = call->shape;
  if (s.no_query()) return {};
  const engine::Ranges ranges(*call);
  engine::FirstEmptyRow empty(s);
  const bool small = s.takes_fewer(engine::small_call);
  const auto for_each_piece = [&](std::int64_t pieces, const auto& work) {
    if (pieces > 1 && !small) {
      threads_for(execution).run(pieces, work);
    } else {
      for (std::int64_t piece = 0; piece < pieces; ++piece) work(piece);
    }
  };
  if (s.rows() <= kernels::decode_rows && execution.reproducible == Reproducible::per_call) {
    engine::DecodeCall<T> decode(*call, ranges, outputs, engine::decode_kernel<T>(**table), empty);
    for_each_piece(decode.pieces(), [&](std::int64_t piece) { decode.piece(piece); });
    decode.merge();
  } else {
    const engine::RowBlocks blocks(*call);
    const engine::ForwardCall<T> forward{
        *call, ranges, outputs, engine::forward_kernel<T>(**table), blocks, empty};
    for_each_piece(forward.pieces(), [&](std::int64_t piece) { forward.piece(piece); });
  }
  if (call->empty_row != EmptyRow::error) return {};
  return empty.verdict();
}

template <class T, BiasFor<T> Bias>
void attention_into(const AttentionOutputs<T>& outputs, const AttentionInputs<T>& inputs,
                    const AttentionOptions<Bias>& options, const Execution& execution) {
  try_attention(outputs, inputs, options, execution).value();
}

namespace {

/// Whether a tensor [B, H, T, D] lies in memory with the heads inside, as [B, T, H, D].
template <class T>
bool heads_lie_inside(const View<const T, 4>& view) {
  return view.extents[1] > 1 && view.extents[2] > 1 && view.strides[1] < view.strides[2];
}

template <class T, class Bias>
AttentionResult<T> attention_of(const AttentionInputs<T>& in, const AttentionOptions<Bias>& options,
                                const Execution& execution) {
  // Before anything is allocated: extents that do not fit together may be of any size.
  if (const auto call = engine::checked_call(in, options); !call) throw_failure(call.failure());
  const std::int64_t B = in.query.extent(0);
  const std::int64_t H = in.query.extent(1);
  const std::int64_t T_ = in.query.extent(2);
  const std::int64_t E = in.value.extent(3);
  AttentionResult<T> result;
  result.heads_inside = heads_lie_inside(in.query);
  result.memory = Tensor<T>(result.heads_inside ? Shape{B, T_, H, E} : Shape{B, H, T_, E});
  result.log_sum_exp = Tensor<AccumulatorOf<T>>({B, H, T_});
  View<T, 4> output = result.memory.template view<4>();
  if (result.heads_inside) output = output.swapped(1, 2);
  attention_into(AttentionOutputs<T>{output, result.log_sum_exp.template view<3>()}, in, options,
                 execution);
  return result;
}

}  // namespace

template <BiasFor<float> Bias>
AttentionResult<float> attention(View<const float, 4> query, View<const float, 4> key,
                                 View<const float, 4> value, const AttentionOptions<Bias>& options,
                                 const Execution& execution) {
  return attention_of<float, Bias>({query, key, value}, options, execution);
}
template <BiasFor<double> Bias>
AttentionResult<double> attention(View<const double, 4> query, View<const double, 4> key,
                                  View<const double, 4> value,
                                  const AttentionOptions<Bias>& options,
                                  const Execution& execution) {
  return attention_of<double, Bias>({query, key, value}, options, execution);
}
template <BiasFor<BFloat16> Bias>
AttentionResult<BFloat16> attention(View<const BFloat16, 4> query, View<const BFloat16, 4> key,
                                    View<const BFloat16, 4> value,
                                    const AttentionOptions<Bias>& options,
                                    const Execution& execution) {
  return attention_of<BFloat16, Bias>({query, key, value}, options, execution);
}
template <BiasFor<Half> Bias>
AttentionResult<Half> attention(View<const Half, 4> query, View<const Half, 4> key,
                                View<const Half, 4> value, const AttentionOptions<Bias>& options,
                                const Execution& execution) {
  return attention_of<Half, Bias>({query, key, value}, options, execution);
}

#define ATTEST_INSTANTIATE(T, Bias)                                                            \
  template AttentionResult<T> attention<Bias>(View<const T, 4>, View<const T, 4>,              \
                                              View<const T, 4>, const AttentionOptions<Bias>&, \
                                              const Execution&);                               \
  template void attention_into<T, Bias>(const AttentionOutputs<T>&, const AttentionInputs<T>&, \
                                        const AttentionOptions<Bias>&, const Execution&);      \
  template Result<void> try_attention<T, Bias>(const AttentionOutputs<T>&,                     \
                                               const AttentionInputs<T>&,                      \
                                               const AttentionOptions<Bias>&, const Execution&);
ATTEST_INSTANTIATE(float, float)
ATTEST_INSTANTIATE(float, BFloat16)
ATTEST_INSTANTIATE(double, double)
ATTEST_INSTANTIATE(BFloat16, float)
ATTEST_INSTANTIATE(BFloat16, BFloat16)
ATTEST_INSTANTIATE(Half, float)
ATTEST_INSTANTIATE(Half, BFloat16)
#undef ATTEST_INSTANTIATE

}  // namespace attest
