// SPDX-License-Identifier: MIT
// Writes a safetensors file of the kind people dump from a model: float32 query, key and value of
// one layer, four query heads over two key/value heads, and a padding mask for a batch of two.
//
//     dump_tensors dump.safetensors
#include <cstdio>
#include <string>

#include "attest/base/random.h"
#include "attest/io/tensor_file.h"

namespace {

attest::AnyTensor bell_shaped(attest::Shape shape, attest::Random& random) {
  attest::Tensor<double> numbers(std::move(shape));
  for (double& x : numbers.elements()) x = random.bell();
  return attest::AnyTensor::from_f64(numbers, attest::DType::f32);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string path = argc > 1 ? argv[1] : "dump.safetensors";
  constexpr std::int64_t B = 2, H = 4, G = 2, T = 5, D = 8;
  attest::Random random(2026);

  attest::io::NamedTensors dump;
  dump.add("query", bell_shaped({B, H, T, D}, random));  // [B, H, T, D]
  dump.add("key", bell_shaped({B, G, T, D}, random));    // [B, G, S, D]
  dump.add("value", bell_shaped({B, G, T, D}, random));  // [B, G, S, E]

  // The second sequence of the batch is two tokens shorter: its last two keys are padding.
  attest::Tensor<bool> mask({B, 1, 1, T});  // broadcasts to [B, H, T, S]; true = may see
  for (std::int64_t b = 0; b < B; ++b) {
    for (std::int64_t j = 0; j < T; ++j) mask(b, 0, 0, j) = j < T - 2 * b;
  }
  dump.add("mask", mask);

  if (const auto written = attest::io::write_tensors(path, dump); !written) {
    std::fprintf(stderr, "%s\n", written.failure().message.c_str());
    return 2;
  }
  std::printf("wrote %s: query [2, 4, 5, 8], key and value [2, 2, 5, 8], mask [2, 1, 1, 5]\n",
              path.c_str());
  return 0;
}
