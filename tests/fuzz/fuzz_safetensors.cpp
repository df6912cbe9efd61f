// SPDX-License-Identifier: MIT
#include "attest/io/safetensors.h"
#include "tests/fuzz/fuzz_support.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace attest;
  const io::ByteSpan input = fuzz::as_input(data, size);
  const auto read = io::parse_safetensors(input, "input");
  fuzz::demand_round_trip(io::TensorFormat::safetensors, read);
  if (!read) return 0;
  std::size_t payload = 0;
  for (const auto& entry : read->tensors) payload += entry.second.bytes().size();
  fuzz::demand(payload + 8 + io::load_little<std::uint64_t>(input, 0) == size,
               "every byte of the file belongs to the header or to one tensor");
  return 0;
}
