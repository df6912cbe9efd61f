// SPDX-License-Identifier: MIT
// The exact tier's cost: attention of n queries and n keys (64 features), and its gradients. The time
// for each of the n·n pairs should not depend on n; bench/workbook_program.py times the workbook's
// own program at the same sizes.
#include <benchmark/benchmark.h>

#include "attest/base/attention_case.h"
#include "attest/base/random.h"
#include "attest/lab/attention.h"
#include "attest/lab/attention_backward.h"
#include "attest/lab/exact_sum.h"

namespace {

using namespace attest;

AttentionCase square_case(std::int64_t n, std::int64_t width) {
  Random random(1);
  AttentionCase call;
  call.query = Tensor<double>({1, 1, n, width});
  call.key = Tensor<double>({1, 1, n, width});
  call.value = Tensor<double>({1, 1, n, width});
  for (auto* tensor : {&call.query, &call.key, &call.value}) {
    for (double& x : tensor->elements()) x = random.bell();
  }
  return call;
}

void per_pair(benchmark::State& state, std::int64_t n) {
  using benchmark::Counter;
  state.counters["time_per_pair"] =
      Counter(static_cast<double>(n * n), Counter::kIsIterationInvariantRate | Counter::kInvert);
}

void exact_attention(benchmark::State& state) {
  const std::int64_t n = state.range(0);
  const AttentionCase call = square_case(n, 64);
  for (auto _ : state) benchmark::DoNotOptimize(lab::attention(call.inputs(), call.options()));
  per_pair(state, n);
}
BENCHMARK(exact_attention)->RangeMultiplier(2)->Range(16, 512)->Unit(benchmark::kMillisecond);

void exact_attention_backward(benchmark::State& state) {
  const std::int64_t n = state.range(0);
  const AttentionCase call = square_case(n, 64);
  const Tensor<double> d_output = square_case(n, 64).value;
  for (auto _ : state) {
    benchmark::DoNotOptimize(
        lab::attention_backward(call.inputs(), call.options(), {d_output.view<4>(), {}}));
  }
  per_pair(state, n);
}
BENCHMARK(exact_attention_backward)
    ->RangeMultiplier(2)
    ->Range(16, 128)
    ->Unit(benchmark::kMillisecond);

void exact_sum(benchmark::State& state) {
  Random random(2);
  std::vector<double> numbers;
  for (std::int64_t n = 0; n < state.range(0); ++n) numbers.push_back(random.bell());
  for (auto _ : state) benchmark::DoNotOptimize(lab::exact_sum(numbers));
  state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(exact_sum)->Arg(4)->Arg(64)->Arg(4096);

/// The slow way, which a sum takes whose rounding the quick way cannot decide: here, total
/// cancellation.
void exact_sum_cancelling(benchmark::State& state) {
  Random random(3);
  std::vector<double> numbers;
  for (std::int64_t n = 0; n < state.range(0) / 2; ++n) numbers.push_back(random.bell());
  for (std::int64_t n = 0; n < state.range(0) / 2; ++n) {
    numbers.push_back(-numbers[static_cast<std::size_t>(n)]);
  }
  for (auto _ : state) benchmark::DoNotOptimize(lab::exact_sum(numbers));
  state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(exact_sum_cancelling)->Arg(64)->Arg(4096);

}  // namespace
