// SPDX-License-Identifier: MIT
// An attention function as people write it, with a mistake as people make it, and the dump that shows
// it. The model reads 5 new tokens after 6 cached ones: the causal mask must end at the last key, and
// `j <= i` ends it at the fifth. Shapes fit, rows sum to one, nothing fails.
//
//     wrong_corner dump.safetensors
//     attest check dump.safetensors
#include <cmath>
#include <cstdio>
#include <string>

#include "attest/base/random.h"
#include "attest/io/tensor_file.h"

namespace {

constexpr std::int64_t H = 6, T = 5, S = 11, D = 12;

attest::Tensor<float> bell_shaped(attest::Shape shape, attest::Random& random) {
  attest::Tensor<float> out(std::move(shape));
  for (float& x : out.elements()) x = static_cast<float>(random.bell());
  return out;
}

// query [H, T, D], key and value [H, S, D]
attest::Tensor<float> my_attention(const attest::Tensor<float>& query,
                                   const attest::Tensor<float>& key,
                                   const attest::Tensor<float>& value) {
  attest::Tensor<float> output({H, T, D});
  for (std::int64_t h = 0; h < H; ++h) {
    for (std::int64_t i = 0; i < T; ++i) {
      float weights[S], sum = 0;
      for (std::int64_t j = 0; j <= i; ++j) {  // the mistake: j <= i + (S - T)
        float score = 0;
        for (std::int64_t d = 0; d < D; ++d) score += query(h, i, d) * key(h, j, d);
        weights[j] = std::exp(score / std::sqrt(static_cast<float>(D)));
        sum += weights[j];
      }
      for (std::int64_t j = 0; j <= i; ++j) {
        for (std::int64_t d = 0; d < D; ++d) output(h, i, d) += weights[j] / sum * value(h, j, d);
      }
    }
  }
  return output;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string path = argc > 1 ? argv[1] : "wrong_corner.safetensors";
  attest::Random random(2026);
  const auto query = bell_shaped({H, T, D}, random);
  const auto key = bell_shaped({H, S, D}, random);
  const auto value = bell_shaped({H, S, D}, random);

  attest::io::NamedTensors dump;
  dump.add("query", query);
  dump.add("key", key);
  dump.add("value", value);
  dump.add("output", my_attention(query, key, value));
  dump.metadata.emplace_back("attest.causal", "bottom-right");  // what it is meant to be
  if (const auto written = attest::io::write_tensors(path, dump); !written) {
    std::fprintf(stderr, "%s\n", written.failure().message.c_str());
    return 2;
  }
  std::printf("wrote %s: query [6, 5, 12], key and value [6, 11, 12], output [6, 5, 12]\n",
              path.c_str());
  return 0;
}
