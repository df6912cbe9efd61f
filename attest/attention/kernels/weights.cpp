// SPDX-License-Identifier: MIT
#include "attest/attention/kernels/weights.h"

#include "attest/attention/kernels/block_mask.h"
#include "attest/attention/kernels/scores.h"
#include "attest/attention/kernels/tiles.h"

/// Rows of weights, from what the forward pass left:
///
///     for each block of 64 keys (cut at absolute multiples of 64):
///       1  scores[j, row]  = Σ_d key[j, d]·query[d, row]; softcap, bias, ALiBi
///       2  weights[j, row] = exp(scores − log_sum_exp), 0 where hidden; dropout
///       3  weights leave, turned
namespace attest::kernels::ATTEST_ISA {
namespace {

/// A block of rows and one of keys. ld = rows, padded to whole registers.
template <class T>
struct Place : VisibleKeys {
  int ld = 0;
  const T* query = nullptr;  // [D][ld], times query_factor
  T* weights = nullptr;      // [keys][ld]
  Rows<T> key{};
};

/// Step 1 for N registers of rows, the first of them row `first`.
template <int N, class T>
[[gnu::noinline]] void score(const Place<T>& place, const WeightsBlock<T>& task, int first) {
  for_each_tile<N>(
      place.keys, [&]<int R>(int at) __attribute__((always_inline)) {
        Tile<R, N, T> tile;
        tile.clear();
        tile.multiply(place.key.data + at * place.key.row, place.key.row, 1, place.query + first,
                      place.ld, task.D);
        tile.save(place.weights + at * place.ld + first, place.ld);
      });
  if (!changes_scores(task.modify)) return;
  change_scores<N, T>(place.weights + first, place.ld, task.modify, first, task.rows, place.begin,
                      place.keys);
}

/// Steps 2 and 3 for one register of rows.
template <class T>
void weigh(const Place<T>& place, const WeightsBlock<T>& task, int first) {
  const int rows = task.rows - first < lanes<T> ? task.rows - first : lanes<T>;
  const Vec<T> growth = broadcast(task.modify.dropout_scale);
  const auto shift = static_cast<unsigned>(first);
  Vec<T> log_sum = load_first(task.log_sum_exp + first, rows);
  // A row that saw nothing has no weights.
  const T infinity = T(__builtin_inf());
  log_sum = select(log_sum == broadcast(-infinity), broadcast(infinity), log_sum);
  for (int j = 0; j < place.keys; ++j) {
    T* at = place.weights + j * place.ld + first;
    Vec<T> weight = weights_again(load(at), log_sum, task.modify);
    if (place.kept != nullptr) {
      weight = select(lanes_of_bits<T>(place.kept[j] >> shift), weight * growth, Vec<T>{});
    }
    if (place.mask != nullptr) {
      weight = select(lanes_of_bits<T>(place.mask->seen[j] >> shift), weight, Vec<T>{});
    }
    store<T>(at, weight);
  }
  turn_lanes<T>(
      place.weights + first, place.ld, rows,
      place.keys, [&](int r, int j, Vec<T> numbers, auto part) __attribute__((always_inline)) {
        Io<T>::put(task.weights[first + r] + place.begin + j, numbers, part);
      });
}

template <class T>
void weights(const WeightsBlock<T>& task) {
  constexpr int W = lanes<T>;
  const int ld = (task.rows + W - 1) / W * W;
  T* const query = task.scratch;
  T* const weights = query + block_rows * task.D;
  T* const key_room = weights + block_rows * weights_keys;
  rows_into_lanes<T>(query, ld, task.query, task.storage, task.query_step, task.rows, task.D,
                     task.modify.query_factor);
  for_each_key_block(task, span_of(task), weights_keys, [&](const VisibleKeys& visible) {
    Place<T> place{visible, ld, query, weights};
    place.key = rows_of(task.key, task.storage, place.begin, place.keys, task.D, key_room);
    for_each_group<T>(ld, [&]<int N>(int first) { score<N>(place, task, first); });
    for (int first = 0; first < ld; first += W) weigh(place, task, first);
  });
}

}  // namespace

WeightsTable weights_table() { return {.f32 = weights<float>, .f64 = weights<double>}; }

}  // namespace attest::kernels::ATTEST_ISA
