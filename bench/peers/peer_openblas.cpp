// SPDX-License-Identifier: MIT
// OpenBLAS: sgemm, softmax, sgemm for each head, or for each document of one, OpenMP over them; a
// window in blocks of queries with the keys that any of them sees; one query of each head as the
// rows of a group. The name that is printed says which kernels were taken.
#include <cblas.h>
#include <omp.h>

#include "peer_check.h"

extern "C" char* openblas_get_corename();

namespace {

using peer::Range;
using peer::Row;

/// Queries that are computed at once, and the keys that any of them sees.
struct Block {
  std::int64_t head = 0;  ///< of B·H
  Range rows;             ///< beyond T they are the next heads' queries
  Range keys;
};

std::vector<Block> blocks_of(const Row& row) {
  std::vector<Block> out;
  for (std::int64_t head = 0; head < row.batch * row.heads; ++head) {
    if (row.queries == 1) {
      if (head % row.group() == 0) out.push_back({head, {0, row.group()}, {0, row.keys}});
    } else if (row.documents()) {
      for (std::size_t n = 1; n < row.starts.size(); ++n) {
        const Range document{row.starts[n - 1], row.starts[n]};
        out.push_back({head, document, document});
      }
    } else if (row.window()) {
      constexpr std::int64_t step = 256;
      for (std::int64_t i = 0; i < row.queries; i += step) {
        const std::int64_t end = std::min(i + step, row.queries);
        out.push_back({head, {i, end}, {row.seen(i).begin, end}});
      }
    } else {
      out.push_back({head, {0, row.queries}, {0, row.keys}});
    }
  }
  return out;
}

/// Scores to weights, for the keys that each row of a block sees; the others get 0.
void softmax(const Row& row, const Block& block, float* scores) {
  const std::int64_t columns = block.keys.end - block.keys.begin;
  for (std::int64_t i = block.rows.begin; i < block.rows.end; ++i, scores += columns) {
    const Range seen = row.queries == 1 ? block.keys : row.seen(i);
    float* const begin = scores + (seen.begin - block.keys.begin);
    float* const end = scores + (seen.end - block.keys.begin);
    const float most = *std::max_element(begin, end);
    float sum = 0;
    for (float* x = begin; x < end; ++x) *x = std::exp(*x - most);  // vectorised apart
    for (const float* x = begin; x < end; ++x) sum += *x;
    for (float* x = begin; x < end; ++x) *x /= sum;
    std::fill(scores, begin, 0.0F);
    std::fill(end, scores + columns, 0.0F);
  }
}

void one_block(const Row& row, const peer::Inputs& in, const Block& block, float* output,
               float* scores) {
  const auto t = static_cast<int>(block.rows.end - block.rows.begin);
  const auto s = static_cast<int>(block.keys.end - block.keys.begin);
  const auto width = static_cast<int>(row.width);
  const std::int64_t kv_head =
      block.head / row.heads * row.kv_heads + block.head % row.heads / row.group();
  const std::int64_t q = (block.head * row.queries + block.rows.begin) * row.width;
  const auto k = static_cast<std::size_t>((kv_head * row.keys + block.keys.begin) * row.width);
  const float scale = 1.0F / std::sqrt(static_cast<float>(width));
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, t, s, width, scale,
              &in.query[static_cast<std::size_t>(q)], width, &in.key[k], width, 0.0F, scores, s);
  softmax(row, block, scores);
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, t, width, s, 1.0F, scores, s, &in.value[k],
              width, 0.0F, output + q, width);
}

std::string name_of(const char* what) {
  return std::string("openblas_") + openblas_get_corename() + what;
}

void attention(const Row& row) {
  openblas_set_num_threads(1);
  omp_set_num_threads(row.threads);
  const peer::Inputs in(row);
  std::vector<float> output(in.query.size());
  const std::vector<Block> blocks = blocks_of(row);
  std::size_t most = 0;
  for (const Block& block : blocks) {
    most = std::max(most, static_cast<std::size_t>((block.rows.end - block.rows.begin) *
                                                   (block.keys.end - block.keys.begin)));
  }
  const auto ms = peer::time_calls([&] {
#pragma omp parallel
    {
      std::vector<float> scores(most);
#pragma omp for schedule(dynamic, 1)
      for (std::size_t n = 0; n < blocks.size(); ++n) {
        one_block(row, in, blocks[n], output.data(), scores.data());
      }
    }
  });
  peer::report(name_of("_composed").c_str(), row, ms, peer::max_error(row, in, output.data()));
}

void product(const Row& row) {
  openblas_set_num_threads(row.threads);
  const peer::Factors in(row);
  std::vector<float> c(static_cast<std::size_t>(row.queries * row.keys));
  const auto m = static_cast<int>(row.queries), n = static_cast<int>(row.keys);
  const auto k = static_cast<int>(row.width);
  const auto ms = peer::time_calls([&] {
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, m, n, k, 1.0F, in.a.data(), k,
                in.b.data(), n, 0.0F, c.data(), n);
  });
  peer::report(name_of("_sgemm").c_str(), row, ms, peer::max_error(row, in, c.data()));
}

}  // namespace

int main(int count, char** words) {
  peer::choose_openblas_core(words);
  const Row row = peer::row_of(count, words);
  if (row.dtype != "f32") return 0;
  peer::keep_memory();
  if (row.gemm()) {
    product(row);
  } else if (row.known_mask() && row.forward()) {
    attention(row);
  }
}
