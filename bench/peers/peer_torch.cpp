// SPDX-License-Identifier: MIT
// libtorch: composed attention, forward without a graph, or backward alone through a graph that is
// kept. Key/value heads of a group are repeated, as its users have to.
#include <torch/torch.h>

#include "peer.h"

namespace {

using torch::Tensor;

struct Call {
  Tensor query, key, value, mask;
  std::int64_t group = 1;

  Tensor operator()() const {
    const auto repeated = [&](const Tensor& x) {
      return group > 1 ? x.repeat_interleave(group, 1) : x;
    };
    const double scale = 1 / std::sqrt(static_cast<double>(query.size(3)));
    Tensor scores = torch::matmul(query * scale, repeated(key).transpose(-2, -1));
    if (mask.defined()) scores = scores + mask;
    return torch::matmul(torch::softmax(scores, -1), repeated(value));
  }
};

}  // namespace

int main(int count, char** words) {
  const peer::Row row = peer::row_of(count, words);
  if (!row.plain_mask()) return 0;
  at::set_num_threads(row.threads);
  peer::Inputs in(row);
  const auto type = row.dtype == "bf16" ? torch::kBFloat16 : torch::kFloat32;
  const auto tensor = [&](std::vector<float>& from, std::int64_t heads, std::int64_t length) {
    return torch::from_blob(from.data(), {row.batch, heads, length, row.width}).to(type).clone();
  };
  Call call{tensor(in.query, row.heads, row.queries),
            tensor(in.key, row.kv_heads, row.keys),
            tensor(in.value, row.kv_heads, row.keys),
            {},
            row.heads / row.kv_heads};
  if (row.causal()) {
    call.mask = torch::full({row.queries, row.keys}, -HUGE_VAL).triu(1).to(type);
  }
  const char* const name = "torch_" TORCH_VERSION "_composed";
  if (row.pass == "fwd") {
    const torch::NoGradGuard no_graph;
    Tensor output;
    const auto ms = peer::time_calls([&] { output = call(); });
    const Tensor plain = output.to(torch::kFloat32).contiguous();
    peer::report(name, row, ms, peer::max_error(row, in, plain.data_ptr<float>()));
    return 0;
  }
  for (Tensor* input : {&call.query, &call.key, &call.value}) input->requires_grad_();
  const Tensor output = call();
  const Tensor d_output = torch::randn({row.batch, row.heads, row.queries, row.width}).to(type);
  const auto ms = peer::time_calls([&] {
    for (Tensor* input : {&call.query, &call.key, &call.value}) input->mutable_grad() = Tensor();
    output.backward(d_output, true);
  });
  peer::report(name, row, ms, std::nan(""));
}
