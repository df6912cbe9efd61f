// SPDX-License-Identifier: MIT
#pragma once

#include "attest/attention/kernels/memory.h"

/// Few rows, many keys: how numbers are read and multiplied. A class tells it, called `Stored`:
///
///     Number, QueryNumber     how keys and values, and queries, are stored
///     Register                what products are made of; `step` numbers of a row
///     place_query             fills a row of them, zeros beyond the last
///     rows_at                 rows of keys or values: in place, or a copy
///     read, read_first        a register of a row, or its first numbers and zeros
///     multiply(q, k, sum)     the sum plus the products, in f32 or f64
///     product_factor          of sums of products, where queries could not carry it
///     keys_at_once            rows of values that meet in one register, through `join` if two
///     column_of               which column the place in a row of outputs belongs to
///     place_weights           weights as `multiply` takes them; `weights_at` reads them, `weight` one
namespace attest::kernels::ATTEST_ISA {

template <class T>
constexpr T no_score = -__builtin_inf();

/// Products of T, however the numbers are stored.
template <class T>
struct OfNumbers {
  using QueryNumber = T;
  using Register = Vec<T>;
  static constexpr int step = lanes<T>;
  static constexpr int keys_at_once = 1;
  static void place_query(T* to, const ForwardBlock<T>& task, int r) {
    for (int d = 0; d < decode_row(task.D); ++d) {
      to[d] = d < task.D ? read_number<T>(task.query[r], task.storage, d * task.query_step) *
                               task.modify.query_factor
                         : T(0);
    }
  }
  ATTEST_INLINE static Lanes<T> not_finite(Vec<T> x) { return x - x != Vec<T>{}; }
  ATTEST_INLINE static Vec<T> multiply(Vec<T> a, Vec<T> b, Vec<T> sum) { return fma(a, b, sum); }
  static T product_factor(const Modifiers<T>&) { return 1; }
  static constexpr int column_of(int place) { return place; }
  static void place_weights(T*, int) {}
  static T weight(const T* weights, int j) { return weights[j]; }
  ATTEST_INLINE static Vec<T> weights_at(const T* weights, int j) { return broadcast(weights[j]); }
};

/// Numbers of a storage type, widened as they are read.
template <class S>
struct Widened : OfNumbers<Calculated<S>> {
  using T = Calculated<S>;
  using Number = S;
  ATTEST_INLINE static Vec<T> read(const S* from) { return Io<S>::get(from, Whole<T>{}); }
  ATTEST_INLINE static Vec<T> read_first(const S* from, int count) {
    return Io<S>::get(from, Part<T>{count});
  }
  static void place_query(T* to, const ForwardBlock<T>& task, int r) {
    if (task.query_step != 1) return OfNumbers<T>::place_query(to, task, r);
    const S* from = static_cast<const S*>(task.query[r]);
    const int row = static_cast<int>(decode_row(task.D));
    const Vec<T> factor = broadcast(task.modify.query_factor);
    int d = 0;
    for (; d + lanes<T> <= task.D; d += lanes<T>) store<T>(to + d, read(from + d) * factor);
    if (d < task.D) {
      store<T>(to + d, read_first(from + d, task.D - d) * factor);
      d += lanes<T>;
    }
    for (; d < row; d += lanes<T>) store<T>(to + d, Vec<T>{});
  }
  static T number(S from) { return read_first(&from, 1)[0]; }
  /// Copies are only made of what is not widened; `decode` sees to that.
  static Rows<S> rows_at(const Matrix& matrix, Storage storage, std::int64_t first, int count,
                         int columns, S* room) {
    if constexpr (__is_same(S, T)) {
      return rows_of(matrix, storage, first, count, columns, room);
    } else {
      return {static_cast<const S*>(matrix.data) + first * matrix.row, matrix.row};
    }
  }
};

}  // namespace attest::kernels::ATTEST_ISA
