// SPDX-License-Identifier: MIT
#include "attest/attention/kernels/forward.h"

#include "attest/attention/kernels/block_mask.h"
#include "attest/attention/kernels/scores.h"
#include "attest/attention/kernels/tiles.h"
#include "attest/linalg/kernels/exp2.h"

/// The forward pass of one block of rows: Milakov and Gimelshein 2018, Alg. 3, over blocks of keys.
///
///     for each block of 128 keys (cut at absolute multiples of 128):
///       1  scores[j, row]   = Σ_d key[j, d]·query[d, row]
///       2  scale, softcap, bias, ALiBi if any of these three is there; hidden scores become −∞
///       3  peak' = max(peak, scores), factor = 2^(exponent·(peak − peak'))
///          weights[j, row]  = 2^(exponent·(scores − peak')),  sum = sum·factor + Σ weights
///       4  output[e, row]   = output·factor + Σ_j value[j, e]·weights[j, row]
///     output /= sum,  log_sum_exp = peak_factor·peak + log2(sum)·ln 2
///
/// Bytes moved: keys and values once a block of 64 rows; everything else stays in the first two
/// levels of cache.
namespace attest::kernels::ATTEST_ISA {
namespace {

template <class T>
constexpr T minus_infinity = -__builtin_inf();

/// Up to `most_vectors` registers of rows, with all that belongs to them.
template <class T>
struct Group {
  int vectors = 0;
  int first_row = 0;
  T* query = nullptr;   // [D][vectors·W]
  T* output = nullptr;  // [E][vectors·W]
  T* peak = nullptr;    // [vectors·W]
  T* sum = nullptr;     // [vectors·W]
};

/// One block of keys, as the groups use it.
template <class T>
struct KeyBlock {
  std::int64_t begin = 0;
  int keys = 0;
  Rows<T> key;
  Rows<T> value;
  const BlockMask* mask = nullptr;      // absent: every row sees every key
  const std::uint64_t* kept = nullptr;  // absent: no dropout
  T* scores = nullptr;                  // [keys][vectors·W]
  bool values_guarded = false;          // hidden values that are not finite wait for their turn
};

/// Step 1; gives the largest score of each lane.
template <int N, class T>
ATTEST_INLINE void score(const Group<T>& group, const KeyBlock<T>& block, int D, Vec<T>* largest) {
  constexpr int ld = N * lanes<T>;
  for (int v = 0; v < N; ++v) largest[v] = broadcast(minus_infinity<T>);
  for_each_tile<N>(
      block.keys, [&]<int R>(int at) __attribute__((always_inline)) {
        Tile<R, N, T> tile;
        tile.clear();
        tile.multiply(block.key.data + at * block.key.row, block.key.row, 1, group.query, ld, D);
        tile.save(block.scores + at * ld, ld);
        ATTEST_UNROLL for (int v = 0; v < N; ++v) {
          ATTEST_UNROLL for (int r = 0; r < R; ++r) largest[v] =
              larger(tile.sums[r][v], largest[v]);
        }
      });
}

/// Step 2, where there is anything to do.
template <int N, class T>
ATTEST_INLINE void modify(const Group<T>& group, const KeyBlock<T>& block,
                          const ForwardBlock<T>& task, Vec<T>* largest) {
  constexpr int ld = N * lanes<T>;
  if (changes_scores(task.modify)) {
    change_scores<N, T>(block.scores, ld, task.modify, group.first_row, task.rows, block.begin,
                        block.keys);
  } else if (block.mask == nullptr) {
    return;
  }
  for (int v = 0; v < N; ++v) {
    Vec<T> most = broadcast(minus_infinity<T>);
    const auto shift = static_cast<unsigned>(group.first_row + v * lanes<T>);
    for (int j = 0; j < block.keys; ++j) {
      T* at = block.scores + j * ld + v * lanes<T>;
      Vec<T> s = load(at);
      if (block.mask != nullptr) {
        s = select(lanes_of_bits<T>(block.mask->seen[j] >> shift), s, broadcast(minus_infinity<T>));
        store<T>(at, s);
      }
      most = larger(s, most);
    }
    largest[v] = most;
  }
}

/// Step 3: scores become weights; gives the factor of what was summed before.
template <int N, class T>
ATTEST_INLINE void weigh(const Group<T>& group, const KeyBlock<T>& block, const Vec<T>* largest,
                         const Vec<T> exponent, Vec<T>* factor) {
  constexpr int ld = N * lanes<T>;
  Vec<T> peak[N];
  Vec<T> sum[N];
  ATTEST_UNROLL for (int v = 0; v < N; ++v) {
    const Vec<T> before = load(group.peak + v * lanes<T>);
    const Vec<T> now = larger(largest[v], before);
    store<T>(group.peak + v * lanes<T>, now);
    peak[v] = select(now == broadcast(minus_infinity<T>), Vec<T>{}, now);
    factor[v] = exp2_of_product(before - peak[v], exponent);
    sum[v] = load(group.sum + v * lanes<T>) * factor[v];
  }
  for (int j = 0; j < block.keys; ++j) {
    ATTEST_UNROLL for (int v = 0; v < N; ++v) {
      T* at = block.scores + j * ld + v * lanes<T>;
      const Vec<T> weight = exp2_of_product(load(at) - peak[v], exponent);
      sum[v] += weight;
      store<T>(at, weight);
    }
  }
  ATTEST_UNROLL for (int v = 0; v < N; ++v) store<T>(group.sum + v * lanes<T>, sum[v]);
}

/// Dropout: weights not kept become 0, the others grow. Sums above are of all weights.
template <int N, class T>
ATTEST_INLINE void drop(const Group<T>& group, const KeyBlock<T>& block, T scale) {
  constexpr int ld = N * lanes<T>;
  for (int j = 0; j < block.keys; ++j) {
    for (int v = 0; v < N; ++v) {
      const auto shift = static_cast<unsigned>(group.first_row + v * lanes<T>);
      T* at = block.scores + j * ld + v * lanes<T>;
      const Vec<T> weight = load(at) * broadcast(scale);
      store<T>(at, select(lanes_of_bits<T>(block.kept[j] >> shift), weight, Vec<T>{}));
    }
  }
}

/// Step 4.
template <int N, class T>
ATTEST_INLINE void mix(const Group<T>& group, const KeyBlock<T>& block, int E,
                       const Vec<T>* factor) {
  constexpr int ld = N * lanes<T>;
  for_each_tile<N>(
      E, [&]<int R>(int at) __attribute__((always_inline)) {
        Tile<R, N, T> tile;
        tile.load_scaled(group.output + at * ld, ld, factor);
        tile.multiply(block.value.data + at, 1, block.value.row, block.scores, ld, block.keys);
        tile.save(group.output + at * ld, ld);
      });
}

template <int N, class T>
[[gnu::noinline]] void step(const Group<T>& group, const KeyBlock<T>& block,
                            const ForwardBlock<T>& task) {
  Vec<T> largest[N];
  Vec<T> factor[N];
  score<N>(group, block, task.D, largest);
  modify<N>(group, block, task, largest);
  weigh<N>(group, block, largest, broadcast(task.modify.exponent), factor);
  if (block.kept != nullptr) drop<N>(group, block, task.modify.dropout_scale);
  mix<N>(group, block, task.E, factor);
}

template <class T>
void step_any(const Group<T>& group, const KeyBlock<T>& block, const ForwardBlock<T>& task) {
  if constexpr (most_vectors == 4) {
    if (group.vectors == 4) return step<4>(group, block, task);
    if (group.vectors == 3) return step<3>(group, block, task);
  }
  if (group.vectors == 2) return step<2>(group, block, task);
  step<1>(group, block, task);
}

/// A hidden value that is not finite must not meet a weight of 0. If the block has such values they
/// are replaced by zeros in a copy, and each is then given to the rows that see it, one by one.
template <class T>
bool has_value_to_guard(const KeyBlock<T>& block, int E) {
  for (int j = 0; j < block.keys; ++j) {
    const T* row = block.value.data + j * block.value.row;
    T zero = 0;
    for (int e = 0; e < E; ++e) zero += row[e] * T(0);
    if (!(zero == 0)) return true;
  }
  return false;
}

template <class T>
Rows<T> finite_copy(const Rows<T>& value, int keys, int E, T* room) {
  for (int j = 0; j < keys; ++j) {
    for (int e = 0; e < E; ++e) {
      const T number = value.data[j * value.row + e];
      room[j * E + e] = number - number == 0 ? number : T(0);
    }
  }
  return {room, E};
}

template <class T>
void add_guarded(const Group<T>& group, const KeyBlock<T>& block, const Rows<T>& value,
                 const ForwardBlock<T>& task) {
  const int ld = group.vectors * lanes<T>;
  for (int j = 0; j < block.keys; ++j) {
    for (int e = 0; e < task.E; ++e) {
      const T number = value.data[j * value.row + e];
      if (number - number == 0) continue;
      for (int lane = 0; lane < ld && group.first_row + lane < task.rows; ++lane) {
        const T weight = block.scores[j * ld + lane];
        const auto row = static_cast<unsigned>(group.first_row + lane);
        const bool hidden = block.mask != nullptr && ((block.mask->seen[j] >> row) & 1U) == 0;
        if (hidden || (weight == 0 && task.modify.value_guard)) continue;
        group.output[e * ld + lane] += weight * number;
      }
    }
  }
}

template <class T>
void all_groups(Group<T>* groups, int count, KeyBlock<T>& block, const ForwardBlock<T>& task,
                T* guard_room) {
  const bool guard =
      (block.mask != nullptr || task.modify.value_guard) && has_value_to_guard(block, task.E);
  const Rows<T> value = block.value;
  if (guard) {
    block.value = finite_copy(value, block.keys, task.E, guard_room);
  }
  for (int g = 0; g < count; ++g) {
    step_any(groups[g], block, task);
    if (guard) add_guarded(groups[g], block, value, task);
  }
}

template <class T>
int make_groups(Group<T>* groups, const ForwardBlock<T>& task, T* scratch) {
  constexpr int W = lanes<T>;
  const int vectors = (task.rows + W - 1) / W;
  int count = 0;
  for (int v = 0; v < vectors; v += most_vectors) {
    Group<T>& group = groups[count++];
    group.vectors = vectors - v < most_vectors ? vectors - v : most_vectors;
    group.first_row = v * W;
    const int ld = group.vectors * W;
    const int rows = task.rows - group.first_row < ld ? task.rows - group.first_row : ld;
    group.query = scratch;
    group.output = group.query + ld * task.D;
    group.peak = group.output + ld * task.E;
    group.sum = group.peak + ld;
    scratch = group.sum + ld;
    rows_into_lanes<T>(group.query, ld, task.query + group.first_row, task.storage, task.query_step,
                       rows, task.D, task.modify.query_factor);
    for (int k = 0; k < ld * task.E; ++k) group.output[k] = 0;
    for (int k = 0; k < ld; ++k) {
      group.peak[k] = minus_infinity<T>;
      group.sum[k] = 0;
    }
  }
  return count;
}

/// The end of a group: the sink joins, sums divide, results leave. Gives the rows that saw nothing.
template <class T>
std::uint64_t finish(const Group<T>& group, const ForwardBlock<T>& task) {
  constexpr int W = lanes<T>;
  constexpr T ln2 = T(0.69314718055994530942);
  const Vec<T> exponent = broadcast(task.modify.exponent);
  const int ld = group.vectors * W;
  std::uint64_t empty = 0;
  for (int v = 0; v < group.vectors; ++v) {
    Vec<T> peak = load(group.peak + v * W);
    Vec<T> sum = load(group.sum + v * W);
    const auto nothing = (peak == broadcast(minus_infinity<T>)) & (sum == Vec<T>{});
    Vec<T> factor = broadcast(T(1));
    if (task.sink != nullptr) {
      Vec<T> sink{};
      for (int lane = 0; lane < W && group.first_row + v * W + lane < task.rows; ++lane) {
        sink[lane] = task.sink[group.first_row + v * W + lane];
      }
      const Vec<T> top = larger(peak, sink);
      factor = exp2_of_product(peak - top, exponent);
      sum = fma(sum, factor, exp2_of_product(sink - top, exponent));
      peak = top;
    }
    const Vec<T> denominator = select(nothing, broadcast(T(1)), sum);
    const Vec<T> inverse = factor / denominator;
    const T filler = task.nan_if_empty ? T(__builtin_nan("")) : T(0);
    for (int e = 0; e < task.E; ++e) {
      T* at = group.output + e * ld + v * W;
      store<T>(at, select(nothing, broadcast(filler), load(at) * inverse));
    }
    Vec<T> lse =
        fma(log2_positive(denominator), broadcast(ln2), peak * broadcast(task.modify.peak_factor));
    // log2_positive takes numbers alone: a sum that is none decides by itself.
    lse = select((denominator - denominator) == Vec<T>{}, lse, denominator);
    store<T>(group.peak + v * W, select(nothing, broadcast(minus_infinity<T>), lse));
    for (int lane = 0; lane < W && group.first_row + v * W + lane < task.rows; ++lane) {
      if (nothing[lane] == 0) continue;
      empty |= std::uint64_t{1} << static_cast<unsigned>(group.first_row + v * W + lane);
    }
  }
  for (int lane = 0; lane < ld && group.first_row + lane < task.rows; ++lane) {
    const int row = group.first_row + lane;
    if (task.log_sum_exp != nullptr) task.log_sum_exp[row] = group.peak[lane];
    for (int e = 0; e < task.E; ++e) {
      write_number<T>(task.output[row], task.storage, e * task.output_step,
                      group.output[e * ld + lane]);
    }
  }
  return empty;
}

template <class T>
std::uint64_t forward(const ForwardBlock<T>& task) {
  Group<T> groups[block_rows / lanes<T> / most_vectors + 1];
  const int count = make_groups(groups, task, task.scratch);
  T* scores = task.scratch + block_rows * (task.D + task.E + 2);
  T* key_room = scores + block_rows * block_keys;
  T* value_room = key_room + block_keys * task.D;
  KeySpan span = span_of(task);
  BlockMask mask;
  std::uint64_t kept[block_keys];
  while (span.begin < span.end) {
    const NextKeys next = take_keys(span, block_keys);
    KeyBlock<T> block;
    block.begin = next.begin;
    block.keys = next.keys;
    make_mask(mask, task, block.begin, block.keys);
    if (!mask.whole && mask.none) continue;
    block.mask = mask.whole ? nullptr : &mask;
    block.key = rows_of(task.key, task.storage, block.begin, block.keys, task.D, key_room);
    block.value = rows_of(task.value, task.storage, block.begin, block.keys, task.E, value_room);
    block.scores = scores;
    if (task.modify.dropout != nullptr) {
      kept_weights(kept, task.modify, task.rows, block.begin, block.keys);
      block.kept = kept;
    }
    all_groups(groups, count, block, task, value_room + block_keys * task.E);
  }
  std::uint64_t empty = 0;
  for (int g = 0; g < count; ++g) empty |= finish(groups[g], task);
  return empty;
}

}  // namespace

ForwardTable forward_table() { return {.f32 = forward<float>, .f64 = forward<double>}; }

}  // namespace attest::kernels::ATTEST_ISA
