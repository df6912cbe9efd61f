// SPDX-License-Identifier: MIT
#include "attest/attention/attention_backward.h"

#include <algorithm>
#include <array>
#include <limits>
#include <type_traits>

#include "attest/attention/call.h"
#include "attest/attention/call_check.h"
#include "attest/attention/dispatch.h"
#include "attest/attention/empty_row.h"
#include "attest/attention/row_block.h"
#include "attest/attention/scratch.h"
#include "attest/attention/turns.h"
#include "attest/base/shape.h"
#include "attest/base/text.h"
#include "attest/linalg/flush.h"

namespace attest {
namespace engine {
namespace {

/// Sums into keys or values of all heads: the caller's memory where it is fit for it, else our own.
template <class T>
struct KeySums {
  using Sum = AccumulatorOf<T>;
  Tensor<Sum> own;
  View<Sum, 4> sums;  // [B, G, S, padded columns]
  View<T, 4> wanted;  // [B, G, S, columns]; absent: only summed

  KeySums(View<T, 4> gradient, const std::array<std::int64_t, 4>& extents) : wanted(gradient) {
    const std::int64_t columns = extents[3];
    if constexpr (std::is_same_v<T, Sum>) {
      // Whole registers are added at once, so the columns must fill them.
      if (gradient && gradient.strides[3] == 1 && kernels::padded<Sum>(columns) == columns) {
        sums = gradient;
        wanted = {};
        clear();
        return;
      }
    }
    own = Tensor<Sum>({extents[0], extents[1], extents[2], kernels::padded<Sum>(columns)});
    sums = own.template view<4>();
  }

  void clear() const {
    for (std::int64_t b = 0; b < sums.extent(0); ++b) {
      for (std::int64_t g = 0; g < sums.extent(1); ++g) {
        for (std::int64_t j = 0; j < sums.extent(2); ++j) {
          std::fill_n(&sums(b, g, j, 0), sums.extent(3), Sum{0});
        }
      }
    }
  }

  /// The sums of one head to where they are wanted.
  void write(std::int64_t b, std::int64_t g) const {
    if (!wanted) return;
    for (std::int64_t j = 0; j < wanted.extent(2); ++j) {
      for (std::int64_t c = 0; c < wanted.extent(3); ++c) {
        wanted(b, g, j, c) = rounded_to<T>(sums(b, g, j, c));
      }
    }
  }
};

template <class T>
struct BackwardCall {
  using Sum = AccumulatorOf<T>;
  const Call& call;
  const Ranges& ranges;
  const AttentionBackwardInputs<T>& results;
  const AttentionGradientOutputs<T>& gradients;
  kernels::BackwardKernel<Sum> kernel;
  const RowBlocks& blocks;
  const KeySums<T>& d_key;
  const KeySums<T>& d_value;
  View<Sum, 4> d_bias;       // broadcast to [B, H, T, S]; absent: not wanted
  bool heads_share_bias;     // a d_bias is summed over heads or batches: all pieces take turns
  bool keys_share_bias;      // its elements are summed over keys too: a piece has one turn
  std::int64_t abreast;      // heads worked on at the same time
  Tensor<Sum>& d_sink_rows;  // [B, H, T]
  Turns& turns;
  FirstEmptyRow& empty;

  [[nodiscard]] std::int64_t pieces() const {
    return call.shape.B * call.shape.G * blocks.per_head();
  }

  struct Turn {
    Turns* turns;
    std::int64_t first;
    std::int64_t piece;
    bool whole;
  };
  static void await_turn(void* context, std::int64_t begin, std::int64_t end) {
    const auto* turn = static_cast<const Turn*>(context);
    turn->turns->await(turn->first, turn->piece, begin, turn->whole ? whole_end : end);
  }
  static void give_turn(void* context, std::int64_t end) {
    const auto* turn = static_cast<const Turn*>(context);
    if (!turn->whole) turn->turns->give(turn->piece, end);
  }
  static constexpr std::int64_t whole_end = std::numeric_limits<std::int64_t>::max() - 1;

