// SPDX-License-Identifier: MIT
// What a call allocates beyond the tensors that it is given, and what it walks over. Every operator new
// of the program counts.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "attest/attention/attention.h"
#include "attest/attention/attention_backward.h"
#include "attest/base/random.h"

// The thread sanitizer brings these operators itself, and none may stand beside them.
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define ATTEST_THREAD_SANITIZER
#endif
#elif defined(__SANITIZE_THREAD__)
#define ATTEST_THREAD_SANITIZER
#endif

namespace {

std::atomic<std::int64_t> held{0};
std::atomic<std::int64_t> most{0};

}  // namespace

#if !defined(ATTEST_THREAD_SANITIZER)
namespace {

/// No call here may want more at once: better an error than a machine without memory.
constexpr std::size_t too_much = std::size_t{1} << 30U;

/// A block remembers its size, in a header as wide as its alignment.
void* counted(std::size_t size, std::size_t alignment) {
  if (size > too_much) throw std::bad_alloc();
  const std::size_t header = std::max<std::size_t>(alignment, 2 * sizeof(std::size_t));
  const std::size_t room = (size + header + header - 1) / header * header;
  auto* memory = static_cast<std::byte*>(std::aligned_alloc(header, room));
  if (memory == nullptr) throw std::bad_alloc();
  *reinterpret_cast<std::size_t*>(memory + header - sizeof(std::size_t)) = size;
  const std::int64_t now = held += static_cast<std::int64_t>(size);
  std::int64_t before = most;
  while (before < now && !most.compare_exchange_weak(before, now)) {
  }
  return memory + header;
}
void give_back(void* place, std::size_t alignment) noexcept {
  if (place == nullptr) return;
  const std::size_t header = std::max<std::size_t>(alignment, 2 * sizeof(std::size_t));
  auto* memory = static_cast<std::byte*>(place) - header;
  held -= static_cast<std::int64_t>(
      *reinterpret_cast<std::size_t*>(memory + header - sizeof(std::size_t)));
  std::free(memory);
}
std::size_t number(std::align_val_t alignment) { return static_cast<std::size_t>(alignment); }

}  // namespace

void* operator new(std::size_t size) { return counted(size, 16); }
void* operator new[](std::size_t size) { return counted(size, 16); }
void* operator new(std::size_t size, std::align_val_t a) { return counted(size, number(a)); }
void* operator new[](std::size_t size, std::align_val_t a) { return counted(size, number(a)); }
void operator delete(void* p) noexcept { give_back(p, 16); }
void operator delete[](void* p) noexcept { give_back(p, 16); }
void operator delete(void* p, std::size_t) noexcept { give_back(p, 16); }
void operator delete[](void* p, std::size_t) noexcept { give_back(p, 16); }
void operator delete(void* p, std::align_val_t a) noexcept { give_back(p, number(a)); }
void operator delete[](void* p, std::align_val_t a) noexcept { give_back(p, number(a)); }
void operator delete(void* p, std::size_t, std::align_val_t a) noexcept { give_back(p, number(a)); }
void operator delete[](void* p, std::size_t, std::align_val_t a) noexcept {
  give_back(p, number(a));
}
#endif

