// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>

#include "attest/base/tensor.h"

namespace attest::engine {

/// This thread's working memory of at least that many bytes, on a cache line; kept from call to
/// call, and never more than a few hundred KiB (docs/kernels.md).
inline std::byte* scratch(std::size_t bytes) {
  thread_local detail::AlignedBytes memory;
  thread_local std::size_t size = 0;
  if (size < bytes) {
    memory = detail::aligned_bytes(bytes);
    size = bytes;
  }
  return memory.get();
}

}  // namespace attest::engine
