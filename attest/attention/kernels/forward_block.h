// SPDX-License-Identifier: MIT
#pragma once

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
/// Steps 1 and 4 are products, which sets of instructions do in different ways. They are a class P:
///
///     Number               what scores, sums and outputs are
///     Query                what the queries are made of, P::query_numbers(D) for each row
///     Operands             keys and values of one block, and whether `guarded` values were taken out
///     group_vectors        registers of rows that are worked on together
///     output_numbers(E)    numbers of a row's output, those that are only padding included
///     own_scores           whether each group keeps scores of its own
///     key_step             keys whose products are summed in an order of their own: blocks begin at
///                          multiples of it, and scores end at one, in rows of −∞
///     keys_at_once         of so many keys step 3 hands the weights to save(at, weights)
///     begin(), end()       around all work of a block of rows
///     place_query(group, task, rows)
///     prepare(block, task, room)                    gives the operands
///     all_groups(groups, count, block, task)        steps 1 to 4
///     weight(group, j, lane)                        what was saved
///
/// Bytes moved: keys and values once a block of 64 rows; everything else stays in the first two
/// levels of cache.
namespace attest::kernels::ATTEST_ISA {

template <class T>
constexpr T minus_infinity = -__builtin_inf();

/// Up to P::group_vectors registers of rows, with all that belongs to them.
template <class P>
struct Group {
  using T = typename P::Number;
  int vectors = 0;
  int first_row = 0;
  typename P::Query* query = nullptr;  // [query_numbers(D)][vectors·W]
  T* scores = nullptr;                 // [padded keys][vectors·W], then weights
  T* output = nullptr;                 // [output_numbers(E)][vectors·W]
  T* peak = nullptr;                   // [vectors·W]
  T* sum = nullptr;                    // [vectors·W]
};

/// One block of keys, as the groups use it.
template <class P>
struct KeyBlock : VisibleKeys {
  using T = typename P::Number;
  typename P::Operands operands{};
  bool hides = false;  // by the mask or by weights of 0

