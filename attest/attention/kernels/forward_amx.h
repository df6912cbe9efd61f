// SPDX-License-Identifier: MIT
#pragma once

#include "attest/attention/kernels/forward_finish.h"
#include "attest/attention/kernels/forward_pairs.h"

/// The forward pass on tiles of bfloat16, written against a class Tile (attest/linalg/kernels/amx_tile.h)
/// so that it can be tested where there are no tiles.
///
///     scores, 32 keys of 16 rows:    left: keys, in place if they can be;   right: queries as pairs
///     outputs, 32 e of 16 rows:      left: values, turned [E][keys];        right: weights as pairs
///
/// A group is one column of tiles, 16 rows. While vector code weighs one group, the tiles work on the
/// outputs of the group before it and on the scores of the one after: a unit of 32 × 16 results is
/// issued every 16 keys, and runs beside the exponentials that follow it.
///
/// Bytes moved per unit and 32 numbers of depth: 3 KiB read for 32,768 flops. Values are turned once a
/// block of 64 rows.
namespace attest::kernels::ATTEST_ISA {

/// to[e·block_keys + j] = value[j][e], zeros from `keys` to the next multiple of 32.
///
/// 8 numbers e of 32 keys are turned in registers at once, eight keys in each 128 bits of them.
inline void turn_values(const PairRows& value, int keys, int E, std::uint16_t* to) {
  for (int j = 0; j < keys; j += 32) {
    int e = 0;
    for (; e + 8 <= E; e += 8) {
      __m512i line[8];
      ATTEST_UNROLL for (int r = 0; r < 8; ++r) {
        __m128i part[4];
        ATTEST_UNROLL for (int lane = 0; lane < 4; ++lane) {
          const int key = j + 8 * lane + r;
          part[lane] = __m128i{};
          if (key < keys) __builtin_memcpy(&part[lane], value.data + key * value.row + e, 16);
        }
        line[r] = _mm512_inserti32x4(_mm512_castsi128_si512(part[0]), part[1], 1);
        line[r] = _mm512_inserti32x4(_mm512_inserti32x4(line[r], part[2], 2), part[3], 3);
      }
      ATTEST_UNROLL for (int round = 0; round < 3; ++round) {
        __m512i next[8];
        ATTEST_UNROLL for (int r = 0; r < 4; ++r) {
          next[2 * r] = _mm512_unpacklo_epi16(line[r], line[r + 4]);
          next[2 * r + 1] = _mm512_unpackhi_epi16(line[r], line[r + 4]);
        }
        ATTEST_UNROLL for (int r = 0; r < 8; ++r) line[r] = next[r];
      }
      ATTEST_UNROLL for (int r = 0; r < 8; ++r) {
        _mm512_storeu_si512(to + (e + r) * block_keys + j, line[r]);
      }
    }
    for (; e < E; ++e) {
      for (int key = j; key < j + 32; ++key) {
        to[e * block_keys + key] = key < keys ? value.data[key * value.row + e] : std::uint16_t{0};
      }
    }
  }
}

template <class Tile>
struct TileProducts {
  using P = TileProducts;
  using Number = float;
  using Query = std::uint32_t;
  struct Operands {
    PairRows key;                          // [padded keys, D to a multiple of 32], on cache lines
    const std::uint16_t* value = nullptr;  // [E to a multiple of 16][block_keys]
    bool guarded = false;
  };
  static_assert(lanes<float> == 16);
  static constexpr int ld = 16;
  static constexpr int group_vectors = 1;
  static constexpr bool own_scores = true;
  static constexpr int key_step = 32;
  static constexpr int keys_at_once = 2;
  static constexpr int deep(int D) { return (D + 31) / 32 * 32; }
  static constexpr int query_numbers(int D) { return deep(D) / 2; }
  static constexpr int output_numbers(int E) { return (E + 15) / 16 * 16; }
  static void begin() { Tile::begin(); }
  static void end() { Tile::end(); }

  static void place_query(const Group<P>& group, const ForwardBlock<float>& task, int rows) {
    pairs_into_lanes(group.query, ld, task.query + group.first_row, task.query_step, rows, task.D,
                     query_numbers(task.D));
  }

  /// `room`: keys, values turned, values, and a copy of them without what is not finite. What lies
  /// beyond E in the turned ones gives results that nobody reads.
  static Operands prepare(const KeyBlock<P>& block, const ForwardBlock<float>& task, float* room) {
    auto* const key_room = reinterpret_cast<std::uint16_t*>(room);
    std::uint16_t* const turned = key_room + block_keys * deep(task.D);
    std::uint16_t* const value_room = turned + block_keys * output_numbers(task.E);
    PairRows value = pair_rows(task.value, block.begin, block.keys, task.E, value_room);
    Operands out{.key = key_rows(block, task, key_room), .value = turned};
    out.guarded = block.hides &&
                  take_out_infinite(value, block.keys, task.E, value_room + block_keys * task.E);
    turn_values(value, block.keys, task.E, turned);
    return out;
  }

