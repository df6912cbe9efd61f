// SPDX-License-Identifier: MIT
// Decoding with a cache: the prompt at once, then one token after another, grouped heads.
#include <cstdint>
#include <cstdio>

#include "attest/attest.h"
#include "attest/base/random.h"

namespace {

constexpr std::int64_t H = 4, G = 2, D = 8;  // query heads, key/value heads, width

/// Numbers in place of a model's projections: [1, heads, T, D].
attest::Tensor<float> projected(attest::Random& random, std::int64_t heads, std::int64_t T) {
  attest::Tensor<float> out({1, heads, T, D});
  for (float& x : out.elements()) x = static_cast<float>(random.uniform(-1, 1));
  return out;
}

}  // namespace

int main() {
  attest::Random random(1);
  attest::KvCache<float> cache({.G = G, .capacity = 8, .D = D, .E = D}, attest::Growth::doubling);
  for (const std::int64_t T : {5, 1, 1, 1}) {
    const attest::Tensor<float> query = projected(random, H, T);
    const attest::Tensor<float> key = projected(random, G, T);
    const attest::Tensor<float> value = projected(random, G, T);

    cache.append(key.view<4>(), value.view<4>());
    const auto result = attest::attention(query.view<4>(), cache.key(), cache.value(),
                                          {.mask = attest::Mask::causal_at(cache.offset())});
    std::printf("positions %d to %d see up to %d keys; output[0] = %.6f\n",
                static_cast<int>(cache.offset()), static_cast<int>(cache.length()) - 1,
                static_cast<int>(cache.length()), double{result.output()(0, 0, T - 1, 0)});
  }
  return 0;
}
