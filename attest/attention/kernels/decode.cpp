// SPDX-License-Identifier: MIT
#include "attest/attention/kernels/decode_block.h"

namespace attest::kernels::ATTEST_ISA {
namespace {

template <class T>
void decode(const DecodeBlock<T>& block) {
  const ForwardBlock<T>& task = *block.rows;
  if constexpr (sizeof(T) == 4) {
    if (task.key.column == 1 && task.value.column == 1) {
      if (task.storage == Storage::bf16) return decode_as<Halves<load_bf16>>(block);
      if (task.storage == Storage::f16) return decode_as<Halves<load_f16>>(block);
    }
  }
  decode_as<AsIs<T>>(block);
}

}  // namespace

DecodeTable decode_table() {
  return {.f32 = decode<float>, .f64 = decode<double>, .bf16 = decode<float>};
}

}  // namespace attest::kernels::ATTEST_ISA
