// SPDX-License-Identifier: MIT
#include "attest/attention/kernels/forward_finish.h"
#include "attest/attention/kernels/forward_pairs.h"

/// The forward pass in dot products of pairs of bfloat16.
///
/// Bytes moved: a tile of R×N registers reads N registers and R words for 2·R·N multiply-adds.
namespace attest::kernels::ATTEST_ISA {
namespace {

/// sums[r][v] += Σ_p left(r, p)·right[p·ld + v·W …], words of two numbers each, p from 0 to words − 1.
template <int R, int N>
struct PairTile {
  F32 sums[R][N];

  template <class Left>
  ATTEST_INLINE void multiply(Left left, const std::uint32_t* right, int ld, int words) {
    for (int p = 0; p < words; ++p) multiply_word(left, right, ld, p);
  }
  template <class Left>
  ATTEST_INLINE void multiply_word(Left left, const std::uint32_t* right, int ld, int p) {
    U32 lane[N];
    ATTEST_UNROLL for (int v = 0; v < N; ++v) {
      __builtin_memcpy(&lane[v], right + p * ld + v * lanes<float>, sizeof lane[v]);
    }
    ATTEST_UNROLL for (int r = 0; r < R; ++r) {
      const auto word = bits_as<__m512bh>(left(r, p));
      ATTEST_UNROLL for (int v = 0; v < N; ++v) {
        sums[r][v] = bits_as<F32>(
            _mm512_dpbf16_ps(bits_as<__m512>(sums[r][v]), word, bits_as<__m512bh>(lane[v])));
      }
    }
  }
};

struct PairProducts {
  using Number = float;
  using Query = std::uint32_t;
  struct Operands {
    PairRows key;
    PairRows value;
    bool guarded = false;
  };
  static constexpr int keys_at_once = 2;
  static constexpr int group_vectors = most_vectors;
  static constexpr bool own_scores = false;
  static constexpr int key_step = 2;
  static constexpr int query_numbers(int D) { return (D + 1) / 2; }
  static constexpr int output_numbers(int E) { return E; }
  static void begin() {}
  static void end() {}

  static void place_query(const Group<PairProducts>& group, const ForwardBlock<float>& task,
                          int rows) {
    pairs_into_lanes(group.query, group.vectors * lanes<float>, task.query + group.first_row,
                     task.query_step, rows, task.D, query_numbers(task.D));
  }

  static void all_groups(const Group<PairProducts>* groups, int count,
                         const KeyBlock<PairProducts>& block, const ForwardBlock<float>& task) {
    one_by_one(groups, count, block, task);
  }

  /// `room`: keys, values, and a copy of the values.
  static Operands prepare(const KeyBlock<PairProducts>& block, const ForwardBlock<float>& task,
                          float* room) {
    auto* const key_room = reinterpret_cast<std::uint16_t*>(room);
    std::uint16_t* const value_room = key_room + block_keys * task.D;
    Operands out{.key = pair_rows(task.key, block.begin, block.keys, task.D, key_room),
                 .value = pair_rows(task.value, block.begin, block.keys, task.E, value_room)};
    out.guarded = block.hides && take_out_infinite(out.value, block.keys, task.E,
                                                   value_room + block_keys * task.E);
    return out;
  }

  template <int N>
  ATTEST_INLINE static void score(const Group<PairProducts>& group,
                                  const KeyBlock<PairProducts>& block,
                                  const ForwardBlock<float>& task, F32* largest) {
    constexpr int ld = N * lanes<float>;
    const PairRows key = block.operands.key;
    const F32 factor = broadcast(task.modify.query_factor);
    const int words = task.D / 2;
    for (int v = 0; v < N; ++v) largest[v] = broadcast(minus_infinity<float>);
    for_each_tile<N>(
        block.keys, [&]<int R>(int at) __attribute__((always_inline)) {
          PairTile<R, N> tile{};
          const std::uint16_t* row = key.data + at * key.row;
          const auto pair = [=](int r, int p) __attribute__((always_inline)) {
            std::uint32_t word;
            __builtin_memcpy(&word, row + r * key.row + 2 * p, sizeof word);
            return word + U32{};
          };
          const auto last = [=](int r, int p) __attribute__((always_inline)) {
            return row[r * key.row + 2 * p] + U32{};
          };
          tile.multiply(pair, group.query, ld, words);
          if (task.D % 2 != 0) tile.multiply_word(last, group.query, ld, words);
          ATTEST_UNROLL for (int v = 0; v < N; ++v) {
            ATTEST_UNROLL for (int r = 0; r < R; ++r) {
              const F32 score = tile.sums[r][v] * factor;
              store<float>(group.scores + (at + r) * ld + v * lanes<float>, score);
              largest[v] = larger(score, largest[v]);
            }
          }
        });
    hide_rows(group.scores, ld, block.keys, block.padded_keys());
  }

  ATTEST_INLINE static void save(float* at, const F32* weights) {
    store<float>(at, pairs_of(weights[0], weights[1]));
  }
  static float weight(const Group<PairProducts>& group, int j, int lane) {
    return weight_in_pairs(group.scores, group.vectors * lanes<float>, j, lane);
  }

  /// Values are read in place too: a word is put together of two rows as it is broadcast.
  template <int N>
  ATTEST_INLINE static void mix(const Group<PairProducts>& group,
                                const KeyBlock<PairProducts>& block,
                                const ForwardBlock<float>& task, const F32* factor) {
    constexpr int ld = N * lanes<float>;
    const PairRows value = block.operands.value;
    const auto* weights = reinterpret_cast<const std::uint32_t*>(group.scores);
    const int words = block.keys / 2;
    for_each_tile<N>(
        task.E, [&]<int R>(int at) __attribute__((always_inline)) {
          PairTile<R, N> tile;
          ATTEST_UNROLL for (int r = 0; r < R; ++r) {
            ATTEST_UNROLL for (int v = 0; v < N; ++v) {
              tile.sums[r][v] = load(group.output + (at + r) * ld + v * lanes<float>) * factor[v];
            }
          }
          const std::uint16_t* column = value.data + at;
          const auto pair = [=](int r, int p) __attribute__((always_inline)) {
            const std::uint16_t* even = column + 2 * p * value.row + r;
            const __m512i low = _mm512_set1_epi16(static_cast<short>(even[0]));
            return bits_as<U32>(
                _mm512_mask_set1_epi16(low, 0xAAAAAAAAU, static_cast<short>(even[value.row])));
          };
          const auto last = [=](int r, int p) __attribute__((always_inline)) {
            return column[2 * p * value.row + r] + U32{};
          };
          tile.multiply(pair, weights, 2 * ld, words);
          if (block.keys % 2 != 0) tile.multiply_word(last, weights, 2 * ld, words);
          ATTEST_UNROLL for (int r = 0; r < R; ++r) {
            ATTEST_UNROLL for (int v = 0; v < N; ++v) {
              store<float>(group.output + (at + r) * ld + v * lanes<float>, tile.sums[r][v]);
            }
          }
        });
  }
};

}  // namespace

ForwardKernel<float> forward_bf16() { return forward<PairProducts>; }

}  // namespace attest::kernels::ATTEST_ISA
