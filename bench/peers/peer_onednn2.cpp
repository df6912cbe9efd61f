// SPDX-License-Identifier: MIT
// oneDNN 2: matmul, softmax, matmul over all heads at once; matrix products. The causal mask is
// written by hand between them: as a broadcast post-operation it drops this version to its reference
// kernel.
#include <omp.h>

#include <oneapi/dnnl/dnnl.hpp>
#include <unordered_map>

#include "peer_check.h"

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

std::vector<float> plain_of(dnnl::stream& stream, const dnnl::engine& engine, memory from,
                            const memory::dims& dims, Tag tag) {
  std::int64_t count = 1;
  for (const std::int64_t extent : dims) count *= extent;
  std::vector<float> out(static_cast<std::size_t>(count));
  memory plain({dims, Type::f32, tag}, engine, out.data());
  dnnl::reorder(from, plain).execute(stream, from, plain);
  stream.wait();
  return out;
}

void attention(const peer::Row& row, Type type) {
  const peer::Inputs in(row);
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  dnnl::stream stream(engine);
  // The queries that share a key/value head are the rows of one product: nothing is broadcast.
  const std::int64_t outer = row.batch * row.kv_heads, rows = row.group() * row.queries;
  const memory::dims query_dims{outer, rows, row.width};
  const memory::dims key_dims{outer, row.width, row.keys};
  const memory::dims value_dims{outer, row.keys, row.width};
  const memory::dims score_dims{outer, rows, row.keys};
  memory query = filled(engine, stream, query_dims, Tag::abc, type, in.query);
  memory key = filled(engine, stream, key_dims, Tag::acb, type, in.key);
  memory value = filled(engine, stream, value_dims, Tag::abc, type, in.value);
  memory scores({score_dims, Type::f32, Tag::abc}, engine);
  memory weights = type == Type::f32 ? scores : memory({score_dims, type, Tag::abc}, engine);
  memory output({query_dims, type, Tag::abc}, engine);

  dnnl::primitive_attr scaled;
  scaled.set_output_scales(0, {1.0F / std::sqrt(static_cast<float>(row.width))});
  const dnnl::matmul products(
      {{query.get_desc(), key.get_desc(), scores.get_desc()}, scaled, engine});
  const dnnl::softmax_v2_forward softmax(
      {{dnnl::prop_kind::forward_inference, dnnl::algorithm::softmax_accurate, scores.get_desc(),
        weights.get_desc(), 2},
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
  const auto result = plain_of(stream, engine, output, query_dims, Tag::abc);
  peer::report("onednn2_composed", row, ms, peer::max_error(row, in, result.data()));
}

void product(const peer::Row& row, Type type) {
  const peer::Factors in(row);
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  dnnl::stream stream(engine);
  const memory::dims c_dims{row.queries, row.keys};
  memory a = filled(engine, stream, {row.queries, row.width}, Tag::ab, type, in.a);
  memory b = filled(engine, stream, {row.width, row.keys}, Tag::ab, type, in.b);
  memory c({c_dims, type, Tag::ab}, engine);
  const dnnl::matmul matmul({{a.get_desc(), b.get_desc(), c.get_desc()}, engine});
  const auto ms = peer::time_calls([&] {
    matmul.execute(stream, {{DNNL_ARG_SRC, a}, {DNNL_ARG_WEIGHTS, b}, {DNNL_ARG_DST, c}});
    stream.wait();
  });
  const auto result = plain_of(stream, engine, c, c_dims, Tag::ab);
  peer::report("onednn2_matmul", row, ms, peer::max_error(row, in, result.data()));
}

}  // namespace

int main(int count, char** words) {
  const peer::Row row = peer::row_of(count, words);
  peer::keep_memory();
  omp_set_num_threads(row.threads);
  const Type type = row.dtype == "bf16" ? Type::bf16 : Type::f32;
  if (row.gemm()) {
    product(row, type);
  } else if (row.plain_mask() && row.forward()) {
    attention(row, type);
  }
}
