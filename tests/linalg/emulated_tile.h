// SPDX-License-Identifier: MIT
#pragma once

#include "attest/linalg/kernels/vec.h"

/// Tiles of plain C++, for machines that have none (attest/linalg/kernels/amx_tile.h).
namespace attest::kernels::ATTEST_ISA {

/// Eight tiles of 16 rows of 64 bytes. What the machine would refuse, or be slow at, is counted.
struct EmulatedTile {
  struct State {
    std::uint32_t words[8][16][16];
    bool configured = false;
    int begun = 0;
    int refused = 0;
  };
  static State& state() {
    static State tiles;
    return tiles;
  }
  static void begin() {
    for (auto& tile : state().words) {
      for (auto& row : tile) {
        for (std::uint32_t& word : row) word = 0x7FC07FC0U;  // NaN, whatever it is read as
      }
    }
    state().configured = true;
    ++state().begun;
  }
  static void end() { state().configured = false; }

  template <int t>
  static void zero() {
    check(state().configured);
    for (auto& row : state().words[t]) {
      for (std::uint32_t& word : row) word = 0;
    }
  }
  template <int t>
  static void load(const void* from, std::int64_t stride = 16) {
    check(state().configured && reinterpret_cast<std::uintptr_t>(from) % 64 == 0 &&
          stride % 16 == 0);
    for (int i = 0; i < 16; ++i) {
      __builtin_memcpy(state().words[t][i], static_cast<const char*>(from) + 4 * stride * i, 64);
    }
  }
  /// In the order that the machine adds in.
  template <int c, int a, int b>
  static void dot() {
    check(state().configured);
    for (int i = 0; i < 16; ++i) {
      for (int j = 0; j < 16; ++j) {
        float even = 0;
        float odd = 0;
        for (int k = 0; k < 16; ++k) {
          const std::uint32_t left = state().words[a][i][k];
          const std::uint32_t right = state().words[b][k][j];
          even += bits_as<float>(left << 16U) * bits_as<float>(right << 16U);
          odd += bits_as<float>(left & 0xFFFF0000U) * bits_as<float>(right & 0xFFFF0000U);
        }
        const float sum = bits_as<float>(state().words[c][i][j]) + (even + odd);
        state().words[c][i][j] = bits_as<std::uint32_t>(sum);
      }
    }
  }
  template <int t>
  static void store(float* to, std::int64_t stride) {
    check(state().configured);
    for (int i = 0; i < 16; ++i) __builtin_memcpy(to + i * stride, state().words[t][i], 64);
  }

 private:
  static void check(bool fine) { state().refused += fine ? 0 : 1; }
};

}  // namespace attest::kernels::ATTEST_ISA
