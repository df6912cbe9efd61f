// SPDX-License-Identifier: MIT
#include "attest/attention/dispatch.h"

#include <array>
#include <string>

namespace attest::engine {
namespace {

std::array<KernelTable, 5> all_tables() {
  std::array<KernelTable, 5> tables;
  KernelTable row{.forward = kernels::portable::forward_table(),
                  .decode = kernels::portable::decode_table(),
                  .backward = kernels::portable::backward_table(),
                  .weights = kernels::portable::weights_table()};
  for (const IsaState& set : instruction_sets()) {
#if defined(__x86_64__)
    if (set.isa == Isa::avx2) {
      row = {kernels::avx2::forward_table(), kernels::avx2::decode_table(),
             kernels::avx2::backward_table(), kernels::avx2::weights_table()};
    }
    if (set.isa == Isa::avx512) {
      row = {kernels::avx512::forward_table(), kernels::avx512::decode_table(),
             kernels::avx512::backward_table(), kernels::avx512::weights_table()};
    }
    if (set.isa == Isa::avx512bf16) {
      row.forward.bf16 = kernels::avx512bf16::forward_bf16();
      row.decode.bf16 = kernels::avx512bf16::decode_bf16();
    }
    if (set.isa == Isa::amx) row.forward.bf16 = kernels::amx::forward_bf16();
#endif
    tables[static_cast<std::size_t>(set.isa)] = row;
  }
  return tables;
}

}  // namespace

Result<const KernelTable*> kernel_table(const Execution& execution) {
  static const std::array<KernelTable, 5> tables = all_tables();
  const Result<Isa> isa = isa_for(execution);
  if (!isa) return isa.failure();
  return &tables[static_cast<std::size_t>(*isa)];
}

}  // namespace attest::engine
