// SPDX-License-Identifier: MIT
// What one writes first: three loops, threads over heads. Built twice: with -O3, and with -Ofast,
// which may reorder sums and so vectorises them.
#include <cfloat>
#include <thread>

#include "peer_check.h"

namespace {

void one_head(const peer::Row& row, const float* query, const float* key, const float* value,
              float* output) {
  const std::int64_t width = row.width;
  const float scale = 1.0F / std::sqrt(static_cast<float>(width));
  std::vector<float> weights(static_cast<std::size_t>(row.keys));
  for (std::int64_t i = 0; i < row.queries; ++i) {
    const peer::Range seen = row.seen(i);
    float most = -FLT_MAX, sum = 0;
    for (std::int64_t j = seen.begin; j < seen.end; ++j) {
      float dot = 0;
      for (std::int64_t d = 0; d < width; ++d) dot += query[i * width + d] * key[j * width + d];
      weights[static_cast<std::size_t>(j)] = dot * scale;
      most = std::max(most, dot * scale);
    }
    for (std::int64_t j = seen.begin; j < seen.end; ++j) {
      float& weight = weights[static_cast<std::size_t>(j)];
      sum += weight = std::exp(weight - most);
    }
    float* out = output + i * width;
    std::fill_n(out, width, 0.0F);
    for (std::int64_t j = seen.begin; j < seen.end; ++j) {
      const float weight = weights[static_cast<std::size_t>(j)];
      for (std::int64_t d = 0; d < width; ++d) out[d] += weight * value[j * width + d];
    }
    for (std::int64_t d = 0; d < width; ++d) out[d] /= sum;
  }
}

}  // namespace

int main(int count, char** words) {
  const peer::Row row = peer::row_of(count, words);
  if (!row.known_mask() || row.dtype != "f32" || !row.forward()) return 0;
  const peer::Inputs in(row);
  std::vector<float> output(in.query.size());
  const auto heads_from = [&](std::int64_t first) {
    for (std::int64_t bh = first; bh < row.batch * row.heads; bh += row.threads) {
      const std::int64_t bg = bh / row.heads * row.kv_heads + bh % row.heads / row.group();
      const auto q = static_cast<std::size_t>(bh * row.queries * row.width);
      const auto k = static_cast<std::size_t>(bg * row.keys * row.width);
      one_head(row, &in.query[q], &in.key[k], &in.value[k], &output[q]);
    }
  };
  const auto ms = peer::time_calls([&] {
    std::vector<std::thread> others;
    for (int n = 1; n < row.threads; ++n) others.emplace_back(heads_from, n);
    heads_from(0);
    for (std::thread& other : others) other.join();
  });
  peer::report(PEER_NAME, row, ms, peer::max_error(row, in, output.data()));
}
