// SPDX-License-Identifier: MIT
#include "attest/io/npz.h"
#include "tests/fuzz/fuzz_support.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace attest;
  const io::NpzLimits limits{.max_total_bytes = std::uint64_t{1} << 24U};
  const auto read = io::parse_npz(fuzz::as_input(data, size), "input", limits);
  fuzz::demand_round_trip(io::TensorFormat::npz, read);
  if (!read) return 0;
  std::size_t total = 0;
  for (const auto& entry : read->tensors) total += entry.second.bytes().size();
  fuzz::demand(total <= limits.max_total_bytes, "the limit holds");
  fuzz::demand(total <= limits.max_ratio * size, "no more comes out than deflate can give");
  return 0;
}