  /// Keys as tiles read them: those in memory if whole tiles of them lie on cache lines, else a copy.
  static PairRows key_rows(const KeyBlock<P>& block, const ForwardBlock<float>& task,
                           std::uint16_t* room) {
    const Matrix& key = task.key;
    const auto* from = static_cast<const std::uint16_t*>(key.data) + block.begin * key.row;
    if (key.column == 1 && key.row % 32 == 0 && task.D % 32 == 0 && block.keys % 32 == 0 &&
        reinterpret_cast<std::uintptr_t>(from) % 64 == 0) {
      return {from, key.row};
    }
    const int row = deep(task.D);
    for (int j = 0; j < block.keys; ++j) {
      std::uint16_t* const to = room + j * row;
      if (key.column == 1) {
        __builtin_memcpy(to, from + j * key.row,
                         sizeof *to * static_cast<decltype(sizeof 0)>(task.D));
      } else {
        for (int d = 0; d < task.D; ++d) to[d] = from[j * key.row + d * key.column];
      }
      for (int d = task.D; d < row; ++d) to[d] = 0;
    }
    return {room, row};
  }

  /// Scores of keys 32·unit …, not yet scaled.
  static void score_unit(const Group<P>& group, const KeyBlock<P>& block, int D, int unit) {
    const PairRows key = block.operands.key;
    const std::uint16_t* above = key.data + 32 * unit * key.row;
    const std::uint16_t* below = above + 16 * key.row;
    Tile::template zero<0>();
    Tile::template zero<2>();
    for (int d = 0; d < D; d += 32) {
      Tile::template load<6>(group.query + d / 2 * ld);
      Tile::template load<4>(above + d, key.row / 2);
      Tile::template dot<0, 4, 6>();
      Tile::template load<5>(below + d, key.row / 2);
      Tile::template dot<2, 5, 6>();
    }
    float* to = group.scores + 32 * unit * ld;
    Tile::template store<0>(to, ld);
    Tile::template store<2>(to + 16 * ld, ld);
  }

  /// Outputs 32·unit …, or the last 16 of them; the outputs are scaled already.
  static void mix_unit(const Group<P>& group, const KeyBlock<P>& block, int E, int unit) {
    const std::uint16_t* above = block.operands.value + 32 * unit * block_keys;
    const std::uint16_t* below = above + 16 * block_keys;
    float* to = group.output + 32 * unit * ld;
    const bool two = 32 * unit + 16 < E;
    Tile::template load<0>(to, ld);
    if (two) Tile::template load<2>(to + 16 * ld, ld);
    for (int j = 0; j < block.keys; j += 32) {
      Tile::template load<6>(group.scores + j * ld, 2 * ld);
      Tile::template load<4>(above + j, block_keys / 2);
      Tile::template dot<0, 4, 6>();
      if (!two) continue;
      Tile::template load<5>(below + j, block_keys / 2);
      Tile::template dot<2, 5, 6>();
    }
    Tile::template store<0>(to, ld);
    if (two) Tile::template store<2>(to + 16 * ld, ld);
  }

  /// The rest of step 1: scores are scaled, and the largest is found.
  static F32 scale_scores(const Group<P>& group, const KeyBlock<P>& block, float factor) {
    F32 largest = broadcast(minus_infinity<float>);
    for (int j = 0; j < block.keys; ++j) {
      const F32 score = load(group.scores + j * ld) * broadcast(factor);
      if (factor != 1) store<float>(group.scores + j * ld, score);
      largest = larger(score, largest);
    }
    hide_rows(group.scores, ld, block.keys, block.padded_keys());
    return largest;
  }

  static void scale_outputs(const Group<P>& group, int E, F32 factor) {
    if (!any(factor != broadcast(1.0F))) return;
    for (int e = 0; e < E; ++e)
      store<float>(group.output + e * ld, load(group.output + e * ld) * factor);
  }

  static void all_groups(const Group<P>* groups, int count, const KeyBlock<P>& block,
                         const ForwardBlock<float>& task) {
    const int score_units = (block.keys + 31) / 32;
    const int mix_units = (task.E + 31) / 32;
    const int calls = block.padded_keys() / 16;
    for (int unit = 0; unit < score_units; ++unit) score_unit(groups[0], block, task.D, unit);
    for (int g = 0; g < count; ++g) {
      const Group<P>& group = groups[g];
      F32 largest = scale_scores(group, block, task.modify.query_factor);
      modify<1>(group, block, task, &largest);
      const int before = g > 0 ? mix_units : 0;
      const int units = before + (g + 1 < count ? score_units : 0);
      int done = 0;
      F32 factor;
      weigh_any<1>(group, block, task.modify, &largest, &factor, [&](int j) {
        if (j % 16 != 0) return;
        for (const int end = units * (j / 16 + 1) / calls; done < end; ++done) {
          if (done < before) {
            mix_unit(groups[g - 1], block, task.E, done);
          } else {
            score_unit(groups[g + 1], block, task.D, done - before);
          }
        }
      });
      if (g > 0 && block.operands.guarded) add_guarded(groups[g - 1], block, task);
      scale_outputs(group, task.E, factor);
    }
    const Group<P>& last = groups[count - 1];
    for (int unit = 0; unit < mix_units; ++unit) mix_unit(last, block, task.E, unit);
    if (block.operands.guarded) add_guarded(last, block, task);
  }

  ATTEST_INLINE static void save(float* at, const F32* weights) {
    store<float>(at, pairs_of(weights[0], weights[1]));
  }
  static float weight(const Group<P>& group, int j, int lane) {
    return weight_in_pairs(group.scores, ld, j, lane);
  }
};

}  // namespace attest::kernels::ATTEST_ISA
