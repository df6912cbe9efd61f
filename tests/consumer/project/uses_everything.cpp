// SPDX-License-Identifier: MIT
// Several rooms in one program, linked from one target.

#include <array>

#include "attest/base/text.h"
#include "attest/io/safetensors.h"
#include "attest/lab/exact_sum.h"

int main() {
  const std::array<double, 3> numbers = {1e308, 1e308, -1e308};
  if (attest::lab::exact_sum(numbers) != 1e308) return 1;

  attest::io::NamedTensors file;
  file.add("query", attest::Tensor<double>({3}, numbers));
  const auto bytes = attest::io::serialize_safetensors(file);
  if (!bytes) return 1;
  const auto again = attest::io::parse_safetensors(*bytes, "memory");
  if (!again || again->find("query") == nullptr) return 1;
  return attest::shortest(again->find("query")->number(2)) == "-1e+308" ? 0 : 1;
}
