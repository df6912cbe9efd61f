// SPDX-License-Identifier: MIT
// libtorch: composed attention, forward without a graph, or backward alone through a graph that is
// kept; documents one after another; a window in blocks of queries with the keys that any of them
// sees; matrix products. The queries that share a key/value head are
// the rows of one product, so that no key is copied.
#include <torch/torch.h>

#include "peer_check.h"

namespace {

using peer::Row;
using torch::Tensor;

/// Tensors [B, H, T, D] and [B, G, S, D]; `mask` is added to the scores [B, G, H/G, T, S].
struct Call {
  Tensor query, key, value, mask;
  std::vector<std::int64_t> starts;  ///< of documents; empty: one
  bool window = false;               ///< 512 keys back; mask is that of the blocks

  Tensor operator()() const {
    if (window) return attend_in_blocks();
    if (starts.empty()) return attend(query, key, value);
    std::vector<Tensor> parts;
    for (std::size_t n = 1; n < starts.size(); ++n) {
      const auto part = [&](const Tensor& x) { return x.slice(2, starts[n - 1], starts[n]); };
      parts.push_back(attend(part(query), part(key), part(value)));
    }
    return torch::cat(parts, 2);
  }

 private:
  static constexpr std::int64_t back = 512, step = 256;

  /// Keys or values [B, H, S, D] as [B, H, blocks, D, back + step], zeros before the first.
  static Tensor blocks_of(const Tensor& x) {
    return torch::constant_pad_nd(x, {0, 0, back, 0}).unfold(2, back + step, step);
  }

  Tensor attend_in_blocks() const {
    const double scale = 1 / std::sqrt(static_cast<double>(query.size(3)));
    const Tensor rows = (query * scale).unflatten(2, {query.size(2) / step, step});
    const Tensor scores = torch::matmul(rows, blocks_of(key)) + mask;
    return torch::matmul(torch::softmax(scores, -1), blocks_of(value).transpose(-2, -1))
        .flatten(2, 3);
  }

 public:
  /// What attend_in_blocks adds to its scores [blocks, step, back + step].
  static Tensor window_mask(std::int64_t queries) {
    const Tensor i = torch::arange(queries).view({-1, step, 1});
    const Tensor first = torch::arange(0, queries, step).view({-1, 1, 1}) - back;
    const Tensor j = first + torch::arange(back + step);
    const Tensor seen = j.ge(0) & j.le(i) & j.ge(i - back);
    return torch::zeros(seen.sizes()).masked_fill(~seen, -HUGE_VAL);
  }

 private:
  Tensor attend(const Tensor& q, const Tensor& k, const Tensor& v) const {
    const double scale = 1 / std::sqrt(static_cast<double>(q.size(3)));
    const std::int64_t group = q.size(1) / k.size(1);
    const Tensor rows = (q * scale).reshape({q.size(0), k.size(1), group * q.size(2), q.size(3)});
    Tensor scores = torch::matmul(rows, k.transpose(-2, -1));
    if (mask.defined()) {
      const Tensor grouped = scores.view({q.size(0), k.size(1), group, q.size(2), k.size(2)});
      scores = (grouped + mask).view_as(scores);
    }
    return torch::matmul(torch::softmax(scores, -1), v).reshape(q.sizes());
  }
};

Tensor tensor_of(std::vector<float>& from, at::IntArrayRef extents, torch::ScalarType type) {
  return torch::from_blob(from.data(), extents).to(type).clone();
}

void attention(const Row& row, torch::ScalarType type) {
  peer::Inputs in(row);
  const auto tensor = [&](std::vector<float>& from, std::int64_t heads, std::int64_t length) {
    return tensor_of(from, {row.batch, heads, length, row.width}, type);
  };
  Call call{tensor(in.query, row.heads, row.queries),
            tensor(in.key, row.kv_heads, row.keys),
            tensor(in.value, row.kv_heads, row.keys),
            {},
            row.starts,
            row.window()};
  if (row.window()) call.mask = Call::window_mask(row.queries).to(type);
  if (row.causal()) {
    call.mask = torch::full({row.queries, row.keys}, -HUGE_VAL).triu(1).to(type);
  }
  const char* const name = "torch_" TORCH_VERSION "_composed";
  if (row.forward()) {
    const torch::NoGradGuard no_graph;
    Tensor output;
    const auto ms = peer::time_calls([&] { output = call(); });
    const Tensor plain = output.to(torch::kFloat32).contiguous();
    peer::report(name, row, ms, peer::max_error(row, in, plain.data_ptr<float>()));
    return;
  }
  for (Tensor* input : {&call.query, &call.key, &call.value}) input->requires_grad_();
  const Tensor output = call();
  std::vector<float> given = peer::numbers(static_cast<std::int64_t>(in.query.size()), 4);
  const Tensor d_output = tensor(given, row.heads, row.queries);
  const auto ms = peer::time_calls([&] {
    for (Tensor* input : {&call.query, &call.key, &call.value}) input->mutable_grad() = Tensor();
    output.backward(d_output, true);
  });
  const Tensor plain = call.query.grad().to(torch::kFloat32).contiguous();
  peer::report(name, row, ms, peer::max_error(row, in, plain.data_ptr<float>(), given.data()));
}

void product(const Row& row, torch::ScalarType type) {
  const torch::NoGradGuard no_graph;
  peer::Factors in(row);
  const Tensor a = tensor_of(in.a, {row.queries, row.width}, type);
  const Tensor b = tensor_of(in.b, {row.width, row.keys}, type);
  Tensor c = torch::empty({row.queries, row.keys}, type);
  const auto ms = peer::time_calls([&] { torch::mm_out(c, a, b); });
  const Tensor plain = c.to(torch::kFloat32).contiguous();
  peer::report("torch_" TORCH_VERSION "_mm", row, ms,
               peer::max_error(row, in, plain.data_ptr<float>()));
}

}  // namespace

int main(int count, char** words) {
  peer::choose_openblas_core(words);
  const Row row = peer::row_of(count, words);
  peer::keep_memory();
  at::set_num_threads(row.threads);
  const auto type = row.dtype == "bf16" ? torch::kBFloat16 : torch::kFloat32;
  if (row.gemm()) {
    product(row, type);
  } else if (row.known_mask() && !(row.window() && row.queries % 256 != 0)) {
    attention(row, type);
  }
}