  /// Sums into a key run in the order of its head's blocks. Pieces that are begun one after another
  /// belong to different heads, as many as there are threads, so that they seldom wait for each other;
  /// what each head is given, and in which order, does not depend on that.
  void piece(std::int64_t number) const {
    const std::int64_t count = blocks.per_head();
    const std::int64_t heads = call.shape.B * call.shape.G;
    const std::int64_t first_head = number / (abreast * count) * abreast;
    const std::int64_t side_by_side = std::min(abreast, heads - first_head);
    const std::int64_t rest = number - first_head * count;
    const std::int64_t head = first_head + rest % side_by_side;
    const std::int64_t block = rest / side_by_side;
    const BlockPlace place = blocks.place(head, block);
    Turn turn{&turns, heads_share_bias ? 0 : head * count, head * count + block, keys_share_bias};
    if (place.rows > 0) run(place, turn);
    turns.finish(turn.first, turn.piece);
  }

  void run(const BlockPlace& place, Turn& turn) const {
    RowBlock<Sum> rows;
    gather(rows, call, ranges, place);
    const auto [begin, end] = keys_of(rows, place.rows);
    turns.start(turn.piece, turn.whole ? 0 : begin, turn.whole ? whole_end : end);
    constexpr std::size_t most = kernels::block_rows;
    std::array<const void*, most> output;
    std::array<const void*, most> d_output;
    std::array<void*, most> d_query;
    std::array<Sum*, most> row_of_bias;
    std::array<Sum, most> log_sum_exp;
    std::array<Sum, most> d_log_sum_exp;
    std::array<Sum, most> d_sink;
    for (int r = 0; r < place.rows; ++r) {
      const auto k = static_cast<std::size_t>(r);
      const std::int64_t h = rows.head[k];
      const std::int64_t i = rows.query[k];
      output[k] = &results.output(place.b, h, i, 0);
      d_output[k] = &results.d_output(place.b, h, i, 0);
      if (gradients.d_query) d_query[k] = &gradients.d_query(place.b, h, i, 0);
      if (d_bias) row_of_bias[k] = &d_bias(place.b, h, i, 0);
      log_sum_exp[k] = results.log_sum_exp(place.b, h, i);
      if (log_sum_exp[k] == -std::numeric_limits<Sum>::infinity()) empty.found(place.b, h, i);
      if (results.d_log_sum_exp) d_log_sum_exp[k] = results.d_log_sum_exp(place.b, h, i);
    }
    const Shape& s = call.shape;
    const auto size =
        static_cast<std::size_t>(kernels::backward_scratch<Sum>(s.D, s.E)) * sizeof(Sum);
    const kernels::BackwardBlock<Sum> task{
        .rows = place.rows,
        .D = static_cast<int>(s.D),
        .E = static_cast<int>(s.E),
        .storage = call.query.storage,
        .query = rows.query_data,
        .query_step = call.query.strides[3],
        .output = output.data(),
        .output_step = results.output.strides[3],
        .d_output = d_output.data(),
        .d_output_step = results.d_output.strides[3],
        .log_sum_exp = log_sum_exp.data(),
        .d_log_sum_exp = results.d_log_sum_exp ? d_log_sum_exp.data() : nullptr,
        .key = head_of(call.key, place.b, place.g),
        .value = head_of(call.value, place.b, place.g),
        .first_key = rows.first_key,
        .last_key = rows.last_key,
        .sink = call.sink != nullptr ? rows.sink : nullptr,
        .d_query = gradients.d_query ? d_query.data() : nullptr,
        .d_query_step = gradients.d_query.strides[3],
        .d_key = &d_key.sums(place.b, place.g, 0, 0),
        .d_key_row = d_key.sums.strides[2],
        .d_value = &d_value.sums(place.b, place.g, 0, 0),
        .d_value_row = d_value.sums.strides[2],
        .d_bias = d_bias ? row_of_bias.data() : nullptr,
        .d_bias_step = d_bias.strides[3],
        .d_sink = call.sink != nullptr ? d_sink.data() : nullptr,
        .modify = rows.modify,
        .await_turn = await_turn,
        .give_turn = give_turn,
        .context = &turn,
        .scratch = reinterpret_cast<Sum*>(scratch(size))};
    const FlushSubnormals flush;
    kernel(task);
    if (call.sink == nullptr) return;
    for (int r = 0; r < place.rows; ++r) {
      const auto k = static_cast<std::size_t>(r);
      d_sink_rows(place.b, rows.head[k], rows.query[k]) = d_sink[k];
    }
  }
};

/// One tensor's shape; "d_key must have shape …".
template <class T, std::size_t Rank>
Result<void> check_shape(const char* name, const View<T, Rank>& view,
                         const std::array<std::int64_t, Rank>& wanted) {
  if (!view || view.extents == wanted) return {};
  return Failure{ErrorKind::shape, "shape-mismatch",
                 sentence("[attention_backward] ", name, " must have shape ", to_string(wanted),
                          "; it has ", to_string(view.extents))};
}

using Extents = std::array<std::int64_t, 4>;

template <class T>
Result<void> check_results(const AttentionBackwardInputs<T>& in, const Shape& s) {
  if (!in.output || !in.log_sum_exp || !in.d_output) {
    return Failure{ErrorKind::shape, "shape-mismatch",
                   "[attention_backward] output, log_sum_exp and d_output must be given"};
  }
  const std::array<std::int64_t, 3> rows{s.B, s.H, s.T};
  if (auto ok = check_shape("output", in.output, {s.B, s.H, s.T, s.E}); !ok) return ok;
  if (auto ok = check_shape("d_output", in.d_output, {s.B, s.H, s.T, s.E}); !ok) return ok;
  if (auto ok = check_shape("log_sum_exp", in.log_sum_exp, rows); !ok) return ok;
  return check_shape("d_log_sum_exp", in.d_log_sum_exp, rows);
}

template <class T>
Result<void> check_gradients(const AttentionGradientOutputs<T>& out, const AttentionInputs<T>& in,
                             const AttentionBackwardInputs<T>& results, const Shape& s,
                             const Extents* bias, const Call& call) {
  if (auto ok = check_shape("d_query", out.d_query, {s.B, s.H, s.T, s.D}); !ok) return ok;
  if (auto ok = check_shape("d_key", out.d_key, {s.B, s.G, s.S, s.D}); !ok) return ok;
  if (auto ok = check_shape("d_value", out.d_value, {s.B, s.G, s.S, s.E}); !ok) return ok;
  if (out.d_bias && bias == nullptr) {
    return Failure{ErrorKind::value, "bad-option", "[attention_backward] d_bias needs a bias"};
  }
  if (out.d_sink && call.sink == nullptr) {
    return Failure{ErrorKind::value, "bad-option", "[attention_backward] d_sink needs a sink"};
  }
  if (bias != nullptr) {
    if (auto ok = check_shape("d_bias", out.d_bias, *bias); !ok) return ok;
  }
  if (auto ok = check_shape("d_sink", out.d_sink, std::array<std::int64_t, 1>{s.H}); !ok) return ok;
  return check_places(
      {place_of("d_query", out.d_query), place_of("d_key", out.d_key),
       place_of("d_value", out.d_value), place_of("d_bias", out.d_bias),
       place_of("d_sink", out.d_sink)},
      {place_of("query", in.query), place_of("key", in.key), place_of("value", in.value),
       place_of("output", results.output), place_of("d_output", results.d_output),
       place_of("log_sum_exp", results.log_sum_exp),
       place_of("d_log_sum_exp", results.d_log_sum_exp)});
}

template <class Number>
void clear(const View<Number, 4>& view) {
  if (std::count(view.extents.begin(), view.extents.end(), 0) > 0) return;
  for (std::int64_t a = 0; a < view.extent(0); ++a) {
    for (std::int64_t b = 0; b < view.extent(1); ++b) {
      for (std::int64_t c = 0; c < view.extent(2); ++c) {
        for (std::int64_t d = 0; d < view.extent(3); ++d) view(a, b, c, d) = Number{};
      }
    }
  }
}

/// d_sink[h]: rows in order, batches in order.
template <class Sum>
void sum_rows(const View<Sum, 1>& d_sink, const Tensor<Sum>& rows, const Shape& s) {
  for (std::int64_t h = 0; h < s.H; ++h) {
    Sum sum = 0;
    for (std::int64_t b = 0; b < s.B; ++b) {
      for (std::int64_t i = 0; i < s.T; ++i) sum += rows(b, h, i);
    }
    d_sink(h) = sum;
  }
}

/// The gradients of no query at all.
template <class T>
void clear_all(const AttentionGradientOutputs<T>& gradients) {
  if (gradients.d_key) clear(gradients.d_key);
  if (gradients.d_value) clear(gradients.d_value);
  if (gradients.d_bias) clear(gradients.d_bias);
  if (!gradients.d_sink) return;
  for (std::int64_t h = 0; h < gradients.d_sink.extent(0); ++h) gradients.d_sink(h) = 0;
}

constexpr double small_call = 1 << 19;

}  // namespace
}  // namespace engine

template <class T, BiasFor<T> Bias>
Result<void> try_attention_backward(const AttentionGradientOutputs<T>& gradients,
                                    const AttentionInputs<T>& inputs,
                                    const AttentionBackwardInputs<T>& results,
                                    const AttentionOptions<Bias>& options,
                                    const Execution& execution) {
  using Sum = AccumulatorOf<T>;
  auto call = engine::checked_call(inputs, options);
  if (!call) return call.failure();
  const engine::Shape& s = call->shape;
  const auto* bias = options.bias ? &options.bias.extents : nullptr;
  if (auto ok = engine::check_results(results, s); !ok) return ok;
  if (auto ok = engine::check_gradients(gradients, inputs, results, s, bias, *call); !ok) return ok;
  const auto table = engine::kernel_table(execution);
  if (!table) return table.failure();
  if (s.no_query()) {
    engine::clear_all(gradients);
    return {};
  }

  const engine::Ranges ranges(*call);
  const engine::KeySums<T> d_key(gradients.d_key, {s.B, s.G, s.S, s.D});
  const engine::KeySums<T> d_value(gradients.d_value, {s.B, s.G, s.S, s.E});
  View<Sum, 4> d_bias;
  bool heads_share = false;
  bool keys_share = false;
  if (gradients.d_bias) {
    engine::clear(gradients.d_bias);
    d_bias = broadcast(gradients.d_bias, {s.B, s.H, s.T, s.S});
    heads_share = (*bias)[0] != s.B || (*bias)[1] != s.H;
    keys_share = (*bias)[3] != s.S && (heads_share || (*bias)[2] != s.T);
  }
  Tensor<Sum> d_sink_rows(call->sink != nullptr ? Shape{s.B, s.H, s.T} : Shape{0, 0, 0});
  const engine::RowBlocks blocks(*call);
  engine::Turns turns(s.B * s.G * blocks.per_head());
  engine::FirstEmptyRow empty(s);
  const bool large = !s.takes_fewer(engine::small_call);
  std::int64_t abreast = 1;
  if (large && !heads_share) {
    abreast = std::clamp<std::int64_t>(threads_for(execution).threads(), 1, s.B * s.G);
  }
  const auto kernel = engine::backward_kernel<Sum>(**table);
  const engine::BackwardCall<T> backward{*call,      ranges,  results,     gradients, kernel,
                                         blocks,     d_key,   d_value,     d_bias,    heads_share,
                                         keys_share, abreast, d_sink_rows, turns,     empty};
  const std::int64_t pieces = backward.pieces();
  if (pieces > 1 && large) {
    threads_for(execution).run(pieces, [&](std::int64_t piece) { backward.piece(piece); });
  } else {
    for (std::int64_t piece = 0; piece < pieces; ++piece) backward.piece(piece);
  }
  for (std::int64_t b = 0; b < s.B; ++b) {
    for (std::int64_t g = 0; g < s.G; ++g) {
      d_key.write(b, g);
      d_value.write(b, g);
    }
  }
  if (gradients.d_sink) engine::sum_rows(gradients.d_sink, d_sink_rows, s);
  if (call->empty_row != EmptyRow::error) return {};
  return empty.verdict();
}

template <class T, BiasFor<T> Bias>
void attention_backward_into(const AttentionGradientOutputs<T>& gradients,
                             const AttentionInputs<T>& inputs,
                             const AttentionBackwardInputs<T>& results,
                             const AttentionOptions<Bias>& options, const Execution& execution) {
  try_attention_backward(gradients, inputs, results, options, execution).value();
}

template <class T, BiasFor<T> Bias>
AttentionGradients<T> attention_backward(const AttentionInputs<T>& inputs,
                                         const AttentionBackwardInputs<T>& results,
                                         const AttentionOptions<Bias>& options,
                                         const Execution& execution) {
  using Sum = AccumulatorOf<T>;
  if (const auto call = engine::checked_call(inputs, options); !call) throw_failure(call.failure());
  const auto shape_of = [](const auto& view) {
    return Shape(view.extents.begin(), view.extents.end());
  };
  AttentionGradients<T> out{.d_query = Tensor<T>(shape_of(inputs.query)),
                            .d_key = Tensor<T>(shape_of(inputs.key)),
                            .d_value = Tensor<T>(shape_of(inputs.value)),
                            .d_bias = {},
                            .d_sink = {}};
  AttentionGradientOutputs<T> views{.d_query = out.d_query.template view<4>(),
                                    .d_key = out.d_key.template view<4>(),
                                    .d_value = out.d_value.template view<4>()};
  if (options.bias) {
    out.d_bias = Tensor<Sum>(shape_of(options.bias));
    views.d_bias = out.d_bias.template view<4>();
  }
  if (!options.sink.empty()) {
    out.d_sink = Tensor<Sum>({inputs.query.extent(1)});
    views.d_sink = out.d_sink.template view<1>();
  }
  attention_backward_into(views, inputs, results, options, execution);
  return out;
}

#define ATTEST_INSTANTIATE(T, Bias)                                                                \
  template AttentionGradients<T> attention_backward<T, Bias>(                                      \
      const AttentionInputs<T>&, const AttentionBackwardInputs<T>&, const AttentionOptions<Bias>&, \
      const Execution&);                                                                           \
  template void attention_backward_into<T, Bias>(                                                  \
      const AttentionGradientOutputs<T>&, const AttentionInputs<T>&,                               \
      const AttentionBackwardInputs<T>&, const AttentionOptions<Bias>&, const Execution&);         \
  template Result<void> try_attention_backward<T, Bias>(                                           \
      const AttentionGradientOutputs<T>&, const AttentionInputs<T>&,                               \
      const AttentionBackwardInputs<T>&, const AttentionOptions<Bias>&, const Execution&);
ATTEST_INSTANTIATE(float, float)
ATTEST_INSTANTIATE(float, BFloat16)
ATTEST_INSTANTIATE(double, double)
ATTEST_INSTANTIATE(BFloat16, float)
ATTEST_INSTANTIATE(BFloat16, BFloat16)
ATTEST_INSTANTIATE(Half, float)
ATTEST_INSTANTIATE(Half, BFloat16)
#undef ATTEST_INSTANTIATE

}  // namespace attest
