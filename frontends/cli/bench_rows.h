// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "attest/base/attention_call.h"
#include "attest/base/dtype.h"

namespace attest::cli {

enum class BenchPass {
  forward,
  backward,
  product,  ///< C [T, S] = A [T, D]·B [D, S]: a matrix product, no attention
};

enum class BenchMask {
  full,
  causal,
  window,     ///< causal, and 512 keys back at most
  documents,  ///< 64 documents end to end, each seen as a whole
};

inline constexpr std::int64_t bench_window = 512;
inline constexpr std::int64_t bench_documents = 64;

/// What a row's speed is measured in.
enum class BenchUnit {
  f32_share,        ///< of the f32 multiply-add peak
  bf16_share,       ///< of the bfloat16 peak of the instruction set that is used
  bandwidth_share,  ///< of the bytes that a second reads from a buffer of that size
  milliseconds,     ///< a call
};

/// What more threads than one have to do.
enum class BenchThreads {
  free,          ///< nothing
  scale,         ///< to be 0.95 times as good as the limit itself with so many
  never_slower,  ///< than one thread
};

/// One row of the table: what is computed, and how fast it has to be.
struct BenchRow {
  std::string_view shape;  ///< "1x12x4096x64": its name, with peers too
  std::int64_t batch = 1;
  std::int64_t heads = 1;
  std::int64_t kv_heads = 1;
  std::int64_t queries = 1;
  std::int64_t keys = 1;
  std::int64_t width = 1;  ///< D = E
  BenchMask mask = BenchMask::full;
  DType dtype = DType::f32;  ///< f32 or bf16
  BenchPass pass = BenchPass::forward;
  BenchUnit unit = BenchUnit::f32_share;
  std::optional<double>
      floor{};  ///< a share to reach, or milliseconds not to exceed; with one thread
  std::optional<double>
      times_peer{};  ///< the best peer's time is to be at least so many times ours
  BenchThreads threads = BenchThreads::free;
};

/// "1x12x4096x64 causal f32 forward", "512x512x512 full f32 product": what --rows looks for its
/// filter in.
[[nodiscard]] std::string name_of(const BenchRow& row);
[[nodiscard]] std::string_view name_of(BenchPass pass) noexcept;
[[nodiscard]] std::string_view name_of(BenchMask mask) noexcept;
/// What its share is of: "f32 peak", "bf16 peak" or "read rate".
[[nodiscard]] std::string_view limit_of(const BenchRow& row) noexcept;

/// All rows, in the order of the table.
[[nodiscard]] std::vector<BenchRow> bench_rows();

/// Where the documents begin, and the end: lengths from 128 to 384 in a fixed order, 256 on average.
[[nodiscard]] std::vector<std::int64_t> document_starts(std::int64_t tokens);

[[nodiscard]] Mask mask_of(const BenchRow& row);

/// Pairs of a query and a key that it sees, over the batch and all heads.
[[nodiscard]] double visible_pairs(const BenchRow& row);

/// 2·(D + E) operations a visible pair, and 2.5 times that for the backward pass; 2·T·S·D of a product.
[[nodiscard]] double flops_of(const BenchRow& row);

/// Bytes of keys and values: what one query's attention cannot do without reading.
[[nodiscard]] std::int64_t cache_bytes(const BenchRow& row);

}  // namespace attest::cli
