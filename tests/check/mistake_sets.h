// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "attest/check/mistakes/claim.h"
#include "attest/io/safetensors.h"

namespace attest::test {

/// One file of recorded mistakes: the claim that its right output keeps, and every recorded output.
struct MistakeSet {
  std::string name;
  check::Dump dump{};                                             ///< without any table
  std::vector<std::pair<std::string, Tensor<double>>> outputs{};  ///< [B, H, T, E]
};

inline Tensor<double> swapped_axes_1_2(const Tensor<double>& in, std::int64_t H) {
  const std::int64_t B = in.extent(0), T = in.extent(1), E = in.extent(2) / H;
  Tensor<double> out({B, H, T, E});
  for (std::int64_t b = 0; b < B; ++b) {
    for (std::int64_t t = 0; t < T; ++t) {
      for (std::int64_t n = 0; n < H * E; ++n) out(b, n / E, t, n % E) = in(b, t, n);
    }
  }
  return out;
}

/// What the file's `parameters` say, in the claim's words.
inline void set_options(check::Claim& claim, const std::string& set, const io::NamedTensors& file) {
  AttentionCase& call = claim.call;
  const auto causal = [&] { call.mask = Mask::causal_bottom_right(); };
  if (const AnyTensor* mask = file.find("in.mask")) call.visible = mask->to_bool("mask").value();
  if (const AnyTensor* bias = file.find("in.bias")) call.bias = bias->to_f64("bias").value();
  if (set == "causal_square" || set == "causal_lq_lt_lk" || set == "causal_lq_gt_lk" ||
      set == "mask_and_causal" || set == "alibi" || set == "sink" || set == "window" ||
      set == "rope_with_past" || set == "varlen") {
    causal();
  }
  call.empty_row = EmptyRow::zero;
  if (set == "window") call.mask.window.left = 3;
  if (set == "softcap") call.softcap = 0.45;
  if (set == "alibi") call.alibi_slopes = {1. / 4, 1. / 16, 1. / 64, 1. / 256, 1. / 2, 1. / 8};
  if (const AnyTensor* sink = file.find("in.sink")) {
    const auto values = sink->to_f64("sink").value();
    call.sink.assign(values.elements().begin(), values.elements().end());
  }
  if (set == "key_padding") {
    const auto lengths = file.find("in.key_lengths")->to_i64("lengths").value();
    call.mask.key_lengths.assign(lengths.elements().begin(), lengths.elements().end());
  }
  if (set == "varlen") {
    call.mask.packing = {.query_starts = {0, 5, 9, 12}, .key_starts = {0, 5, 9, 12}};
  }
  if (set == "rope_with_past") {
    claim.past = 7;
    const auto query = file.find("in.q_positions")->to_i64("positions").value();
    const auto key = file.find("in.k_positions")->to_i64("positions").value();
    claim.rope = check::RopeClaim{};
    claim.rope->query_positions.assign(query.elements().begin(), query.elements().end());
    claim.rope->key_positions.assign(key.elements().begin(), key.elements().end());
  }
}

/// Every set of a folder, by name.
inline std::vector<MistakeSet> mistake_sets(const std::filesystem::path& folder) {
  std::vector<MistakeSet> out;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".safetensors") continue;
    const auto file = io::read_safetensors(entry.path().string()).value();
    MistakeSet set{.name = entry.path().stem().string()};
    check::Claim& claim = set.dump.claim;
    claim.call.query = file.find("in.q")->to_f64("query").value();
    claim.call.key = file.find("in.k")->to_f64("key").value();
    claim.call.value = file.find("in.v")->to_f64("value").value();
    claim.shape = {.B = claim.call.query.extent(0),
                   .H = claim.call.query.extent(1),
                   .G = claim.call.key.extent(1),
                   .T = claim.call.query.extent(2),
                   .S = claim.call.key.extent(2),
                   .D = claim.call.query.extent(3),
                   .E = claim.call.value.extent(3)};
    set_options(claim, set.name, file);
    for (const auto& [name, tensor] : file.tensors) {
      if (!name.starts_with("out.")) continue;
      Tensor<double> values = tensor.to_f64(name).value();
      if (values.rank() == 3) values = swapped_axes_1_2(values, claim.shape.H);
      set.outputs.emplace_back(name.substr(4), std::move(values));
    }
    out.push_back(std::move(set));
  }
  std::sort(out.begin(), out.end(),
            [](const MistakeSet& a, const MistakeSet& b) { return a.name < b.name; });
  return out;
}

}  // namespace attest::test
