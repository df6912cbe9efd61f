// SPDX-License-Identifier: MIT
// What a call allocates beyond the tensors that it is given. Every operator new of the program counts.
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

#include "attest/attention/attention.h"
#include "attest/attention/attention_backward.h"
#include "attest/base/random.h"

namespace {

std::atomic<std::int64_t> held{0};
std::atomic<std::int64_t> most{0};

/// A block remembers its size, in a header as wide as its alignment.
void* counted(std::size_t size, std::size_t alignment) {
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

namespace attest {
namespace {

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
  constexpr std::int64_t limit = std::int64_t{8} << 20U;
  for (const std::int64_t used :
       {extra_memory<float>(16384, 64), extra_memory<BFloat16>(16384, 64)}) {
    EXPECT_LE(used, limit);
    std::cout << "T = S = 16384, one head of 64: " << used << " bytes beyond the tensors\n";
  }
}

TEST(EdgeMemory, GrowsAtMostLinearlyWithTheLength) {
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
  constexpr std::int64_t million = std::int64_t{1} << 20;
  const std::int64_t forward = extra_memory<float>(million, 16, 100);
  const std::int64_t backward = extra_memory_backward(million, 16, 100);
  std::cout << "T = S = 2^20, window 100, one head of 16: " << forward << " bytes forward, "
            << backward << " backward\n";
  EXPECT_LE(forward, std::int64_t{8} << 20);
  // Gradients are summed in place; the turns take 16 bytes a block of 64 rows.
  EXPECT_LE(backward, std::int64_t{8} << 20);
}

}  // namespace
}  // namespace attest
