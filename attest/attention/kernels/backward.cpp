// SPDX-License-Identifier: MIT
#include "attest/attention/kernels/backward.h"

#include "attest/attention/kernels/block_mask.h"
#include "attest/attention/kernels/scores.h"
#include "attest/attention/kernels/tiles.h"

/// The backward pass of one block of rows: Dao et al. 2022, Alg. 4, rows outside, keys inside.
///
///     for each block of 64 keys (cut at absolute multiples of 64):
///       1  weights[j, row]   = exp(scores − log_sum_exp)             as forward, from log_sum_exp
///       2  d_weights[j, row] = Σ_e value[j, e]·d_output[e, row]
///          d_scores          = weights·(d_weights − delta + d_log_sum_exp)
///       3  d_value[j, e]    += Σ_row kept weights[j, row]·d_output[row, e]        in turn
///          d_key[j, d]      += Σ_row d_scores[j, row]·(scale·query)[row, d]       in turn
///       4  d_query[d, row]  += Σ_j key[j, d]·d_scores[j, row]
///
/// Bytes moved a block of 64 rows: keys and values once, the gradients of both once in and out.
namespace attest::kernels::ATTEST_ISA {
namespace {

/// What a block of rows keeps while the keys pass by. ld = rows, padded to whole registers.
template <class T>
struct Kept {
  int ld = 0;
  T* query = nullptr;         // [D][ld], times query_factor
  T* d_output = nullptr;      // [E][ld]
  T* query_row = nullptr;     // [rows][padded D], times scale
  T* d_output_row = nullptr;  // [rows][padded E]
  T* d_query = nullptr;       // [D][ld], without scale
  T* log_sum = nullptr;       // [ld]; +∞ where a row has no weights
  T* delta = nullptr;         // [ld], delta − d_log_sum_exp
  T* weights = nullptr;       // [keys][ld]
  T* d_scores = nullptr;      // [keys][ld]
  T* slope = nullptr;         // [keys][ld], of the softcap
  T* key_room = nullptr;
  T* value_room = nullptr;
  bool rows_finite = true;  // queries and d_outputs hold numbers alone
};

template <class T>
struct KeyBlock : VisibleKeys {
  Rows<T> key{};
  Rows<T> value{};
};

template <class T>
constexpr T infinity = __builtin_inf();
template <class T>
constexpr T log2_e = T(1.44269504088896340736);

/// Steps 1 and 2 for N registers of rows, the first of them row `first`.
template <int N, class T>
[[gnu::noinline]] void weigh(const Kept<T>& kept, const KeyBlock<T>& block,
                             const BackwardBlock<T>& task, int first) {
  const int ld = kept.ld;
  for_each_tile<N>(
      block.keys, [&]<int R>(int at) __attribute__((always_inline)) {
        Tile<R, N, T> tile;
        tile.clear();
        tile.multiply(block.key.data + at * block.key.row, block.key.row, 1, kept.query + first, ld,
                      task.D);
        tile.save(kept.weights + at * ld + first, ld);
      });
  if (changes_scores(task.modify)) {
    change_scores<N, T>(kept.weights + first, ld, task.modify, first, task.rows, block.begin,
                        block.keys, kept.slope + first);
  }
  for_each_tile<N>(
      block.keys, [&]<int R>(int at) __attribute__((always_inline)) {
        Tile<R, N, T> tile;
        tile.clear();
        tile.multiply(block.value.data + at * block.value.row, block.value.row, 1,
                      kept.d_output + first, ld, task.E);
        tile.save(kept.d_scores + at * ld + first, ld);
      });
}

/// The elementwise part: scores and d_weights become weights and d_scores.
template <class T>
[[gnu::noinline]] void differentiate(const Kept<T>& kept, const KeyBlock<T>& block,
                                     const BackwardBlock<T>& task) {
  const bool guard = block.mask != nullptr || task.modify.value_guard;
  for (int first = 0; first < kept.ld; first += lanes<T>) {
    const Vec<T> log_sum = load(kept.log_sum + first);
    const Vec<T> delta = load(kept.delta + first);
    const auto shift = static_cast<unsigned>(first);
    for (int j = 0; j < block.keys; ++j) {
      T* weight_at = kept.weights + j * kept.ld + first;
      T* score_at = kept.d_scores + j * kept.ld + first;
      Vec<T> weight = weights_again(load(weight_at), log_sum, task.modify);
      if (block.mask != nullptr) {
        weight = select(lanes_of_bits<T>(block.mask->seen[j] >> shift), weight, Vec<T>{});
      }
      Vec<T> d_weight = load(score_at);
      Vec<T> used = weight;
      if (block.kept != nullptr) {
        const auto keep = lanes_of_bits<T>(block.kept[j] >> shift);
        const Vec<T> grown = broadcast(task.modify.dropout_scale);
        used = select(keep, weight * grown, Vec<T>{});
        d_weight = select(keep, d_weight * grown, Vec<T>{});
      }
      Vec<T> d_score = weight * (d_weight - delta);
      if (guard) d_score = select(weight == Vec<T>{}, Vec<T>{}, d_score);
      store<T>(weight_at, used);
      store<T>(score_at, d_score);
    }
  }
}

/// to[j, column] += Σ_row left[j, row]·right[row, column] for all keys of a block.
template <int N, class T>
[[gnu::noinline]] void add_to_keys(T* to, std::int64_t to_row, const T* left, int ld,
                                   const T* right, int right_row, const int rows, int keys) {
  for_each_tile<N>(
      keys, [&]<int R>(int at) __attribute__((always_inline)) {
        Tile<R, N, T> tile;
        T* place = to + at * to_row;
        tile.load(place, to_row);
        tile.multiply(left + at * ld, ld, 1, right, right_row, rows);
        tile.save(place, to_row);
      });
}

template <class T>
void add_columns(T* to, std::int64_t to_row, const T* left, int ld, const T* right, int columns,
                 int rows, int keys) {
  constexpr int W = lanes<T>;
  const int right_row = static_cast<int>(padded<T>(columns));
  const int vectors = (columns + W - 1) / W;
  int v = 0;
  for (; v + most_vectors <= vectors; v += most_vectors) {
    add_to_keys<most_vectors>(to + v * W, to_row, left, ld, right + v * W, right_row, rows, keys);
  }
  const int rest = vectors - v;
  if constexpr (most_vectors == 4) {
    if (rest == 3) {
      add_to_keys<3>(to + v * W, to_row, left, ld, right + v * W, right_row, rows, keys);
    }
    if (rest == 2) {
      add_to_keys<2>(to + v * W, to_row, left, ld, right + v * W, right_row, rows, keys);
    }
  }
  if (rest == 1) {
    add_to_keys<1>(to + v * W, to_row, left, ld, right + v * W, right_row, rows, keys);
  }
}

/// Step 4 for N registers of rows.
template <int N, class T>
[[gnu::noinline]] void add_to_queries(const Kept<T>& kept, const KeyBlock<T>& block, int D,
                                      int first) {
  for_each_tile<N>(
      D, [&]<int R>(int at) __attribute__((always_inline)) {
        Tile<R, N, T> tile;
        T* place = kept.d_query + at * kept.ld + first;
        tile.load(place, kept.ld);
        tile.multiply(block.key.data + at, 1, block.key.row, kept.d_scores + first, kept.ld,
                      block.keys);
        tile.save(place, kept.ld);
      });
}

/// One multiply-add of one lane, as the registers do it.
template <class T>
ATTEST_INLINE T fma_one(T a, T b, T c) {
  return fma(broadcast(a), broadcast(b), broadcast(c))[0];
}

/// Steps 3 and 4 number by number, leaving out every product with a coefficient of 0: what is hidden
/// must not turn 0·NaN into NaN. The sums run in the same order, so other results keep their bits.
template <class T>
void add_carefully(const Kept<T>& kept, const KeyBlock<T>& block, const BackwardBlock<T>& task) {
  const int d_row = static_cast<int>(padded<T>(task.D));
  const int e_row = static_cast<int>(padded<T>(task.E));
  for (int j = 0; j < block.keys; ++j) {
    T* d_value = task.d_value + (block.begin + j) * task.d_value_row;
    T* d_key = task.d_key + (block.begin + j) * task.d_key_row;
    for (int r = 0; r < task.rows; ++r) {
      const T weight = kept.weights[j * kept.ld + r];
      const T d_score = kept.d_scores[j * kept.ld + r];
      for (int e = 0; e < task.E && !(weight == 0); ++e) {
        d_value[e] = fma_one(weight, kept.d_output_row[r * e_row + e], d_value[e]);
      }
      for (int d = 0; d < task.D && !(d_score == 0); ++d) {
        d_key[d] = fma_one(d_score, kept.query_row[r * d_row + d], d_key[d]);
        T* d_query = kept.d_query + d * kept.ld + r;
        *d_query = fma_one(block.key.data[j * block.key.row + d], d_score, *d_query);
      }
    }
  }
}

template <class T>
bool all_finite(const Rows<T>& rows, int count, int columns) {
  for (int r = 0; r < count; ++r) {
    if (!row_is_finite(rows.data + r * rows.row, columns)) return false;
  }
  return true;
}

/// Rows may share a bias: each element is added to in the order of the rows.
template <class T>
void add_to_bias(const Kept<T>& kept, const KeyBlock<T>& block, const BackwardBlock<T>& task) {
  if (task.d_bias_step == 1) {
    for (int first = 0; first < task.rows; first += lanes<T>) {
      const int count = task.rows - first < lanes<T> ? task.rows - first : lanes<T>;
      turn_lanes<T>(
          kept.d_scores + first, kept.ld, count,
          block.keys, [&](int r, int j, Vec<T> d_scores, auto part) __attribute__((always_inline)) {
            T* at = task.d_bias[first + r] + block.begin + j;
            Io<T>::put(at, Io<T>::get(at, part) + d_scores, part);
          });
    }
    return;
  }
  for (int r = 0; r < task.rows; ++r) {
    for (int j = 0; j < block.keys; ++j) {
      task.d_bias[r][(block.begin + j) * task.d_bias_step] += kept.d_scores[j * kept.ld + r];
    }
  }
}

template <class T>
void apply_slope(const Kept<T>& kept, int keys) {
  for (int k = 0; k < keys * kept.ld; k += lanes<T>) {
    const Vec<T> d_score = load(kept.d_scores + k);
    // A hidden pair stays exactly 0, whatever its slope is.
    store<T>(kept.d_scores + k,
             select(d_score == Vec<T>{}, d_score, d_score * load(kept.slope + k)));
  }
}

template <class T>
void step(const Kept<T>& kept, const KeyBlock<T>& block, const BackwardBlock<T>& task) {
  for_each_group<T>(kept.ld, [&]<int N>(int first) { weigh<N>(kept, block, task, first); });
  differentiate(kept, block, task);
  const std::int64_t end = block.begin + block.keys;
  const bool hides = block.mask != nullptr || task.modify.value_guard;
  const bool careful = hides && !(kept.rows_finite && all_finite(block.key, block.keys, task.D));
  task.await_turn(task.context, block.begin, end);
  if (task.d_bias != nullptr) add_to_bias(kept, block, task);
  if (task.modify.softcap != 0) apply_slope(kept, block.keys);
  if (careful) {
    add_carefully(kept, block, task);
  } else {
    add_columns(task.d_value + block.begin * task.d_value_row, task.d_value_row, kept.weights,
                kept.ld, kept.d_output_row, task.E, task.rows, block.keys);
    add_columns(task.d_key + block.begin * task.d_key_row, task.d_key_row, kept.d_scores, kept.ld,
                kept.query_row, task.D, task.rows, block.keys);
  }
  task.give_turn(task.context, end);
  if (careful) return;
  for_each_group<T>(kept.ld,
                    [&]<int N>(int first) { add_to_queries<N>(kept, block, task.D, first); });
}

/// Rows from anywhere to rows side by side, padded with zeros; says whether all are numbers.
template <class T>
bool gather_rows(T* to, const void* const* from, Storage storage, std::int64_t step, int rows,
                 int columns, T factor) {
  const int row = static_cast<int>(padded<T>(columns));
  Vec<T> zero{};
  for (int r = 0; r < rows; ++r) {
    T* at = to + r * row;
    const bool turned = step == 1 && with_stored<T>(storage, [&]<class S>() {
                          const S* source = static_cast<const S*>(from[r]);
                          int c = 0;
                          for (; c + lanes<T> <= columns; c += lanes<T>) {
                            store<T>(at + c, Io<S>::get(source + c, Whole<T>{}) * factor);
                          }
                          if (c < columns)
                            store<T>(at + c, Io<S>::get(source + c, Part<T>{columns - c}) * factor);
                        });
    for (int c = 0; c < columns && !turned; ++c) {
      at[c] = read_number<T>(from[r], storage, c * step) * factor;
    }
    for (int c = columns; c < row; ++c) at[c] = 0;
    for (int c = 0; c < row; c += lanes<T>) zero += load(at + c) * T(0);
  }
  return !any(zero != Vec<T>{});
}

template <class T>
Kept<T> make_kept(const BackwardBlock<T>& task) {
  constexpr int W = lanes<T>;
  Kept<T> kept;
  kept.ld = (task.rows + W - 1) / W * W;
  const auto d_row = padded<T>(task.D);
  const auto e_row = padded<T>(task.E);
  kept.query = task.scratch;
  kept.d_output = kept.query + block_rows * task.D;
  kept.d_query = kept.d_output + block_rows * task.E;
  kept.query_row = kept.d_query + block_rows * task.D;
  kept.d_output_row = kept.query_row + block_rows * d_row;
  kept.weights = kept.d_output_row + block_rows * e_row;
  kept.d_scores = kept.weights + backward_keys * block_rows;
  kept.slope = kept.d_scores + backward_keys * block_rows;
  kept.log_sum = kept.slope + backward_keys * block_rows;
  kept.delta = kept.log_sum + block_rows;
  kept.key_room = kept.delta + block_rows;
  kept.value_room = kept.key_room + backward_keys * task.D;
  rows_into_lanes<T>(kept.query, kept.ld, task.query, task.storage, task.query_step, task.rows,
                     task.D, task.modify.query_factor);
  rows_into_lanes<T>(kept.d_output, kept.ld, task.d_output, task.storage, task.d_output_step,
                     task.rows, task.E, T(1));
  kept.rows_finite = gather_rows<T>(kept.query_row, task.query, task.storage, task.query_step,
                                    task.rows, task.D, task.modify.scale);
  kept.rows_finite &= gather_rows<T>(kept.d_output_row, task.d_output, task.storage,
                                     task.d_output_step, task.rows, task.E, T(1));
  for (int k = 0; k < task.D * kept.ld; ++k) kept.d_query[k] = 0;
  return kept;
}

/// delta[row] = Σ_e d_output[e, row]·output[row, e], each one chain of multiply-adds.
template <class T>
void sum_deltas(const Kept<T>& kept, const BackwardBlock<T>& task) {
  for (int r = 0; r < kept.ld; r += lanes<T>) {
    Vec<T> delta{};
    columns_of_rows<T>(
        task.output + r, task.storage, task.output_step,
        task.rows - r < lanes<T> ? task.rows - r : lanes<T>,
        task.E, [&](int e, Vec<T> output) __attribute__((always_inline)) {
          delta = fma(load(kept.d_output + e * kept.ld + r), output, delta);
        });
    store<T>(kept.delta + r, delta);
  }
}

/// delta and log_sum_exp of the rows; d_sink needs nothing else.
template <class T>
void prepare_rows(const Kept<T>& kept, const BackwardBlock<T>& task) {
  sum_deltas(kept, task);
  for (int r = 0; r < kept.ld; ++r) {
    T delta = kept.delta[r];
    kept.log_sum[r] = infinity<T>;
    kept.delta[r] = 0;
    if (r >= task.rows) continue;
    const T log_sum_exp = task.log_sum_exp[r];
    if (task.d_sink != nullptr) task.d_sink[r] = 0;
    if (log_sum_exp == -infinity<T>) continue;
    if (task.d_log_sum_exp != nullptr) delta -= task.d_log_sum_exp[r];
    kept.log_sum[r] = log_sum_exp;
    kept.delta[r] = delta;
    if (task.d_sink == nullptr) continue;
    const Vec<T> weight =
        exp2_of_product(broadcast(task.sink[r] - log_sum_exp), broadcast(log2_e<T>));
    task.d_sink[r] = -(weight[0] * delta);
  }
}

template <class T>
void write_queries(const Kept<T>& kept, const BackwardBlock<T>& task) {
  if (task.d_query == nullptr) return;
  lanes_into_rows<T>(task.d_query, task.storage, task.d_query_step, kept.d_query, kept.ld,
                     task.rows, task.D, task.modify.scale);
}

template <class T>
void backward(const BackwardBlock<T>& task) {
  const Kept<T> kept = make_kept(task);
  prepare_rows(kept, task);
  for_each_key_block(task, span_of(task), backward_keys, [&](const VisibleKeys& visible) {
    KeyBlock<T> block{visible};
    block.key = rows_of(task.key, task.storage, block.begin, block.keys, task.D, kept.key_room);
    block.value =
        rows_of(task.value, task.storage, block.begin, block.keys, task.E, kept.value_room);
    step(kept, block, task);
  });
  write_queries(kept, task);
}

}  // namespace

BackwardTable backward_table() { return {.f32 = backward<float>, .f64 = backward<double>}; }

}  // namespace attest::kernels::ATTEST_ISA
