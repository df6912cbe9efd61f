// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <cstddef>
#include <vector>

#include "attest/base/tensor.h"

/// The memory that a matrix product works in, and who uses which part of it. For gemm.cpp alone.
namespace attest::linalg_detail {

/// Scratch that a thread keeps from call to call, since fresh pages cost more than a small product.
inline std::byte* scratch(std::size_t bytes) {
  thread_local detail::AlignedBytes memory;
  thread_local std::size_t size = 0;
  if (bytes > size) {
    memory.reset();
    size = 0;
    memory = detail::aligned_bytes(bytes);
    size = bytes;
  }
  return memory.get();
}

/// Places that pieces at work at the same time use one each of; there is one for each worker.
class Places {
 public:
  explicit Places(int count) : taken_(static_cast<std::size_t>(count)) {}
  std::size_t take() noexcept {
    for (std::size_t i = 0;; i = (i + 1) % taken_.size()) {
      if (!taken_[i].exchange(true, std::memory_order_acquire)) return i;
    }
  }
  void give_back(std::size_t place) noexcept {
    taken_[place].store(false, std::memory_order_release);
  }

 private:
  std::vector<std::atomic<bool>> taken_;
};

}  // namespace attest::linalg_detail
