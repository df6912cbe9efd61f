// SPDX-License-Identifier: MIT
// What a row of the bench computes, and the same by the exact tier on a few of its queries.
#include <algorithm>
#include <array>
#include <cmath>

#include "attest/attention/attention.h"
#include "attest/attention/attention_backward.h"
#include "attest/base/widened.h"
#include "attest/lab/attention.h"
#include "attest/lab/attention_backward.h"
#include "frontends/cli/bench_run.h"
#include "frontends/cli/bench_tensors.h"

namespace attest::cli {
namespace {

/// Rows `first` to before `end` of one head, widened: [1, 1, end − first, width].
template <class T>
Tensor<double> rows_of(const Tensor<T>& from, std::int64_t b, std::int64_t h, Range rows) {
  Tensor<double> out({1, 1, rows.end - rows.begin, from.extent(3)});
  const View<const T, 4> view = from.template view<4>();
  for (std::int64_t i = rows.begin; i < rows.end; ++i) {
    for (std::int64_t d = 0; d < from.extent(3); ++d) {
      out(0, 0, i - rows.begin, d) = widened(view(b, h, i, d));
    }
  }
  return out;
}

/// Which query is looked at.
struct Place {
  std::int64_t b = 0;
  std::int64_t h = 0;
  std::int64_t i = 0;
};

/// The first query, the last, and others spread over batch, heads and queries.
std::vector<Place> sampled_places(const BenchRow& row) {
  constexpr std::int64_t count = 12;
  std::vector<Place> out;
  for (std::int64_t n = 0; n < count; ++n) {
    out.push_back({n % row.batch, n * 7 % row.heads, n * (row.queries - 1) / (count - 1)});
  }
  return out;
}

/// The keys that one query of the row may see.
Range visible_keys(const BenchRow& row, std::int64_t i) {
  switch (row.mask) {
    case BenchMask::full:
      break;
    case BenchMask::causal:
      return {0, i + 1};
    case BenchMask::window:
      return {std::max<std::int64_t>(0, i - bench_window), i + 1};
    case BenchMask::documents: {
      const auto starts = document_starts(row.keys);
      const auto after = std::upper_bound(starts.begin(), starts.end(), i);
      return {*(after - 1), *after};
    }
  }
  return {0, row.keys};
}

template <class T>
class CallOf final : public BenchCall {
 public:
  CallOf(const BenchRow& row, Isa isa, int threads) : row_(row), pool_(threads) {
    const Shape queries{row.batch, row.heads, row.queries, row.width};
    const Shape keys{row.batch, row.kv_heads, row.keys, row.width};
    query_ = random_tensor<T>(queries, 1);
    key_ = random_tensor<T>(keys, 2);
    value_ = random_tensor<T>(keys, 3);
    output_ = Tensor<T>(queries);
    log_sum_exp_ = Tensor<float>({row.batch, row.heads, row.queries});
    options_.mask = mask_of(row);
    execution_ = {.threads = &pool_, .isa = isa};
    if (row.pass == BenchPass::forward) return;
    d_output_ = random_tensor<T>(queries, 4);
    d_query_ = Tensor<T>(queries);
    d_key_ = Tensor<T>(keys);
    d_value_ = Tensor<T>(keys);
  }

  void run() override {
    if (row_.pass == BenchPass::forward || !have_forward_) forward();
    if (row_.pass == BenchPass::backward) backward();
  }

  Result<double> max_error() override {
    run();
    double worst = 0;
    for (const Place& place : sampled_places(row_)) {
      const auto exact = exact_row(place);
      if (!exact) return exact.failure();
      const View<const T, 4> ours = row_.pass == BenchPass::forward ? output_.template view<4>()
                                                                    : d_query_.template view<4>();
      for (std::int64_t d = 0; d < row_.width; ++d) {
        const double error =
            std::abs(widened(ours(place.b, place.h, place.i, d)) - (*exact)(0, 0, 0, d));
        if (!(error <= worst)) worst = error;  // a NaN stays
      }
    }
    return worst;
  }

 private:
  AttentionInputs<T> inputs() const {
    return {query_.template view<4>(), key_.template view<4>(), value_.template view<4>()};
  }
  void forward() {
    attention_into<T, float>({output_.template view<4>(), log_sum_exp_.template view<3>()},
                             inputs(), options_, execution_);
    have_forward_ = true;
  }
  void backward() {
    AttentionGradientOutputs<T> gradients;
    gradients.d_query = d_query_.template view<4>();
    gradients.d_key = d_key_.template view<4>();
    gradients.d_value = d_value_.template view<4>();
    AttentionBackwardInputs<T> results;
    results.output = std::as_const(output_).template view<4>();
    results.log_sum_exp = std::as_const(log_sum_exp_).template view<3>();
    results.d_output = std::as_const(d_output_).template view<4>();
    attention_backward_into<T, float>(gradients, inputs(), results, options_, execution_);
  }

  /// One query's output, or its d_query, from the keys that it sees.
  Result<Tensor<double>> exact_row(const Place& place) const {
    const std::int64_t g = place.h / (row_.heads / row_.kv_heads);
    const Range keys = visible_keys(row_, place.i);
    const Range self{place.i, place.i + 1};
    const Tensor<double> query = rows_of(query_, place.b, place.h, self);
    const Tensor<double> key = rows_of(key_, place.b, g, keys);
    const Tensor<double> value = rows_of(value_, place.b, g, keys);
    const AttentionInputs<double> call{query.view<4>(), key.view<4>(), value.view<4>()};
    if (row_.pass == BenchPass::forward) {
      auto result = lab::attention(call, {}, lab::Weights::drop);
      if (!result) return result.failure();
      return std::move(result->output);
    }
    const Tensor<double> d_output = rows_of(d_output_, place.b, place.h, self);
    auto result = lab::attention_backward(call, {}, {d_output.view<4>(), {}});
    if (!result) return result.failure();
    return std::move(result->d_query);
  }

  BenchRow row_;
  ThreadPool pool_;
  Tensor<T> query_, key_, value_, output_;
  Tensor<float> log_sum_exp_;
  Tensor<T> d_output_, d_query_, d_key_, d_value_;
  AttentionOptions<float> options_;
  Execution execution_;
  bool have_forward_ = false;
};

}  // namespace

std::unique_ptr<BenchCall> make_call(const BenchRow& row, Isa isa, int threads) {
  if (row.dtype == DType::bf16) return std::make_unique<CallOf<BFloat16>>(row, isa, threads);
  return std::make_unique<CallOf<float>>(row, isa, threads);
}

}  // namespace attest::cli
