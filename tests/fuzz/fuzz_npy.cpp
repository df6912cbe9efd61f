// SPDX-License-Identifier: MIT
#include "attest/io/npy.h"
#include "tests/fuzz/fuzz_support.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace attest;
  const auto array = io::parse_npy(fuzz::as_input(data, size), "input");
  if (!array) {
    fuzz::demand_polite(array.failure());
    return 0;
  }
  fuzz::demand(array->bytes().size() < size, "an array is smaller than its file");
  io::NamedTensors one;
  one.add("tensor", *array);
  fuzz::demand_round_trip(io::TensorFormat::npy, one);
  return 0;
}
