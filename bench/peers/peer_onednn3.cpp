// SPDX-License-Identifier: MIT
// oneDNN 3: attention as one partition of its graph interface, which it fuses, forward; matrix
// products by its matmul primitive.
#include <omp.h>

#include <numeric>
#include <oneapi/dnnl/dnnl.hpp>
#include <oneapi/dnnl/dnnl_graph.hpp>

#include "peer_check.h"

namespace {

using namespace dnnl::graph;
using Logical = logical_tensor;
using Type = Logical::data_type;
using Extents = std::vector<std::int64_t>;

/// A tensor and its memory, from f32 numbers if there are any.
struct Held {
  std::vector<std::uint8_t> bytes;
  tensor handle;

  Held(const Logical& of, const dnnl::engine& engine, const std::vector<float>& from = {})
      : bytes(of.get_mem_size() + 64), handle(of, engine, bytes.data()) {
    if (of.get_data_type() == Type::f32) {
      std::memcpy(bytes.data(), from.data(), from.size() * sizeof(float));
      return;
    }
    for (std::size_t n = 0; n < from.size(); ++n) {  // to bfloat16, to nearest even
      std::uint32_t bits = 0;
      std::memcpy(&bits, &from[n], sizeof bits);
      if (std::isfinite(from[n])) bits += 0x7FFFU + ((bits >> 16U) & 1U);
      const auto half = static_cast<std::uint16_t>(bits >> 16U);
      std::memcpy(&bytes[2 * n], &half, sizeof half);
    }
  }
  float at(std::size_t n, Type type) const {
    float out = 0;
    if (type == Type::f32) {
      std::memcpy(&out, &bytes[4 * n], sizeof out);
    } else {
      std::uint16_t half = 0;
      std::memcpy(&half, &bytes[2 * n], sizeof half);
      const std::uint32_t bits = static_cast<std::uint32_t>(half) << 16U;
      std::memcpy(&out, &bits, sizeof out);
    }
    return out;
  }
};

std::vector<float> causal_mask(const peer::Row& row) {
  std::vector<float> out;
  for (std::int64_t i = 0; i < row.queries; ++i) {
    for (std::int64_t j = 0; j < row.keys; ++j) out.push_back(j <= i ? 0.0F : -HUGE_VALF);
  }
  return out;
}

void attention(const peer::Row& row, Type type) {
  const peer::Inputs in(row);
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  dnnl::stream stream(engine);
  const std::int64_t group = row.group();
  // Grouped heads have an axis of their own, over which keys and values are broadcast.
  const auto extents = [&](std::int64_t in_group, std::int64_t a, std::int64_t b) {
    return group > 1 ? Extents{row.batch, row.kv_heads, in_group, a, b}
                     : Extents{row.batch, row.heads, a, b};
  };
  std::size_t id = 0;
  const auto logical = [&](Type of, const Extents& dims) {
    return Logical(id++, of, dims, Logical::layout_type::strided);
  };
  const Extents score_dims = extents(group, row.queries, row.keys);
  const Logical query = logical(type, extents(group, row.queries, row.width));
  const Logical key = logical(type, extents(1, row.keys, row.width));
  const Logical value = logical(type, extents(1, row.keys, row.width));
  const Logical scale = logical(type, {1});
  const Logical mask = logical(type, group > 1 ? Extents{1, 1, 1, row.queries, row.keys}
                                               : Extents{1, 1, row.queries, row.keys});
  const Logical output = logical(type, extents(group, row.queries, row.width));
  const Logical products = logical(Type::f32, score_dims), scaled = logical(Type::f32, score_dims);
  const Logical masked = logical(Type::f32, score_dims), weights = logical(type, score_dims);

  dnnl::graph::graph graph(dnnl::engine::kind::cpu);
  const auto step = [&](op::kind kind, const char* name, const std::vector<Logical>& from,
                        const Logical& to) {
    op out(id++, kind, name);
    out.add_inputs(from);
    out.add_outputs({to});
    return out;
  };
  op first = step(op::kind::MatMul, "products", {query, key}, products);
  first.set_attr<bool>(op::attr::transpose_b, true);
  graph.add_op(first);
  graph.add_op(step(op::kind::Multiply, "scale", {products, scale}, scaled));
  if (row.causal()) graph.add_op(step(op::kind::Add, "mask", {scaled, mask}, masked));
  op softmax = step(op::kind::SoftMax, "softmax", {row.causal() ? masked : scaled}, weights);
  softmax.set_attr<std::int64_t>(op::attr::axis, -1);
  softmax.set_attr<std::string>(op::attr::mode, "inf_as_zero");
  graph.add_op(softmax);
  graph.add_op(step(op::kind::MatMul, "mix", {weights, value}, output));
  graph.finalize();
  const auto partitions = graph.get_partitions();
  if (partitions.size() != 1) return;  // not fused: not what is to be compared

  std::vector<Logical> order{query, key, scale};
  std::vector<Held> held;
  held.reserve(5);
  held.emplace_back(query, engine, in.query);
  held.emplace_back(key, engine, in.key);
  held.emplace_back(scale, engine,
                    std::vector<float>{1.0F / std::sqrt(static_cast<float>(row.width))});
  if (row.causal()) {
    order.push_back(mask);
    held.emplace_back(mask, engine, causal_mask(row));
  }
  order.push_back(value);
  held.emplace_back(value, engine, in.value);
  auto compiled = partitions[0].compile(order, {output}, engine);
  const Held result(output, engine);
  std::vector<tensor> arguments;
  for (const Held& one : held) arguments.push_back(one.handle);
  const auto ms = peer::time_calls([&] {
    compiled.execute(stream, arguments, {result.handle});
    stream.wait();
  });
  const auto at = [&](std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t d) {
    return result.at(
        static_cast<std::size_t>(((b * row.heads + h) * row.queries + i) * row.width + d), type);
  };
  peer::report("onednn3_graph", row, ms, peer::max_error_at(row, in, at));
}

/// A product of plain row-major matrices.
void product(const peer::Row& row, Type type) {
  const peer::Factors in(row);
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  dnnl::stream stream(engine);
  const auto logical = [&](std::size_t id, std::int64_t m, std::int64_t n) {
    return Logical(id, type, {m, n}, Logical::layout_type::strided);
  };
  const Logical of[]{logical(0, row.queries, row.width), logical(1, row.width, row.keys),
                     logical(2, row.queries, row.keys)};
  Held a(of[0], engine, in.a), b(of[1], engine, in.b), c(of[2], engine);
  const auto desc = [&](std::int64_t m, std::int64_t n) {
    const bool half = type == Type::bf16;
    return dnnl::memory::desc({m, n},
                              half ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32,
                              dnnl::memory::format_tag::ab);
  };
  dnnl::memory a_memory(desc(row.queries, row.width), engine, a.bytes.data());
  dnnl::memory b_memory(desc(row.width, row.keys), engine, b.bytes.data());
  dnnl::memory c_memory(desc(row.queries, row.keys), engine, c.bytes.data());
  const dnnl::matmul matmul(
      {engine, a_memory.get_desc(), b_memory.get_desc(), c_memory.get_desc()});
  const auto ms = peer::time_calls([&] {
    matmul.execute(
        stream, {{DNNL_ARG_SRC, a_memory}, {DNNL_ARG_WEIGHTS, b_memory}, {DNNL_ARG_DST, c_memory}});
    stream.wait();
  });
  std::vector<float> plain(static_cast<std::size_t>(row.queries * row.keys));
  for (std::size_t n = 0; n < plain.size(); ++n) plain[n] = c.at(n, type);
  peer::report("onednn3_matmul", row, ms, peer::max_error(row, in, plain.data()));
}

}  // namespace

int main(int count, char** words) try {
  const peer::Row row = peer::row_of(count, words);
  peer::keep_memory();
  omp_set_num_threads(row.threads);
  const Type type = row.dtype == "bf16" ? Type::bf16 : Type::f32;
  if (row.gemm()) {
    product(row, type);
  } else if (row.plain_mask() && row.forward()) {
    attention(row, type);
  }
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
