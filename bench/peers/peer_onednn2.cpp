// SPDX-License-Identifier: MIT
// oneDNN 2: matmul, softmax, matmul over all heads at once. The causal mask is written by hand
// between them: as a broadcast post-operation it drops this version to its reference kernel.
#include <omp.h>

#include <oneapi/dnnl/dnnl.hpp>
#include <unordered_map>

#include "peer.h"

namespace {

using dnnl::memory;
using Tag = memory::format_tag;
using Type = memory::data_type;

/// A tensor of that type holding these f32 numbers.
memory filled(const dnnl::engine& engine, dnnl::stream& stream, const memory::dims& dims, Tag tag,
              Type type, const std::vector<float>& from) {
  memory plain({dims, Type::f32, tag}, engine, const_cast<float*>(from.data()));
  memory out({dims, type, tag}, engine);
  dnnl::reorder(plain, out).execute(stream, plain, out);
  stream.wait();
  return out;
}

void hide_future(const peer::Row& row, float* scores) {
  const std::int64_t rows = row.batch * row.heads * row.queries;
#pragma omp parallel for
  for (std::int64_t r = 0; r < rows; ++r) {
    float* line = scores + r * row.keys;
    std::fill(line + r % row.queries + 1, line + row.keys, -HUGE_VALF);
  }
}

}  // namespace

int main(int count, char** words) {
  const peer::Row row = peer::row_of(count, words);
  if (!row.plain_mask() || row.pass != "fwd") return 0;
  omp_set_num_threads(row.threads);
  const peer::Inputs in(row);
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  dnnl::stream stream(engine);
  const Type type = row.dtype == "bf16" ? Type::bf16 : Type::f32;
  // Grouped heads: each key/value head is broadcast over the query heads that read it.
  const std::int64_t group = row.heads / row.kv_heads, outer = row.batch * row.kv_heads;
  const memory::dims query_dims{outer, group, row.queries, row.width};
  const memory::dims key_dims{outer, 1, row.width, row.keys};
  const memory::dims value_dims{outer, 1, row.keys, row.width};
  const memory::dims score_dims{outer, group, row.queries, row.keys};
  memory query = filled(engine, stream, query_dims, Tag::abcd, type, in.query);
  memory key = filled(engine, stream, key_dims, Tag::abdc, type, in.key);
  memory value = filled(engine, stream, value_dims, Tag::abcd, type, in.value);
  memory scores({score_dims, Type::f32, Tag::abcd}, engine);
  memory weights = type == Type::f32 ? scores : memory({score_dims, type, Tag::abcd}, engine);
  memory output({query_dims, type, Tag::abcd}, engine);

  dnnl::primitive_attr scaled;
  scaled.set_output_scales(0, {1.0F / std::sqrt(static_cast<float>(row.width))});
  const dnnl::matmul products(
      {{query.get_desc(), key.get_desc(), scores.get_desc()}, scaled, engine});
  const dnnl::softmax_v2_forward softmax(
      {{dnnl::prop_kind::forward_inference, dnnl::algorithm::softmax_accurate, scores.get_desc(),
        weights.get_desc(), 3},
       engine});
  const dnnl::matmul mix({{weights.get_desc(), value.get_desc(), output.get_desc()}, engine});
  const auto ms = peer::time_calls([&] {
    products.execute(stream,
                     {{DNNL_ARG_SRC, query}, {DNNL_ARG_WEIGHTS, key}, {DNNL_ARG_DST, scores}});
    if (row.causal()) {
      stream.wait();
      hide_future(row, static_cast<float*>(scores.get_data_handle()));
    }
    softmax.execute(stream, {{DNNL_ARG_SRC, scores}, {DNNL_ARG_DST, weights}});
    mix.execute(stream,
                {{DNNL_ARG_SRC, weights}, {DNNL_ARG_WEIGHTS, value}, {DNNL_ARG_DST, output}});
    stream.wait();
  });
  std::vector<float> result(in.query.size());
  memory plain({query_dims, Type::f32, Tag::abcd}, engine, result.data());
  dnnl::reorder(output, plain).execute(stream, output, plain);
  stream.wait();
  peer::report("onednn2_composed", row, ms, peer::max_error(row, in, result.data()));
}