namespace attest {
namespace {

#if defined(ATTEST_THREAD_SANITIZER)
constexpr bool counts = false;
#else
constexpr bool counts = true;
#endif

/// What the program holds before the first call.
std::int64_t base_memory() {
  static const std::int64_t base = ((void)shared_threads(), held.load());
  return base;
}

/// The most that is held beyond the tensors during a call, in bytes, with what earlier calls kept for
/// later ones.
template <class T>
std::int64_t extra_memory(std::int64_t T_and_S, std::int64_t width,
                          std::optional<std::int64_t> window = {}) {
  const std::int64_t base = base_memory();
  const std::int64_t without_tensors = held;
  Tensor<T> query({1, 1, T_and_S, width}), key({1, 1, T_and_S, width});
  Tensor<T> output({1, 1, T_and_S, width});
  Tensor<float> sums({1, 1, T_and_S});
  const Tensor<T>& q = query;
  const Tensor<T>& k = key;
  const AttentionInputs<T> inputs{q.template view<4>(), k.template view<4>(), k.template view<4>()};
  const AttentionOutputs<T> outputs{output.template view<4>(), sums.view<3>()};
  const std::int64_t tensors = held - without_tensors;
  most = held.load();
  AttentionOptions<float> options;
  options.mask = Mask::causal();
  options.mask.window.left = window;
  attention_into<T, float>(outputs, inputs, options);
  return most - base - tensors;
}

TEST(EdgeMemory, SixteenThousandKeysNeedAtMostEightMebibytes) {
  if (!counts) GTEST_SKIP() << "the thread sanitizer allocates, and does not count";
  constexpr std::int64_t limit = std::int64_t{8} << 20U;
  for (const std::int64_t used :
       {extra_memory<float>(16384, 64), extra_memory<BFloat16>(16384, 64)}) {
    EXPECT_LE(used, limit);
    std::cout << "T = S = 16384, one head of 64: " << used << " bytes beyond the tensors\n";
  }
}

TEST(EdgeMemory, GrowsAtMostLinearlyWithTheLength) {
  if (!counts) GTEST_SKIP() << "the thread sanitizer allocates, and does not count";
  const std::int64_t one = extra_memory<float>(2048, 16), four = extra_memory<float>(8192, 16);
  EXPECT_LE(four, 4 * one + 65536) << "2048 rows and keys: " << one << " bytes, 8192: " << four;
}

/// The same of a backward pass.
std::int64_t extra_memory_backward(std::int64_t T_and_S, std::int64_t width, std::int64_t window) {
  const std::int64_t base = base_memory();
  const std::int64_t without_tensors = held;
  const Shape shape{1, 1, T_and_S, width};
  Tensor<float> query(shape), output(shape), d_query(shape), d_key(shape), d_value(shape);
  Tensor<float> sums({1, 1, T_and_S});
  const View<const float, 4> q = std::as_const(query).view<4>();
  const AttentionInputs<float> inputs{q, q, q};
  const std::int64_t tensors = held - without_tensors;
  AttentionOptions<float> options;
  options.mask = Mask::causal();
  options.mask.window.left = window;
  attention_into<float, float>({output.view<4>(), sums.view<3>()}, inputs, options);
  most = held.load();
  AttentionBackwardInputs<float> results;
  results.output = std::as_const(output).view<4>();
  results.log_sum_exp = std::as_const(sums).view<3>();
  results.d_output = q;
  attention_backward_into<float, float>(
      {.d_query = d_query.view<4>(), .d_key = d_key.view<4>(), .d_value = d_value.view<4>()},
      inputs, results, options);
  return most - base - tensors;
}

TEST(EdgeMemory, AMillionKeysNeedLittleMoreThanTheirTensors) {
  if (!counts) GTEST_SKIP() << "the thread sanitizer allocates, and does not count";
  constexpr std::int64_t million = std::int64_t{1} << 20;
  const std::int64_t forward = extra_memory<float>(million, 16, 100);
  const std::int64_t backward = extra_memory_backward(million, 16, 100);
  std::cout << "T = S = 2^20, window 100, one head of 16: " << forward << " bytes forward, "
            << backward << " backward\n";
  EXPECT_LE(forward, std::int64_t{8} << 20);
  // Gradients are summed in place; the turns take 16 bytes a block of 64 rows.
  EXPECT_LE(backward, std::int64_t{8} << 20);
}

/// A row repeated: B batches of S keys, as nobody could store them.
template <class T>
View<const T, 4> repeated(const Tensor<T>& row, std::int64_t B, std::int64_t S) {
  return {row.data(), {B, 1, S, row.extent(0)}, {0, 0, 0, 1}};
}

Tensor<float> random_row(std::uint64_t seed) {
  Random random(seed);
  Tensor<float> out({4});
  for (float& x : out.elements()) x = static_cast<float>(random.uniform(-1, 1));
  return out;
}

/// One query a batch, at the positions given, that sees itself and 99 keys before it; ALiBi makes its
/// weights differ.
AttentionResult<float> decoded(const std::vector<std::int64_t>& positions, std::int64_t S) {
  const Tensor<float> query = random_row(1), key = random_row(2), value = random_row(3);
  const auto B = static_cast<std::int64_t>(positions.size());
  AttentionOptions<float> options;
  options.mask = Mask::causal_at(0);
  options.mask.query_offset = positions;
  options.mask.window.left = 99;
  options.alibi_slopes = {0.125};
  return attention(repeated(query, B, 1), repeated(key, B, S), repeated(value, B, S), options);
}

TEST(EdgeMemory, DecodingNeedsMemoryForVisibleKeysAlone) {
  if (!counts) GTEST_SKIP() << "the thread sanitizer allocates, and does not count";
  constexpr std::int64_t many = std::int64_t{1} << 37;  // of 4 numbers, twice: 2^40 elements
  // In the last part of 1024 keys, across two parts, and in the first.
  const std::vector<std::int64_t> positions{many - 1, many / 2 + 50, 99};
  const std::int64_t before = base_memory();
  most = held.load();
  for (const std::vector<std::int64_t>& batch :
       {std::vector{positions[0], positions[1]}, std::vector{positions[2], positions[0]}}) {
    const AttentionResult<float> out = decoded(batch, many);
    for (std::int64_t b = 0; b < 2; ++b) {
      // The same place in a part, where keys can be counted.
      const std::int64_t near = batch[static_cast<std::size_t>(b)] % 1024 + 1024;
      const AttentionResult<float> expected = decoded({near}, 2048);
      for (std::int64_t e = 0; e < 4; ++e) {
        EXPECT_EQ(out.output()(b, 0, 0, e), expected.output()(0, 0, 0, e)) << near << ", " << e;
      }
      EXPECT_EQ(out.log_sum_exp(b, 0, 0), expected.log_sum_exp(0, 0, 0)) << near;
    }
  }
  EXPECT_LE(most - before, std::int64_t{1} << 20);
}

TEST(EdgeMemory, IdsThatBatchesShareAreLookedAtOnce) {
  if (!counts) GTEST_SKIP() << "the thread sanitizer allocates, and does not count";
  constexpr std::int64_t B = 1024;
  constexpr std::int64_t length = 64;
  const Tensor<float> row = random_row(4);
  const View<const float, 4> numbers = repeated(row, B, length);
  const std::int64_t before = base_memory();
  most = held.load();
  AttentionOptions<float> options;
  options.mask.documents.query.assign(length, 3);
  options.mask.documents.key.assign(length, 3);
  const AttentionResult<float> out = attention(numbers, numbers, numbers, options);
  const auto results =
      static_cast<std::int64_t>(sizeof(float) * (out.memory.size() + out.log_sum_exp.size()));
  EXPECT_LE(most - before - results, B * length * 16 / 2);  // 16 bytes a row of every batch
}

/// 2^40 batches, heads or keys without a query: whoever walked over them would not come back.
constexpr std::int64_t countless = std::int64_t{1} << 40;

TEST(EdgeMemory, WithoutAQueryNothingIsWalkedOver) {
  const Tensor<float> one({1});
  Tensor<float> d_sink({1});
  d_sink(0) = 7;
  AttentionOptions<float> options;
  options.sink = {1.0};
  options.mask.documents = {.query = {}, .key = {5}};
  View<const float, 4> query = repeated(one, countless, 0);
  const View<const float, 4> keys = repeated(one, countless, 1);
  const AttentionInputs<float> inputs{query, keys, keys};
  const AttentionResult<float> out = attention(query, keys, keys, options);
  EXPECT_EQ(out.output().extents, query.extents);

  const View<const float, 3> sums{one.data(), {countless, 1, 0}};
  const AttentionBackwardInputs<float> results{
      .output = query, .log_sum_exp = sums, .d_output = query, .d_log_sum_exp = {}};
  Tensor<float> d_query({0});
  attention_backward_into<float, float>(
      {.d_query = {d_query.data(), query.extents}, .d_sink = d_sink.view<1>()}, inputs, results,
      options);
  EXPECT_EQ(d_sink(0), 0);
  // Nor over keys that are not there.
  const View<const float, 4> no_keys = repeated(one, countless, 0);
  attention_backward_into<float, float>({.d_key = {d_query.data(), no_keys.extents}},
                                        {query, no_keys, no_keys}, results, {});

  const WeightsChoice none{.b = 5, .h = 0, .first_query = 0, .queries = 0};
  EXPECT_EQ((attention_weights<float, float>(inputs, options, sums, none).shape()), (Shape{0, 1}));

  const AttentionOutputs<const float> part{query, sums};
  const AttentionOutputs<float> into{{d_query.data(), query.extents},
                                     {d_query.data(), sums.extents}};
  merge_attention<float>(into, part, part);
}

TEST(EdgeMemory, GradientsOfNoQueryAreZero) {
  const Tensor<float> key({2, 1, 3, 4});
  const Tensor<float> bias({1, 1, 1, 3});
  const auto keys = key.view<4>();
  const View<const float, 4> query{key.data(), {2, 1, 0, 4}};
  AttentionOptions<float> options;
  options.bias = bias.view<4>();
  Tensor<float> d_key({2, 1, 3, 4}), d_value({2, 1, 3, 4}), d_bias({1, 1, 1, 3});
  for (Tensor<float>* tensor : {&d_key, &d_value, &d_bias}) {
    std::fill(tensor->elements().begin(), tensor->elements().end(), 7.0F);
  }
  const AttentionBackwardInputs<float> results{
      .output = query, .log_sum_exp = {key.data(), {2, 1, 0}}, .d_output = query};
  attention_backward_into<float, float>(
      {.d_key = d_key.view<4>(), .d_value = d_value.view<4>(), .d_bias = d_bias.view<4>()},
      {query, keys, keys}, results, options);
  for (const Tensor<float>* tensor : {&d_key, &d_value, &d_bias}) {
    for (const float x : tensor->elements()) EXPECT_EQ(x, 0);
  }
}

}  // namespace
}  // namespace attest
