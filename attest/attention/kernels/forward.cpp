// SPDX-License-Identifier: MIT
#include "attest/attention/kernels/forward.h"

#include "attest/attention/kernels/forward_finish.h"

/// The forward pass in f32 and f64; numbers of 16 bits are widened, a block of keys at a time.
namespace attest::kernels::ATTEST_ISA {
namespace {

/// Products of numbers: keys and values are read in place.
template <class T>
struct NumberProducts {
  using Number = T;
  using Query = T;
  struct Operands {
    Rows<T> key;
    Rows<T> value;
    bool guarded = false;
  };
  static constexpr int keys_at_once = 1;
  static constexpr int group_vectors = most_vectors;
  static constexpr bool own_scores = false;
  static constexpr int key_step = 1;
  static constexpr int query_numbers(int D) { return D; }
  static constexpr int output_numbers(int E) { return E; }
  static void begin() {}
  static void end() {}

  static void place_query(const Group<NumberProducts>& group, const ForwardBlock<T>& task,
                          int rows) {
    rows_into_lanes<T>(group.query, group.vectors * lanes<T>, task.query + group.first_row,
                       task.storage, task.query_step, rows, task.D, task.modify.query_factor);
  }

  static void all_groups(const Group<NumberProducts>* groups, int count,
                         const KeyBlock<NumberProducts>& block, const ForwardBlock<T>& task) {
    one_by_one(groups, count, block, task);
  }

  /// `room`: keys, values, and a copy of the values.
  static Operands prepare(const KeyBlock<NumberProducts>& block, const ForwardBlock<T>& task,
                          T* room) {
    T* const value_room = room + block_keys * task.D;
    Operands out{
        .key = rows_of(task.key, task.storage, block.begin, block.keys, task.D, room),
        .value = rows_of(task.value, task.storage, block.begin, block.keys, task.E, value_room)};
    if (block.hides) take_out_infinite(out, block.keys, task.E, value_room + block_keys * task.E);
    return out;
  }

  static void take_out_infinite(Operands& operands, int keys, int E, T* copy) {
    const Rows<T> value = operands.value;
    for (int j = 0; j < keys && !operands.guarded; ++j) {
      operands.guarded = !row_is_finite(value.data + j * value.row, E);
    }
    if (!operands.guarded) return;
    for (int j = 0; j < keys; ++j) {
      for (int e = 0; e < E; ++e) {
        const T number = value.data[j * value.row + e];
        copy[j * E + e] = number - number == 0 ? number : T(0);
      }
    }
    operands.value = {copy, E};
  }

  template <int N>
  ATTEST_INLINE static void score(const Group<NumberProducts>& group,
                                  const KeyBlock<NumberProducts>& block,
                                  const ForwardBlock<T>& task, Vec<T>* largest) {
    constexpr int ld = N * lanes<T>;
    const Rows<T> key = block.operands.key;
    for (int v = 0; v < N; ++v) largest[v] = broadcast(minus_infinity<T>);
    for_each_tile<N>(
        block.keys, [&]<int R>(int at) __attribute__((always_inline)) {
          Tile<R, N, T> tile;
          tile.clear();
          tile.multiply(key.data + at * key.row, key.row, 1, group.query, ld, task.D);
          tile.save(group.scores + at * ld, ld);
          ATTEST_UNROLL for (int v = 0; v < N; ++v) {
            ATTEST_UNROLL for (int r = 0; r < R; ++r) largest[v] =
                larger(tile.sums[r][v], largest[v]);
          }
        });
  }

  ATTEST_INLINE static void save(T* at, const Vec<T>* weight) { store<T>(at, *weight); }
  static T weight(const Group<NumberProducts>& group, int j, int lane) {
    return group.scores[j * group.vectors * lanes<T> + lane];
  }

  template <int N>
  ATTEST_INLINE static void mix(const Group<NumberProducts>& group,
                                const KeyBlock<NumberProducts>& block, const ForwardBlock<T>& task,
                                const Vec<T>* factor) {
    constexpr int ld = N * lanes<T>;
    const Rows<T> value = block.operands.value;
    for_each_tile<N>(
        task.E, [&]<int R>(int at) __attribute__((always_inline)) {
          Tile<R, N, T> tile;
          tile.load_scaled(group.output + at * ld, ld, factor);
          tile.multiply(value.data + at, 1, value.row, group.scores, ld, block.keys);
          tile.save(group.output + at * ld, ld);
        });
  }
};

}  // namespace

ForwardTable forward_table() {
  return {.f32 = forward<NumberProducts<float>>,
          .f64 = forward<NumberProducts<double>>,
          .bf16 = forward<NumberProducts<float>>};
}

}  // namespace attest::kernels::ATTEST_ISA
