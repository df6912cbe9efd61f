// SPDX-License-Identifier: MIT
// OpenBLAS: sgemm, softmax, sgemm for each head, OpenMP over heads. Old versions do not know new
// processors and fall to SSE3 kernels; bench/compare sets OPENBLAS_CORETYPE, and the name that is
// printed says which core was taken.
#include <cblas.h>
#include <omp.h>

#include "peer.h"

extern "C" char* openblas_get_corename();

namespace {

void one_head(const peer::Row& row, const float* query, const float* key, const float* value,
              float* output, float* scores) {
  const auto t = static_cast<int>(row.queries), s = static_cast<int>(row.keys);
  const auto width = static_cast<int>(row.width);
  const float scale = 1.0F / std::sqrt(static_cast<float>(width));
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, t, s, width, scale, query, width, key, width,
              0.0F, scores, s);
  for (std::int64_t i = 0; i < row.queries; ++i) {
    float* line = scores + i * row.keys;
    const std::int64_t seen = row.causal() ? i + 1 : row.keys;
    const float most = *std::max_element(line, line + seen);
    float sum = 0;
    for (std::int64_t j = 0; j < seen; ++j) line[j] = std::exp(line[j] - most);  // vectorised apart
    for (std::int64_t j = 0; j < seen; ++j) sum += line[j];
    for (std::int64_t j = 0; j < seen; ++j) line[j] /= sum;
    std::fill(line + seen, line + row.keys, 0.0F);
  }
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, t, width, s, 1.0F, scores, s, value, width,
              0.0F, output, width);
}

}  // namespace

int main(int count, char** words) {
  const peer::Row row = peer::row_of(count, words);
  if (!row.plain_mask() || row.dtype != "f32" || row.pass != "fwd") return 0;
  openblas_set_num_threads(1);
  const peer::Inputs in(row);
  std::vector<float> output(in.query.size());
  omp_set_num_threads(row.threads);
  const auto ms = peer::time_calls([&] {
#pragma omp parallel
    {
      std::vector<float> scores(static_cast<std::size_t>(row.queries * row.keys));
#pragma omp for schedule(dynamic, 1)
      for (std::int64_t bh = 0; bh < row.batch * row.heads; ++bh) {
        const std::int64_t group = row.heads / row.kv_heads;
        const std::int64_t bg = bh / row.heads * row.kv_heads + bh % row.heads / group;
        const auto q = static_cast<std::size_t>(bh * row.queries * row.width);
        const auto k = static_cast<std::size_t>(bg * row.keys * row.width);
        one_head(row, &in.query[q], &in.key[k], &in.value[k], &output[q], scores.data());
      }
    }
  });
  const std::string name = std::string("openblas_") + openblas_get_corename() + "_composed";
  peer::report(name.c_str(), row, ms, peer::max_error(row, in, output.data()));
}
