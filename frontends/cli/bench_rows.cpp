// SPDX-License-Identifier: MIT
#include "frontends/cli/bench_rows.h"

#include <algorithm>

namespace attest::cli {
namespace {

using enum BenchMask;

/// The floors of one shape under one mask: shares of the peak with one thread.
struct Floors {
  BenchMask mask = full;
  double f32 = 0;
  double bf16 = 0;
  double backward = 0;
  std::optional<double> f32_peers{};  ///< how many times as fast as the best peer
  std::optional<double> bf16_peers{};
};

void add(std::vector<BenchRow>& rows, BenchRow shape, const Floors& floors) {
  shape.mask = floors.mask;
  BenchRow row = shape;
  row.floor = floors.f32;
  row.times_peer = floors.f32_peers;
  rows.push_back(row);
  row.dtype = DType::bf16;
  row.unit = BenchUnit::bf16_share;
  row.floor = floors.bf16;
  row.times_peer = floors.bf16_peers;
  rows.push_back(row);
  row = shape;
  row.pass = BenchPass::backward;
  row.floor = floors.backward;
  rows.push_back(row);
}

/// A shape that is judged by the time of a call.
void add_small(std::vector<BenchRow>& rows, BenchRow row, double f32_ms,
               std::optional<double> bf16_ms) {
  row.unit = BenchUnit::milliseconds;
  row.floor = f32_ms;
  rows.push_back(row);
  row.dtype = DType::bf16;
  row.floor = bf16_ms;
  rows.push_back(row);
  row.dtype = DType::f32;
  row.pass = BenchPass::backward;
  row.floor.reset();
  row.times_peer = 1;  // ahead of all
  rows.push_back(row);
}

constexpr std::int64_t shortest_document = 128;

}  // namespace

std::string_view name_of(BenchPass pass) noexcept {
  return pass == BenchPass::forward ? "forward" : "backward";
}

std::string_view name_of(BenchMask mask) noexcept {
  switch (mask) {
    case full:
      return "full";
    case causal:
      return "causal";
    case window:
      return "window512";
    case documents:
      return "documents64";
  }
  return "";
}

std::string name_of(const BenchRow& row) {
  std::string out(row.shape);
  for (const std::string_view part : {name_of(row.mask), name_of(row.dtype), name_of(row.pass)}) {
    out.append(" ").append(part);
  }
  return out;
}

std::vector<BenchRow> bench_rows() {
  const BenchRow large{"1x12x4096x64", 1, 12, 12, 4096, 4096, 64};
  const BenchRow grouped{"1x32kv8x2048x128", 1, 32, 8, 2048, 2048, 128};
  const BenchRow middle{"1x12x1024x64", 1, 12, 12, 1024, 1024, 64};
  const BenchRow small{"8x4x128x32", 8, 4, 4, 128, 128, 32};
  const BenchRow tiny{"1x2x16x16", 1, 2, 2, 16, 16, 16};
  const BenchRow longest{"1x4x16384x64", 1, 4, 4, 16384, 16384, 64};
  std::vector<BenchRow> rows;
  add(rows, large,
      {.mask = full,
       .f32 = 0.77,
       .bf16 = 0.20,
       .backward = 0.65,
       .f32_peers = 1.15,
       .bf16_peers = 3});
  add(rows, large,
      {.mask = causal,
       .f32 = 0.70,
       .bf16 = 0.18,
       .backward = 0.60,
       .f32_peers = 3,
       .bf16_peers = 6});
  add(rows, grouped, {.mask = full, .f32 = 0.80, .bf16 = 0.28, .backward = 0.65});
  add(rows, grouped, {.mask = causal, .f32 = 0.72, .bf16 = 0.25, .backward = 0.60});
  add(rows, middle,
      {.mask = full, .f32 = 0.75, .bf16 = 0.18, .backward = 0.60, .f32_peers = 1, .bf16_peers = 1});
  add(rows, middle,
      {.mask = causal,
       .f32 = 0.62,
       .bf16 = 0.15,
       .backward = 0.52,
       .f32_peers = 1,
       .bf16_peers = 1});
  add_small(rows, small, 0.7, 0.4);
  add_small(rows, tiny, 0.0018, {});
  BenchRow decode{"decode_1x32kv8x4096x128", 1, 32, 8, 1, 4096, 128};
  decode.unit = BenchUnit::bandwidth_share;
  decode.floor = 0.80;
  decode.times_peer = 2;
  rows.push_back(decode);
  decode.dtype = DType::bf16;
  rows.push_back(decode);
  add(rows, longest, {.mask = window, .f32 = 0.60, .bf16 = 0.12, .backward = 0.50});
  add(rows, longest, {.mask = documents, .f32 = 0.60, .bf16 = 0.12, .backward = 0.50});
  return rows;
}

std::vector<std::int64_t> document_starts(std::int64_t tokens) {
  std::vector<std::int64_t> starts{0};
  for (std::int64_t n = 0; n + 1 < bench_documents; ++n) {
    // 0, 37, 74 … modulo 64 visits every number once, so the lengths are spread evenly.
    const std::int64_t length = shortest_document + (n * 37 % bench_documents) * 4 + 2;
    starts.push_back(std::min(starts.back() + length, tokens));
  }
  starts.push_back(tokens);
  return starts;
}

Mask mask_of(const BenchRow& row) {
  switch (row.mask) {
    case full:
      return {};
    case causal:
      return Mask::causal();
    case window: {
      Mask mask = Mask::causal();
      mask.window.left = bench_window;
      return mask;
    }
    case documents: {
      Mask mask;
      mask.packing = {document_starts(row.queries), document_starts(row.keys)};
      return mask;
    }
  }
  return {};
}

double visible_pairs(const BenchRow& row) {
  std::int64_t pairs = 0;  // of one head
  switch (row.mask) {
    case full:
      pairs = row.queries * row.keys;
      break;
    case causal:
      pairs = row.queries * (row.queries + 1) / 2;
      break;
    case window:
      for (std::int64_t i = 0; i < row.queries; ++i) pairs += std::min(i, bench_window) + 1;
      break;
    case documents: {
      const auto starts = document_starts(row.keys);
      for (std::size_t n = 1; n < starts.size(); ++n) {
        pairs += (starts[n] - starts[n - 1]) * (starts[n] - starts[n - 1]);
      }
      break;
    }
  }
  return static_cast<double>(pairs) * static_cast<double>(row.batch * row.heads);
}

double flops_of(const BenchRow& row) {
  const double forward = visible_pairs(row) * static_cast<double>(2 * (row.width + row.width));
  return row.pass == BenchPass::forward ? forward : 2.5 * forward;
}

std::int64_t cache_bytes(const BenchRow& row) {
  const std::int64_t numbers = row.batch * row.kv_heads * row.keys * 2 * row.width;
  return numbers * static_cast<std::int64_t>(size_of(row.dtype));
}

bool reaches_floor(const BenchRow& row, double result) {
  constexpr double three_points = 0.03;
  if (!row.floor) return true;
  if (row.unit == BenchUnit::milliseconds) return result <= *row.floor;
  return result >= *row.floor - three_points;
}

}  // namespace attest::cli
