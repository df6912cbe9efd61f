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
  double f32_peers = 1;  ///< how many times as fast as the best peer
  double bf16_peers = 1;
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
  row.times_peer = 1;
  rows.push_back(row);
}

/// A shape that is judged by the time of a call.
void add_small(std::vector<BenchRow>& rows, BenchRow row, double f32_ms,
               std::optional<double> bf16_ms) {
  row.unit = BenchUnit::milliseconds;
  row.floor = f32_ms;
  row.times_peer = 1;  // ahead of all
  rows.push_back(row);
  row.dtype = DType::bf16;
  row.floor = bf16_ms;
  rows.push_back(row);
  row.dtype = DType::f32;
  row.pass = BenchPass::backward;
  row.floor.reset();
  rows.push_back(row);
}

/// N × N times N × N, one row a size. Nothing is asked against peers.
void add_products(std::vector<BenchRow>& rows) {
  struct Size {
    std::string_view shape;
    std::int64_t n;
    bool bf16;
  };
  for (const Size& size :
       {Size{"256x256x256", 256, false}, Size{"512x512x512", 512, true},
        Size{"1024x1024x1024", 1024, true}, Size{"2048x2048x2048", 2048, false}}) {
    BenchRow row{size.shape, 1, 1, 1, size.n, size.n, size.n};
    row.pass = BenchPass::product;
    row.floor = 0.85;
    rows.push_back(row);
    if (!size.bf16) continue;
    row.dtype = DType::bf16;
    row.unit = BenchUnit::bf16_share;
    row.floor = 0.40;
    rows.push_back(row);
  }
}

constexpr std::int64_t shortest_document = 128;

}  // namespace

std::string_view name_of(BenchPass pass) noexcept {
  if (pass == BenchPass::product) return "product";
  return pass == BenchPass::forward ? "forward" : "backward";
}

std::string_view limit_of(const BenchRow& row) noexcept {
  if (row.unit == BenchUnit::bandwidth_share) return "read rate";
  return row.dtype == DType::bf16 ? "bf16 peak" : "f32 peak";
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
  BenchRow large{"1x12x4096x64", 1, 12, 12, 4096, 4096, 64};
  BenchRow grouped{"1x32kv8x2048x128", 1, 32, 8, 2048, 2048, 128};
  BenchRow longest{"1x4x16384x64", 1, 4, 4, 16384, 16384, 64};
  const BenchRow middle{"1x12x1024x64", 1, 12, 12, 1024, 1024, 64};
  const BenchRow small{"8x4x128x32", 8, 4, 4, 128, 128, 32};
  BenchRow tiny{"1x2x16x16", 1, 2, 2, 16, 16, 16};
  for (BenchRow* row : {&large, &grouped, &longest}) row->threads = BenchThreads::scale;
  tiny.threads = BenchThreads::never_slower;
  std::vector<BenchRow> rows;
  add(rows, large, {full, 0.77, 0.20, 0.65, 1.15, 3});
  add(rows, large, {causal, 0.70, 0.18, 0.60, 3, 6});
  add(rows, grouped, {full, 0.80, 0.28, 0.65});
  add(rows, grouped, {causal, 0.72, 0.25, 0.60});
  add(rows, middle, {full, 0.75, 0.18, 0.60});
  add(rows, middle, {causal, 0.62, 0.15, 0.52});
  add_small(rows, small, 0.7, 0.4);
  add_small(rows, tiny, 0.0018, {});
  BenchRow decode{"decode_1x32kv8x4096x128", 1, 32, 8, 1, 4096, 128};
  decode.unit = BenchUnit::bandwidth_share;
  decode.floor = 0.80;
  decode.times_peer = 2;
  rows.push_back(decode);
  decode.dtype = DType::bf16;
  rows.push_back(decode);
  add(rows, longest, {window, 0.60, 0.12, 0.50});
  add(rows, longest, {documents, 0.60, 0.12, 0.50});
  add_products(rows);
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
  if (row.pass == BenchPass::product) {
    return 2 * static_cast<double>(row.queries) * static_cast<double>(row.keys * row.width);
  }
  const double forward = visible_pairs(row) * static_cast<double>(2 * (row.width + row.width));
  return row.pass == BenchPass::forward ? forward : 2.5 * forward;
}

std::int64_t cache_bytes(const BenchRow& row) {
  const std::int64_t numbers = row.batch * row.kv_heads * row.keys * 2 * row.width;
  return numbers * static_cast<std::int64_t>(size_of(row.dtype));
}

}  // namespace attest::cli
