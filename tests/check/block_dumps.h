// SPDX-License-Identifier: MIT
#pragma once

#include <cmath>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "attest/base/config.h"
#include "attest/base/random.h"
#include "attest/check/block/block.h"
#include "attest/lab/block.h"
#include "tests/check/block_plain.h"

/// Blocks that a plain program computed, as dumps.
namespace attest::test {

inline Tensor<double> tensor_of(const BlockRows& rows) {
  Tensor<double> out(
      {static_cast<std::int64_t>(rows.size()), static_cast<std::int64_t>(rows[0].size())});
  for (std::size_t n = 0; n < out.size(); ++n) {
    out.data()[n] = static_cast<double>(rows[n / rows[0].size()][n % rows[0].size()]);
  }
  return out;
}

inline Tensor<double> bell_tensor(Random& random, const Shape& shape, double middle, double width) {
  Tensor<double> out(shape);
  for (double& x : out.elements()) {
    x = static_cast<double>(static_cast<float>(middle + width * random.bell()));
  }
  return out;
}

/// Three heads of four, normalized before each part.
inline BlockConfig three_heads(std::int64_t ffn_dim, Activation activation) {
  BlockConfig out;
  out.model_dim = 12;
  out.heads = out.kv_heads = 3;
  out.head_dim = out.value_dim = 4;
  out.ffn_dim = ffn_dim;
  out.placement = NormPlacement::pre;
  out.activation = activation;
  return out;
}

/// Weights of the sizes that trained models have, all biases and gains there.
inline BlockWeights<double> drawn_weights(Random& random, const BlockConfig& config) {
  BlockWeights<double> out;
  for (const lab::BlockParameter& p : lab::block_parameters(config)) {
    if (p.need == lab::Need::unused) continue;
    const std::string_view name = p.name;
    const bool matrix = p.shape.size() == 2;
    const double width = matrix ? 1.2 / std::sqrt(static_cast<double>(p.shape[0])) : 0.3;
    out.*p.tensor = bell_tensor(random, p.shape, name.ends_with("gain") ? 1 : 0, width);
  }
  return out;
}

/// A dump of what the program computed, with these of its tables; all of them if none is named.
inline check::BlockDump dump_of(const BlockConfig& config, const BlockWeights<double>& weights,
                                const BlockRows& x, const Mistakes& mistakes,
                                const std::set<std::string>& wanted = {}) {
  PlainBlock program{{{config, weights, mistakes}}};
  program.run(x);
  check::BlockDump dump;
  dump.config = config;
  dump.weights = weights;
  dump.x = tensor_of(x);
  for (int n = 0; n < check::block_stages; ++n) {
    const auto stage = static_cast<check::BlockStage>(n);
    const std::string name(check::name_of(stage));
    const auto found = program.tables.find(name);
    if (found == program.tables.end() || (!wanted.empty() && wanted.count(name) == 0)) continue;
    dump.stages[stage] = {.values = tensor_of(found->second), .name = name};
  }
  return dump;
}

inline BlockRows drawn_rows(Random& random, std::int64_t T, std::int64_t C) {
  BlockRows out(static_cast<std::size_t>(T), std::vector<float>(static_cast<std::size_t>(C)));
  for (auto& row : out) {
    const double middle = random.uniform(-0.7, 0.7);
    for (float& x : row) x = static_cast<float>(middle + 1.3 * random.bell());
  }
  return out;
}

}  // namespace attest::test
