// SPDX-License-Identifier: MIT
// The attention kernel on tiles, compiled as it is for a machine that has them, but on tiles of plain
// C++. attention_amx_test.cpp calls it.
#include "attest/attention/kernels/forward_amx.h"
#include "tests/linalg/emulated_tile.h"

namespace attest::kernels::emulated {

ForwardKernel<float> forward_bf16() { return forward<TileProducts<EmulatedTile>>; }

/// What the machine would have refused since the last call of this; −1 if tiles were not given back.
int refused() {
  EmulatedTile::State& state = EmulatedTile::state();
  const int count = state.configured ? -1 : state.refused;
  state.refused = 0;
  return count;
}

int begun() { return EmulatedTile::state().begun; }

}  // namespace attest::kernels::emulated
