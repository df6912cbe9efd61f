// SPDX-License-Identifier: MIT
// The engine's calls one after another: what docs/engine.md quotes. Ends with 1 if one of them does
// not do what that page says.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <utility>

#include "attest/attest.h"
#include "attest/base/random.h"

namespace {

using attest::AttentionOptions;
using attest::AttentionResult;
using attest::Mask;
using attest::Tensor;
using attest::View;

constexpr std::int64_t B = 2, H = 4, G = 2, T = 6, S = 6, D = 8, E = 8;

bool all_good = true;

void check(bool good, const char* what) {
  std::printf("%s: %s\n", good ? "ok" : "WRONG", what);
  all_good = all_good && good;
}

template <class Number = float>
Tensor<Number> numbers(attest::Shape shape, std::uint64_t seed) {
  attest::Random random(seed);
  Tensor<Number> out(std::move(shape));
  for (Number& x : out.elements()) x = attest::rounded_to<Number>(random.uniform(-1, 1));
  return out;
}

/// The largest difference of two results.
template <class A, class X>
double distance(View<const A, 4> a, View<const X, 4> b) {
  double most = 0;
  for (std::int64_t i = 0; i < a.extent(0); ++i) {
    for (std::int64_t j = 0; j < a.extent(1); ++j) {
      for (std::int64_t k = 0; k < a.extent(2); ++k) {
        for (std::int64_t l = 0; l < a.extent(3); ++l) {
          most = std::max(most, std::fabs(double{a(i, j, k, l)} - double{b(i, j, k, l)}));
        }
      }
    }
  }
  return most;
}

const Tensor<float> query = numbers({B, H, T, D}, 1);
const Tensor<float> key = numbers({B, G, S, D}, 2);
const Tensor<float> value = numbers({B, G, S, E}, 3);
const View<const float, 4> q = query.view<4>(), k = key.view<4>(), v = value.view<4>();

AttentionResult<float> one_call() {
  AttentionResult<float> result = attest::attention(q, k, v, {.mask = Mask::causal()});
  std::printf("output[1,3,5,7] = %.6f, log_sum_exp[1,3,5] = %.6f\n",
              double{result.output()(1, 3, 5, 7)}, double{result.log_sum_exp(1, 3, 5)});
  return result;
}

void other_types() {
  const Tensor<attest::BFloat16> query16 = numbers<attest::BFloat16>({B, H, T, D}, 1);
  const Tensor<attest::BFloat16> key16 = numbers<attest::BFloat16>({B, G, S, D}, 2);
  const Tensor<attest::BFloat16> value16 = numbers<attest::BFloat16>({B, G, S, E}, 3);

  const AttentionResult<attest::BFloat16> result =
      attest::attention(query16.view<4>(), key16.view<4>(), value16.view<4>());
  const float first = attest::to_float(result.output()(0, 0, 0, 0));
  check(std::fabs(first - attest::attention(q, k, v).output()(0, 0, 0, 0)) < 0.05F, "bfloat16");
}

void heads_inside() {
  const Tensor<float> query_bthd = numbers({B, T, H, D}, 4);
  const Tensor<float> key_bthd = numbers({B, S, G, D}, 5);
  const Tensor<float> value_bthd = numbers({B, S, G, E}, 6);

  const AttentionResult<float> result =
      attest::attention(query_bthd.view<4>().swapped(1, 2), key_bthd.view<4>().swapped(1, 2),
                        value_bthd.view<4>().swapped(1, 2));
  check(result.memory.shape() == attest::Shape{B, T, H, E}, "memory is [B, T, H, E]");
  check(result.output().extents[1] == H, "output() is [B, H, T, E]");
}

void packed_projection() {
  const Tensor<float> qkv =
      numbers({B, T, (H + G + G) * D}, 7);  // a row: H queries, G keys, G values

  constexpr std::int64_t row = (H + G + G) * D;
  const auto heads = [&qkv](std::int64_t first, std::int64_t count) {
    return View<const float, 4>(qkv.data() + first * D, {B, count, T, D}, {T * row, D, row, 1});
  };
  const AttentionResult<float> result =
      attest::attention(heads(0, H), heads(H, G), heads(H + G, G));
  check(result.heads_inside, "a packed projection is read in place");
}

void own_memory() {
  Tensor<float> output({B, H, T, E}), log_sum_exp({B, H, T});

  attest::attention_into<float>({.output = output.view<4>(), .log_sum_exp = log_sum_exp.view<3>()},
                                {.query = q, .key = k, .value = v}, {.mask = Mask::causal()});

  const attest::Result<void> done = attest::try_attention<float>(
      {.output = output.view<4>()}, {.query = q, .key = k, .value = v}, {.scale = 0.25});
  if (!done) std::printf("%s\n", done.failure().message.c_str());
  check(done.has_value(), "into memory of one's own");
}

void backward(const AttentionResult<float>& result) {
  const Tensor<float> d_output = numbers({B, H, T, E}, 8);

  const attest::AttentionGradients<float> gradients =
      attest::attention_backward<float>({.query = q, .key = k, .value = v},
                                        {.output = result.output(),
                                         .log_sum_exp = result.log_sum_exp.view<3>(),
                                         .d_output = d_output.view<4>()},
                                        {.mask = Mask::causal()});
  check(gradients.d_key.shape() == attest::Shape{B, G, S, D}, "d_key is [B, G, S, D]");

  Tensor<float> d_query({B, T, H, D});
  attest::attention_backward_into<float>({.d_query = d_query.view<4>().swapped(1, 2)},
                                         {.query = q, .key = k, .value = v},
                                         {.output = result.output(),
                                          .log_sum_exp = result.log_sum_exp.view<3>(),
                                          .d_output = d_output.view<4>()},
                                         {.mask = Mask::causal()});
  check(d_query(1, 5, 3, 7) == gradients.d_query(1, 3, 5, 7), "d_query in [B, T, H, D]");
}

void masks() {
  Tensor<bool> visible({1, 1, T, S});  // broadcasts to [B, H, T, S]; true: may see
  std::ranges::fill(visible.elements(), true);
  visible(0, 0, 5, 1) = false;

  Mask mask = Mask::causal_bottom_right();
  mask.window.left = 3;       // at most three keys back
  mask.key_lengths = {6, 4};  // the second sequence of the batch ends after four keys
  mask.visible = std::as_const(visible).view<4>();

  const AttentionResult<float> result =
      attest::attention(q, k, v, {.mask = mask, .empty_row = attest::EmptyRow::zero});
  check(std::isinf(result.log_sum_exp(1, 1, 1)) && std::isfinite(result.log_sum_exp(1, 1, 2)),
        "two queries that see no key");
}

void documents() {
  Mask mask = Mask::causal();
  mask.packing = {.query_starts = {0, 2, 6}, .key_starts = {0, 2, 6}};  // tokens 0, 1 and 2 … 5

  const AttentionResult<float> result = attest::attention(q, k, v, {.mask = mask});
  check(result.output()(0, 0, 2, 0) == v(0, 0, 2, 0), "the first token of a document sees itself");
}

void more_options() {
  const Tensor<attest::BFloat16> bias = numbers<attest::BFloat16>({1, H, T, S}, 9);

  const AttentionOptions<attest::BFloat16> options{.bias = bias.view<4>(),
                                                   .scale = 0.5,
                                                   .softcap = 30,
                                                   .alibi_slopes = {0.5, 0.25, 0.125, 0.0625},
                                                   .sink = {0, 0, 1, 1},
                                                   .dropout = {.rate = 0.1, .seed = 7}};
  const AttentionResult<float> result = attest::attention(q, k, v, options);
  check(std::isfinite(result.output()(0, 0, 0, 0)), "options");
}

void execution() {
  attest::ThreadPool pool(2);
  const AttentionResult<float> result =
      attest::attention(q, k, v, {},
                        {.threads = &pool,
                         .isa = attest::Isa::portable,
                         .reproducible = attest::Reproducible::per_row});
  attest::ThreadPool alone(1);
  const AttentionResult<float> again =
      attest::attention(q, k, v, {},
                        {.threads = &alone,
                         .isa = attest::Isa::portable,
                         .reproducible = attest::Reproducible::per_row});
  check(distance(result.output(), again.output()) == 0, "the same bits from one thread and two");
}

void two_ranges() {
  const auto range = [](View<const float, 4> whole, std::int64_t first, std::int64_t count) {
    return View<const float, 4>(&whole(0, 0, first, 0), {B, G, count, D}, whole.strides);
  };
  const AttentionResult<float> a =
      attest::attention(q, range(k, 0, 4), range(v, 0, 4), {.mask = Mask::causal_at(0)});
  const AttentionResult<float> b =
      attest::attention(q, range(k, 4, 2), range(v, 4, 2),
                        {.mask = Mask::causal_at(-4), .empty_row = attest::EmptyRow::zero});

  Tensor<float> output({B, H, T, E}), log_sum_exp({B, H, T});
  attest::merge_attention<float>({output.view<4>(), log_sum_exp.view<3>()},
                                 {a.output(), a.log_sum_exp.view<3>()},
                                 {b.output(), b.log_sum_exp.view<3>()});
  const AttentionResult<float> whole = attest::attention(q, k, v, {.mask = Mask::causal()});
  check(distance(std::as_const(output).view<4>(), whole.output()) < 1e-6,
        "two ranges of keys, merged");
}

void weights(const AttentionResult<float>& result) {
  const Tensor<float> rows = attest::attention_weights<float>(
      {.query = q, .key = k, .value = v}, {.mask = Mask::causal()}, result.log_sum_exp.view<3>(),
      {.b = 1, .h = 3, .first_query = 2, .queries = 2});  // [2, S]: queries 2 and 3
  check(rows(0, 3) == 0 && rows(1, 3) > 0, "rows of weights");
}

void errors() {
  const View<const float, 4> short_value(v.data, {B, G, S - 1, E}, v.strides);
  try {
    (void)attest::attention(q, k, short_value);
    check(false, "an error");
  } catch (const attest::ShapeError& error) {  // or attest::Error, for all kinds
    std::printf("%s: %s\n", error.id().c_str(), error.what());
    check(error.id() == "shape-mismatch", "an error");
  }
}

}  // namespace

int main() {
  const AttentionResult<float> result = one_call();
  other_types();
  heads_inside();
  packed_projection();
  own_memory();
  backward(result);
  masks();
  documents();
  more_options();
  execution();
  two_ranges();
  weights(result);
  errors();
  return all_good ? 0 : 1;
}
