// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "attest/check/mistakes/claim.h"
#include "attest/io/safetensors.h"
#include "tests/support/shared_files.h"

/// The recorded mistakes of shared/data/mistakes as dumps: what each set claims is said here, and
/// neither the names of the tensors nor the file's text reach what is judged.
namespace attest::test {

struct MistakeSet {
  std::string name{};
  check::Claim claim{};
  std::vector<std::pair<std::string, Tensor<double>>> outputs{};  // name in the file, [B, H, T, E]

  /// Without any table.
  [[nodiscard]] check::Dump bare() const { return {.claim = claim}; }
  [[nodiscard]] check::Dump dump(const Tensor<double>& output, DType dtype = DType::f32) const {
    check::Dump out{.claim = claim};
    out.stages.push_back({check::Stage::output, output, dtype, "output"});
    return out;
  }
  [[nodiscard]] const Tensor<double>* find(std::string_view of) const {
    for (const auto& [key, tensor] : outputs) {
      if (key == of) return &tensor;
    }
    return nullptr;
  }
};

inline const std::vector<std::string>& mistake_set_names() {
  static const std::vector<std::string> names{"plain",
                                              "causal_square",
                                              "causal_lq_lt_lk",
                                              "causal_lq_gt_lk",
                                              "key_padding",
                                              "mask_and_causal",
                                              "gqa",
                                              "float_bias",
                                              "window",
                                              "softcap",
                                              "alibi",
                                              "rope_with_past",
                                              "sink",
                                              "varlen"};
  return names;
}

/// [B, L, H·D] as [B, H, L, D].
inline Tensor<double> unpacked(const Tensor<double>& packed, std::int64_t heads) {
  const std::int64_t B = packed.extent(0), L = packed.extent(1), D = packed.extent(2) / heads;
  Tensor<double> out({B, heads, L, D});
  for (std::int64_t b = 0; b < B; ++b) {
    for (std::int64_t l = 0; l < L; ++l) {
      for (std::int64_t h = 0; h < heads; ++h) {
        for (std::int64_t d = 0; d < D; ++d) out(b, h, l, d) = packed(b, l, h * D + d);
      }
    }
  }
  return out;
}

inline void claim_of(MistakeSet& set, const io::NamedTensors& file) {
  check::Claim& claim = set.claim;
  Mask& mask = claim.call.mask;
  const std::string& name = set.name;
  const auto numbers = [&](const char* of) { return *file.find(of)->to_i64(of); };
  const auto list = [&](const char* of) {
    const Tensor<std::int64_t> tensor = numbers(of);
    return std::vector<std::int64_t>(tensor.elements().begin(), tensor.elements().end());
  };
  const bool bottom_right = name == "causal_lq_lt_lk" || name == "causal_lq_gt_lk";
  if (bottom_right) {
    mask = Mask::causal_bottom_right();
  } else if (name == "causal_square" || name == "mask_and_causal" || name == "window" ||
             name == "alibi" || name == "sink") {
    mask = Mask::causal();
  } else if (name == "varlen") {
    mask = Mask::causal();
    mask.packing = {{0, 5, 9, 12}, {0, 5, 9, 12}};
  }
  if (name == "causal_lq_gt_lk") claim.call.empty_row = EmptyRow::zero;
  if (name == "window") mask.window.left = 3;
  if (name == "key_padding") mask.key_lengths = list("in.key_lengths");
  if (name == "mask_and_causal" || name == "softcap") {
    claim.call.visible = *file.find("in.mask")->to_bool("mask");
  }
  if (name == "softcap") claim.call.softcap = 0.45;
  if (name == "float_bias") claim.call.bias = *file.find("in.bias")->to_f64("bias");
  if (name == "alibi") claim.call.alibi_slopes = {1. / 4, 1. / 16, 1. / 64, 1. / 256, 0.5, 0.125};
  if (name == "sink") {
    const Tensor<double> sink = *file.find("in.sink")->to_f64("sink");
    claim.call.sink.assign(sink.elements().begin(), sink.elements().end());
  }
  if (name == "rope_with_past") {
    mask = Mask::causal_at(7);
    claim.past = 7;
    claim.rope = check::RopeClaim{{}, list("in.q_positions"), list("in.k_positions")};
  }
}

/// Nothing if this machine lacks the recordings.
inline std::optional<MistakeSet> read_mistake_set(const std::string& name) {
  const auto path = shared_path("data/mistakes/" + name + ".safetensors");
  if (!path) return std::nullopt;
  const auto file = io::read_safetensors(path->string());
  if (!file) return std::nullopt;
  MistakeSet out{.name = name};
  out.claim.call.query = *file->find("in.q")->to_f64("q");
  out.claim.call.key = *file->find("in.k")->to_f64("k");
  out.claim.call.value = *file->find("in.v")->to_f64("v");
  claim_of(out, *file);
  const Tensor<double>& query = out.claim.call.query;
  out.claim.shape = {query.extent(0),
                     query.extent(1),
                     out.claim.call.key.extent(1),
                     query.extent(2),
                     out.claim.call.key.extent(2),
                     query.extent(3),
                     out.claim.call.value.extent(3)};
  for (const auto& [key, tensor] : file->tensors) {
    if (!key.starts_with("out.")) continue;
    Tensor<double> numbers = *tensor.to_f64(key);
    if (numbers.rank() == 3) numbers = unpacked(numbers, out.claim.shape.H);
    out.outputs.emplace_back(key.substr(4), std::move(numbers));
  }
  return out;
}

/// Every set, or none if this machine lacks the recordings.
inline std::vector<MistakeSet> mistake_sets() {
  std::vector<MistakeSet> out;
  for (const std::string& name : mistake_set_names()) {
    if (auto set = read_mistake_set(name)) out.push_back(*std::move(set));
  }
  return out;
}

}  // namespace attest::test