  [[nodiscard]] int padded_keys() const {
    return (keys + P::key_step - 1) / P::key_step * P::key_step;
  }
};

/// Step 2, where there is anything to do.
template <int N, class P, class T = typename P::Number>
ATTEST_INLINE void modify(const Group<P>& group, const KeyBlock<P>& block,
                          const ForwardBlock<T>& task, Vec<T>* largest) {
  constexpr int ld = N * lanes<T>;
  if (changes_scores(task.modify)) {
    change_scores<N, T>(group.scores, ld, task.modify, group.first_row, task.rows, block.begin,
                        block.keys);
  } else if (block.mask == nullptr) {
    return;
  }
  for (int v = 0; v < N; ++v) {
    Vec<T> most = broadcast(minus_infinity<T>);
    const auto shift = static_cast<unsigned>(group.first_row + v * lanes<T>);
    for (int j = 0; j < block.keys; ++j) {
      T* at = group.scores + j * ld + v * lanes<T>;
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

/// Step 3: scores become weights; gives the factor of what was summed before. With dropout, weights
/// not kept become 0 and the others grow; the sums are of all weights. Calls between(j) on the way.
template <int N, bool dropping, class P, class T = typename P::Number, class Between>
ATTEST_INLINE void weigh(const Group<P>& group, const KeyBlock<P>& block,
                         const Modifiers<T>& modify, const Vec<T>* largest, Vec<T>* factor,
                         Between between) {
  constexpr int ld = N * lanes<T>;
  constexpr int at_once = P::keys_at_once;
  const Vec<T> exponent = broadcast(modify.exponent);
  const Vec<T> growth = broadcast(modify.dropout_scale);
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
  for (int j = 0; j < block.padded_keys(); j += at_once) {
    ATTEST_UNROLL for (int v = 0; v < N; ++v) {
      T* at = group.scores + j * ld + v * lanes<T>;
      Vec<T> weights[at_once];
      ATTEST_UNROLL for (int k = 0; k < at_once; ++k) {
        weights[k] = exp2_of_product(load(at + k * ld) - peak[v], exponent);
        sum[v] += weights[k];
        if constexpr (dropping) {
          const auto shift = static_cast<unsigned>(group.first_row + v * lanes<T>);
          const auto kept = lanes_of_bits<T>(block.kept[j + k] >> shift);
          weights[k] = select(kept, weights[k] * growth, Vec<T>{});
        }
      }
      P::save(at, weights);
    }
    between(j);
  }
  ATTEST_UNROLL for (int v = 0; v < N; ++v) store<T>(group.sum + v * lanes<T>, sum[v]);
}

template <int N, class P, class T = typename P::Number, class Between>
ATTEST_INLINE void weigh_any(const Group<P>& group, const KeyBlock<P>& block,
                             const Modifiers<T>& modify, const Vec<T>* largest, Vec<T>* factor,
                             Between between) {
  if (block.kept == nullptr) {
    weigh<N, false>(group, block, modify, largest, factor, between);
  } else {
    weigh<N, true>(group, block, modify, largest, factor, between);
  }
}

template <int N, class P, class T = typename P::Number>
[[gnu::noinline]] void step(const Group<P>& group, const KeyBlock<P>& block,
                            const ForwardBlock<T>& task) {
  Vec<T> largest[N];
  Vec<T> factor[N];
  P::template score<N>(group, block, task, largest);
  modify<N>(group, block, task, largest);
  weigh_any<N>(group, block, task.modify, largest, factor, [](int) {});
  P::template mix<N>(group, block, task, factor);
}

template <class P, class T = typename P::Number>
void step_any(const Group<P>& group, const KeyBlock<P>& block, const ForwardBlock<T>& task) {
  if constexpr (most_vectors == 4) {
    if (group.vectors == 4) return step<4>(group, block, task);
    if (group.vectors == 3) return step<3>(group, block, task);
  }
  if (group.vectors == 2) return step<2>(group, block, task);
  step<1>(group, block, task);
}

/// A hidden value that is not finite must not meet a weight of 0. If the block has such values they
/// are replaced by zeros in a copy, and each is then given to the rows that see it, one by one.
template <class P, class T = typename P::Number>
void add_guarded(const Group<P>& group, const KeyBlock<P>& block, const ForwardBlock<T>& task) {
  const int ld = group.vectors * lanes<T>;
  for (int j = 0; j < block.keys; ++j) {
    for (int e = 0; e < task.E; ++e) {
      const T number = read_number<T>(task.value.data, task.storage,
                                      (block.begin + j) * task.value.row + e * task.value.column);
      if (number - number == 0) continue;
      for (int lane = 0; lane < ld && group.first_row + lane < task.rows; ++lane) {
        const T weight = P::weight(group, j, lane);
        const auto row = static_cast<unsigned>(group.first_row + lane);
        const bool hidden = block.mask != nullptr && ((block.mask->seen[j] >> row) & 1U) == 0;
        if (hidden || (weight == 0 && task.modify.value_guard)) continue;
        group.output[e * ld + lane] += weight * number;
      }
    }
  }
}

/// Groups one after another, by P::score<N> and P::mix<N>.
template <class P, class T = typename P::Number>
void one_by_one(const Group<P>* groups, int count, const KeyBlock<P>& block,
                const ForwardBlock<T>& task) {
  for (int g = 0; g < count; ++g) {
    step_any(groups[g], block, task);
    if (block.operands.guarded) add_guarded(groups[g], block, task);
  }
}

template <class P, class T = typename P::Number>
int make_groups(Group<P>* groups, const ForwardBlock<T>& task, T* scratch) {
  constexpr int W = lanes<T>;
  const int vectors = (task.rows + W - 1) / W;
  int count = 0;
  T* const scores =
      scratch + block_rows * (P::query_numbers(task.D) + P::output_numbers(task.E) + 2);
  for (int v = 0; v < vectors; v += P::group_vectors) {
    Group<P>& group = groups[count++];
    group.vectors = vectors - v < P::group_vectors ? vectors - v : P::group_vectors;
    group.first_row = v * W;
    const int ld = group.vectors * W;
    group.query = reinterpret_cast<typename P::Query*>(scratch);
    group.output = scratch + ld * P::query_numbers(task.D);
    group.scores = scores + (P::own_scores ? group.first_row * block_keys : 0);
    group.peak = group.output + ld * P::output_numbers(task.E);
    group.sum = group.peak + ld;
    scratch = group.sum + ld;
    P::place_query(group, task,
                   task.rows - group.first_row < ld ? task.rows - group.first_row : ld);
    for (int k = 0; k < ld * P::output_numbers(task.E); ++k) group.output[k] = 0;
    for (int k = 0; k < ld; ++k) {
      group.peak[k] = minus_infinity<T>;
      group.sum[k] = 0;
    }
  }
  return count;
}

}  // namespace attest::kernels::ATTEST_ISA
