// SPDX-License-Identifier: MIT
#include "attest/attention/kernels/decode_block.h"

namespace attest::kernels::ATTEST_ISA {
namespace {

template <class T>
void decode(const DecodeBlock<T>& block) {
  const ForwardBlock<T>& task = *block.rows;
  const bool in_place = task.key.column == 1 && task.value.column == 1;
  if (in_place && with_stored<T>(task.storage, [&]<class S>() { decode_as<Widened<S>>(block); })) {
    return;
  }
  decode_as<Widened<T>>(block);
}

}  // namespace

DecodeTable decode_table() {
  return {.f32 = decode<float>, .f64 = decode<double>, .bf16 = decode<float>};
}

}  // namespace attest::kernels::ATTEST_ISA
