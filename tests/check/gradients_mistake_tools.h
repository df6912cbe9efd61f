// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <string>

#include "tests/check/gradients_program.h"

/// What mistakes in the tests' own program are written with.
namespace attest::test {

using Mine = Program<float>;

struct Made {
  std::string name;   ///< the table's name of what it does
  std::string after;  ///< the step after which it is made
  Mine::Step step;
};

inline double round_to(double x, DType type) {
  return type == DType::bf16 ? to_double(to_bfloat16(x)) : to_double(to_half(x));
}

/// Sum of p·d_p over the keys of a row, as a program has them at this moment.
inline float row_sum(const Mine& m, std::int64_t b, std::int64_t h, std::int64_t i, bool weighted) {
  float sum = 0;
  for (std::int64_t j = 0; j < m.S; ++j) {
    const std::size_t n = m.pair(b, h, i, j);
    if (m.seen[n]) sum += (weighted ? m.p[n] : 1) * m.d_p[n];
  }
  return sum;
}

inline void each_delta(Mine& m,
                       const std::function<float(std::int64_t, std::int64_t, std::int64_t)>& f) {
  m.each_row([&](std::int64_t b, std::int64_t h, std::int64_t i) {
    if (!m.empty[m.row(b, h, i)]) m.delta[m.row(b, h, i)] = f(b, h, i);
  });
}

inline void show(
    Mine& m, const std::function<bool(std::int64_t, std::int64_t, std::int64_t, std::int64_t)>& f) {
  m.each_pair([&](std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) {
    m.seen[m.pair(b, h, i, j)] = f(b, h, i, j);
  });
}

/// Leaves one kind of rule out of the claim's mask.
inline Mine::Step without(const std::function<void(AttentionCase&)>& forget) {
  return [forget](Mine& m) {
    GradientDump other = m.in;
    forget(other.claim.call);
    Mine again(other);
    again.run();
    for (std::size_t n = 0; n < m.seen.size(); ++n) m.seen[n] = again.seen[n];
  };
}

inline void all_results(Mine& m, float factor) {
  for (auto* t : {&m.dq, &m.dk, &m.dv, &m.d_bias, &m.d_sink}) {
    for (float& x : *t) x *= factor;
  }
}

inline float sum_over(const Mine& m, const Mine::Table& a, const Mine::Table* b, std::size_t r) {
  float sum = 0;
  for (std::int64_t e = 0; e < m.E; ++e) {
    const std::size_t n = r * Mine::size(m.E) + Mine::size(e);
    sum += a[n] * (b != nullptr ? (*b)[n] : 1);
  }
  return sum;
}

/// Keeps or shares out the heads of each group before they are summed.
inline void share_heads(const Mine& m, Mine::Table& heads, std::int64_t width,
                        const std::function<float(std::int64_t)>& share) {
  for (std::int64_t head = 0; head < m.B * m.H; ++head) {
    for (std::int64_t n = 0; n < m.S * width; ++n) {
      heads[Mine::size(head * m.S * width + n)] *= share(head % (m.H / m.G));
    }
  }
}

inline void keep_bias(Mine& m, std::size_t axis, const std::function<float(std::int64_t)>& share) {
  m.each_pair([&](std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) {
    const std::int64_t index[] = {b, h, i};
    m.d_bias_all[m.pair(b, h, i, j)] *= share(index[axis]);
  });
}

inline void reverse_heads(Mine::Table& t, std::int64_t B, std::int64_t heads) {
  const std::int64_t each = static_cast<std::int64_t>(t.size()) / (B * heads);
  const Mine::Table old = t;
  for (std::int64_t n = 0; n < B * heads; ++n) {
    const std::int64_t from = n / heads * heads + heads - 1 - n % heads;
    std::copy_n(old.begin() + from * each, each, t.begin() + n * each);
  }
}

inline void heads_last(Mine::Table& t, std::int64_t B, std::int64_t heads, std::int64_t rows) {
  const std::int64_t width = static_cast<std::int64_t>(t.size()) / (B * heads * rows);
  const Mine::Table old = t;
  std::size_t to = 0;
  for (std::int64_t b = 0; b < B; ++b)
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t h = 0; h < heads; ++h)
        for (std::int64_t d = 0; d < width; ++d)
          t[to++] = old[Mine::size(((b * heads + h) * rows + i) * width + d)];
}

/// What lets a pair be hidden although a program forgets the mask.
inline bool bias_hides(const Mine& m, std::int64_t b, std::int64_t h, std::int64_t i,
                       std::int64_t j) {
  return m.call.bias && std::isinf(m.bias_at(b, h, i, j));
}

/// Sum of weights·d_weights of each row, of the weights that the backward pass has made for itself.
inline void rows_term_again(Mine& m) {
  m.mistakes.emplace("delta", [](Mine& o) {
    each_delta(o, [&](std::int64_t b, std::int64_t h, std::int64_t i) {
      return row_sum(o, b, h, i, true);
    });
  });
}

}  // namespace attest::test
