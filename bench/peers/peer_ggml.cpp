// SPDX-License-Identifier: MIT
// ggml's CPU back end: ggml_flash_attn_ext, keys and values in f32 for f32 rows and in f16, as its
// users keep them, for bf16 rows.
#include <ggml-cpu.h>
#include <ggml.h>

#include "peer_check.h"

namespace {

void fill(ggml_tensor* tensor, const std::vector<float>& from) {
  const auto count = static_cast<std::int64_t>(from.size());
  if (tensor->type == GGML_TYPE_F32) {
    std::memcpy(tensor->data, from.data(), from.size() * sizeof(float));
  } else {
    ggml_fp32_to_fp16_row(from.data(), static_cast<ggml_fp16_t*>(tensor->data), count);
  }
}

/// [T, S], 0 or −∞ in f16.
ggml_tensor* causal_mask(ggml_context* context, const peer::Row& row) {
  ggml_tensor* mask = ggml_new_tensor_2d(context, GGML_TYPE_F16, row.keys, row.queries);
  auto* at = static_cast<ggml_fp16_t*>(mask->data);
  const ggml_fp16_t seen = ggml_fp32_to_fp16(0.0F), hidden = ggml_fp32_to_fp16(-HUGE_VALF);
  for (std::int64_t i = 0; i < row.queries; ++i) {
    for (std::int64_t j = 0; j < row.keys; ++j) *at++ = j <= i ? seen : hidden;
  }
  return mask;
}

}  // namespace

int main(int count, char** words) {
  const peer::Row row = peer::row_of(count, words);
  if (!row.plain_mask() || !row.forward()) return 0;
  const peer::Inputs in(row);
  const std::size_t room = 8 * in.query.size() + 8 * in.key.size() +
                           2 * static_cast<std::size_t>(row.queries * row.keys) + (64U << 20U);
  ggml_context* context = ggml_init({room, nullptr, false});
  const ggml_type kept = row.dtype == "f32" ? GGML_TYPE_F32 : GGML_TYPE_F16;
  const auto tensor = [&](ggml_type type, std::int64_t length, std::int64_t heads) {
    return ggml_new_tensor_4d(context, type, row.width, length, heads, row.batch);
  };
  ggml_tensor* query = tensor(GGML_TYPE_F32, row.queries, row.heads);
  ggml_tensor* key = tensor(kept, row.keys, row.kv_heads);
  ggml_tensor* value = tensor(kept, row.keys, row.kv_heads);
  fill(query, in.query);
  fill(key, in.key);
  fill(value, in.value);
  ggml_tensor* mask = row.causal() ? causal_mask(context, row) : nullptr;
  const float scale = 1.0F / std::sqrt(static_cast<float>(row.width));
  ggml_tensor* output = ggml_flash_attn_ext(context, query, key, value, mask, scale, 0.0F, 0.0F);
  ggml_flash_attn_ext_set_prec(output, GGML_PREC_F32);
  ggml_cgraph* graph = ggml_new_graph(context);
  ggml_build_forward_expand(graph, output);

  ggml_threadpool_params params = ggml_threadpool_params_default(row.threads);
  params.poll = 100;  // its threads wait awake
  ggml_threadpool* pool = ggml_threadpool_new(&params);
  ggml_cplan plan = ggml_graph_plan(graph, row.threads, pool);
  std::vector<std::uint8_t> work(plan.work_size + 64);
  plan.work_data = work.data();
  const auto ms = peer::time_calls([&] { ggml_graph_compute(graph, &plan); });
  const auto* out = static_cast<const float*>(output->data);  // [B, T, H, D]
  const auto at = [&](std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t d) {
    return out[((b * row.queries + i) * row.heads + h) * row.width + d];
  };
  const char* const name = kept == GGML_TYPE_F32 ? "ggml_flash" : "ggml_flash_f16_cache";
  peer::report(name, row, ms, peer::max_error_at(row, in, at));
  ggml_threadpool_free(pool);
  ggml_free(context);
}
