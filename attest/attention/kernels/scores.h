// SPDX-License-Identifier: MIT
#pragma once

#include "attest/attention/kernels/memory.h"
#include "attest/linalg/kernels/exp2.h"

/// Softcap, bias and ALiBi on a block of scores that lies with rows in lanes.
namespace attest::kernels::ATTEST_ISA {

template <class T>
ATTEST_INLINE bool changes_scores(const Modifiers<T>& modify) {
  return modify.softcap != 0 || modify.bias != nullptr || modify.alibi_slope != nullptr;
}

/// Up to a register of rows: what is added to their scores.
template <class T>
class AddedToScores {
 public:
  AddedToScores(const Modifiers<T>& modify, int first_row, int rows, std::int64_t begin)
      : modify_(modify), first_(first_row), begin_(begin) {
    const int rest = rows - first_row < 0 ? 0 : rows - first_row;
    rows_ = rest < lanes<T> ? rest : lanes<T>;
    if (modify.alibi_slope == nullptr) return;
    slope_ = load_first(modify.alibi_slope + first_row, rows_);
    for (int lane = 0; lane < rows_; ++lane) {
      const std::int64_t distance = begin - modify.position[first_row + lane];
      constexpr std::int64_t most = sizeof(T) == 4 ? INT32_MAX - block_keys : INT64_MAX / 2;
      far_ |= distance > most || distance < -most;
      distance_[lane] = static_cast<typename VecTypes<T>::Integer>(distance);
    }
  }

  /// use(j, bias − slope·distance) for keys begin + j, j from 0; zeros in the lanes beyond the rows,
  /// unless all rows have one bias.
  template <class Use>
  ATTEST_INLINE void for_each_key(int keys, Use use) const {
    const auto number = [&](std::int64_t j) {
      return read_number<T>(modify_.bias[first_], modify_.bias_storage,
                            (begin_ + j) * modify_.bias_step);
    };
    if (modify_.bias == nullptr || rows_ == 0) {
      for (int j = 0; j < keys; ++j) use(j, less_distance(j, Vec<T>{}));
    } else if (rows_share_bias()) {
      for (int j = 0; j < keys; ++j) use(j, less_distance(j, broadcast(number(j))));
    } else {
      for_each_bias(
          keys, [&](int j, Vec<T> bias)
                    __attribute__((always_inline)) { use(j, less_distance(j, bias)); });
    }
  }

 private:
  [[nodiscard]] bool rows_share_bias() const {
    for (int r = 1; r < rows_; ++r) {
      if (modify_.bias[first_ + r] != modify_.bias[first_]) return false;
    }
    return true;
  }

  template <class Use>
  ATTEST_INLINE void for_each_bias(int keys, Use use) const {
    const std::int64_t step = modify_.bias_step;
    const void* from[lanes<T>];
    for (int r = 0; r < rows_; ++r) {
      from[r] = element(modify_.bias[first_ + r], modify_.bias_storage, begin_ * step);
    }
    if (step != 0) {
      return columns_of_rows<T>(from, modify_.bias_storage, step, rows_, keys, use);
    }
    columns_of_rows<T>(
        from, modify_.bias_storage, 0, rows_,
        1, [&](int, Vec<T> bias) __attribute__((always_inline)) {
          for (int j = 0; j < keys; ++j) use(j, bias);
        });
  }

  ATTEST_INLINE Vec<T> less_distance(int j, Vec<T> sum) const {
    if (modify_.alibi_slope == nullptr) return sum;
    if (far_) return less_far_distance(j, sum);
    const Lanes<T> signed_distance =
        distance_ + broadcast_integer<T>(static_cast<typename VecTypes<T>::Integer>(j));
    const Lanes<T> distance =
        select(signed_distance < 0, Lanes<T>{} - signed_distance, signed_distance);
    return sum - slope_ * __builtin_convertvector(distance, Vec<T>);
  }
  [[nodiscard]] Vec<T> less_far_distance(int j, Vec<T> sum) const {
    T product[lanes<T>] = {};
    for (int lane = 0; lane < rows_; ++lane) {
      const std::int64_t distance = begin_ + j - modify_.position[first_ + lane];
      product[lane] =
          modify_.alibi_slope[first_ + lane] * static_cast<T>(distance < 0 ? -distance : distance);
    }
    return sum - load(product);
  }

  const Modifiers<T>& modify_;
  int first_;
  int rows_ = 0;
  std::int64_t begin_;
  Vec<T> slope_{};
  Lanes<T> distance_{};  // of key `begin`
  bool far_ = false;     // a distance that Lanes<T> cannot hold
};

/// scores ← c·tanh(scale/c·scores) + bias − slope·distance, or scale·scores + … without a softcap. A
/// bias of −∞ gives −∞, whatever the score.
///
/// Element (j, lane) of the N registers of rows is scores[j·ld + lane]. With `slope` the derivative of
/// the softcap, 1 − tanh², is left there.
template <int N, class T>
inline void change_scores(T* scores, int ld, const Modifiers<T>& modify, int first_row, int rows,
                          std::int64_t begin, int keys, T* slope = nullptr) {
  const Vec<T> nothing = broadcast(-T(__builtin_inf()));
  const Vec<T> factor = broadcast(modify.softcap != 0 ? modify.softcap : modify.scale);
  for (int v = 0; v < N * lanes<T>; v += lanes<T>) {
    const AddedToScores<T> added(modify, first_row + v, rows, begin);
    added.for_each_key(
        keys, [&](int j, Vec<T> add) __attribute__((always_inline)) {
          T* at = scores + j * ld + v;
          Vec<T> s = load(at);
          if (modify.softcap != 0) {
            s = tanh_of(s * broadcast(modify.capped_scale));
            if (slope != nullptr) store<T>(slope + j * ld + v, fma(-s, s, broadcast(T(1))));
          }
          s = fma(s, factor, add);
          store<T>(at, select(add == nothing, add, s));
        });
  }
}

/// The weights that scores had in the forward pass: exp(peak_factor·scores − log_sum). A bias of −∞
/// hides, also where log_sum is none.
template <class T>
ATTEST_INLINE Vec<T> weights_again(Vec<T> scores, Vec<T> log_sum, const Modifiers<T>& modify) {
  constexpr T log2_e = T(1.44269504088896340736);
  const Vec<T> weights =
      exp2_of_product(scores * broadcast(modify.peak_factor) - log_sum, broadcast(log2_e));
  if (modify.bias == nullptr) return weights;
  return select(scores == broadcast(T(-__builtin_inf())), Vec<T>{}, weights);
}

}  // namespace attest::kernels::ATTEST_ISA
