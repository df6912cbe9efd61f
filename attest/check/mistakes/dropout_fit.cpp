// SPDX-License-Identifier: MIT
#include "attest/check/mistakes/dropout_fit.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace attest::check {
namespace {

constexpr std::size_t most_keys = 512;

/// Four sums, for one would wait for each addition before the next.
double product(std::span<const double> a, std::span<const double> b) {
  std::array<double, 4> sums{};
  std::size_t n = 0;
  for (; n + 4 <= a.size(); n += 4) {
    for (std::size_t k = 0; k < 4; ++k) sums[k] += a[n + k] * b[n + k];
  }
  for (; n < a.size(); ++n) sums[0] += a[n] * b[n];
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

/// What each key adds to the output, and what is missing of it.
struct Terms {
  std::size_t width = 0;
  std::vector<std::size_t> keys{};  // with a weight, the lightest first
  std::vector<double> columns{};    // [keys, E]
  std::vector<double> missing{};    // [E]

  [[nodiscard]] std::span<const double> column(std::size_t n) const {
    return {columns.data() + n * width, width};
  }
};

Terms terms_of(std::span<const double> weights, std::span<const double> values,
               std::span<const double> output, double rate) {
  Terms out{.width = output.size()};
  for (std::size_t j = 0; j < weights.size(); ++j) {
    if (weights[j] > 0) out.keys.push_back(j);
  }
  const auto size_of = [&](std::size_t j) {
    const auto value = values.subspan(j * out.width, out.width);
    return weights[j] * weights[j] * product(value, value);
  };
  std::ranges::sort(out.keys, {}, size_of);
  out.missing.assign(out.width, 0);
  for (std::size_t e = 0; e < out.width; ++e) out.missing[e] = -(1 - rate) * output[e];
  for (const std::size_t j : out.keys) {
    for (std::size_t e = 0; e < out.width; ++e) {
      out.columns.push_back(weights[j] * values[j * out.width + e]);
      out.missing[e] += out.columns.back();
    }
  }
  return out;
}

/// Each number of the output tells some bits; half of them must be more than the keys and eight.
bool tells_enough(const Terms& terms, Precision stored) {
  const double digits = -std::log2(unit_of(stored));
  return static_cast<double>(terms.keys.size()) + 8 <=
         digits / 2 * static_cast<double>(terms.width);
}

/// Orthogonal columns; then each key in turn, the heaviest first, is dropped or kept by what is left
/// of the missing part in the direction that it alone has.
std::vector<double> triangular(const Terms& terms) {
  const std::size_t size = terms.keys.size();
  const std::size_t width = terms.width;
  std::vector<double> basis = terms.columns;  // [keys, E]
  std::vector<double> upper(size * size, 0);
  for (std::size_t n = 0; n < size; ++n) {
    double* const own = basis.data() + n * width;
    for (std::size_t m = 0; m < n; ++m) {
      const std::span<const double> other{basis.data() + m * width, width};
      const double along = product({own, width}, other);
      upper[m * size + n] = along;
      for (std::size_t e = 0; e < width; ++e) own[e] -= along * other[e];
    }
    const double length = std::sqrt(product({own, width}, {own, width}));
    upper[n * size + n] = length;
    for (std::size_t e = 0; e < width && length > 0; ++e) own[e] /= length;
  }
  std::vector<double> dropped(size, 0);
  for (std::size_t n = size; n-- > 0;) {
    double left = product({basis.data() + n * width, width}, terms.missing);
    for (std::size_t m = n + 1; m < size; ++m) left -= upper[n * size + m] * dropped[m];
    const double length = upper[n * size + n];
    dropped[n] = length > 0 && left > length / 2 ? 1 : 0;
  }
  return dropped;
}

/// Least squares without negative unknowns, by growing a set of keys that take part: Lawson and
/// Hanson's. Few dropped keys are found among many more than there are numbers.
class NonNegative {
 public:
  explicit NonNegative(const Terms& terms) : terms_(terms), share_(terms.keys.size(), 0) {
    for (std::size_t n = 0; n < share_.size(); ++n) {
      lengths_.push_back(std::sqrt(product(terms.column(n), terms.column(n))));
    }
  }

  std::vector<double> solve() {
    for (std::size_t turn = 0; turn < 3 * terms_.width && active_.size() < terms_.width; ++turn) {
      const std::size_t next = steepest();
      if (next == share_.size()) break;
      active_.push_back(next);
      while (!active_.empty() && !settled()) {
      }
    }
    std::vector<double> dropped(share_);
    for (double& x : dropped) x = x > 0.5 ? 1 : 0;
    return dropped;
  }

 private:
  /// The key outside of the set that points most along what is left.
  std::size_t steepest() const {
    std::vector<double> left = terms_.missing;
    for (const std::size_t n : active_) {
      for (std::size_t e = 0; e < terms_.width; ++e) left[e] -= share_[n] * terms_.column(n)[e];
    }
    double best = 1e-9 * std::sqrt(product(terms_.missing, terms_.missing));
    std::size_t which = share_.size();
    for (std::size_t n = 0; n < share_.size(); ++n) {
      if (lengths_[n] == 0 || std::ranges::find(active_, n) != active_.end()) continue;
      const double along = product(terms_.column(n), left) / lengths_[n];
      if (along <= best) continue;
      best = along;
      which = n;
    }
    return which;
  }

  /// Solves on the set; steps back and drops a key from it where one would turn negative.
  bool settled() {
    const std::vector<double> wanted = on_active();
    double step = 1;
    for (std::size_t k = 0; k < active_.size(); ++k) {
      if (wanted[k] > 0) continue;
      const double now = share_[active_[k]];
      step = std::min(step, now == wanted[k] ? 0 : now / (now - wanted[k]));
    }
    bool all = true;
    std::vector<std::size_t> left;
    for (std::size_t k = 0; k < active_.size(); ++k) {
      double& share = share_[active_[k]];
      share += step * (wanted[k] - share);
      if (wanted[k] <= 0 && share <= 1e-12) {
        share = 0;
        all = false;
      } else {
        left.push_back(active_[k]);
      }
    }
    active_ = std::move(left);
    return all;
  }

  /// Normal equations of the set, columns made equally long, by Cholesky.
  std::vector<double> on_active() const {
    const std::size_t size = active_.size();
    std::vector<double> factor(size * size, 0);
    std::vector<double> out(size);
    for (std::size_t r = 0; r < size; ++r) {
      const auto row = terms_.column(active_[r]);
      out[r] = product(row, terms_.missing) / lengths_[active_[r]];
      for (std::size_t c = 0; c <= r; ++c) {
        double sum =
            product(row, terms_.column(active_[c])) / (lengths_[active_[r]] * lengths_[active_[c]]);
        for (std::size_t k = 0; k < c; ++k) sum -= factor[r * size + k] * factor[c * size + k];
        factor[r * size + c] =
            r == c ? std::sqrt(std::max(sum, 1e-14)) : sum / factor[c * size + c];
      }
    }
    for (std::size_t r = 0; r < size; ++r) {
      for (std::size_t c = 0; c < r; ++c) out[r] -= factor[r * size + c] * out[c];
      out[r] /= factor[r * size + r];
    }
    for (std::size_t r = size; r-- > 0;) {
      for (std::size_t c = r + 1; c < size; ++c) out[r] -= factor[c * size + r] * out[c];
      out[r] /= factor[r * size + r];
    }
    for (std::size_t r = 0; r < size; ++r) out[r] /= lengths_[active_[r]];
    return out;
  }

  const Terms& terms_;
  std::vector<double> share_;
  std::vector<double> lengths_{};
  std::vector<std::size_t> active_{};
};

/// Changes the one key that helps most, as long as one helps.
void improve(const Terms& terms, std::vector<double>& dropped) {
  std::vector<double> left = terms.missing;
  for (std::size_t n = 0; n < dropped.size(); ++n) {
    const auto column = terms.column(n);
    for (std::size_t e = 0; e < terms.width; ++e) left[e] -= dropped[n] * column[e];
  }
  std::vector<double> squares;
  for (std::size_t n = 0; n < dropped.size(); ++n) {
    squares.push_back(product(terms.column(n), terms.column(n)));
  }
  for (std::size_t changes = 0; changes < 2 * dropped.size(); ++changes) {
    double best = 0;
    std::size_t which = dropped.size();
    for (std::size_t n = 0; n < dropped.size(); ++n) {
      const double sign = dropped[n] == 0 ? 1 : -1;
      const double gain = 2 * sign * product(terms.column(n), left) - squares[n];
      if (gain <= best) continue;
      best = gain;
      which = n;
    }
    if (which == dropped.size()) return;
    const double sign = dropped[which] == 0 ? 1 : -1;
    const auto column = terms.column(which);
    for (std::size_t e = 0; e < terms.width; ++e) left[e] -= sign * column[e];
    dropped[which] = 1 - dropped[which];
  }
}

}  // namespace

std::vector<std::uint8_t> dropped_keys(std::span<const double> weights,
                                       std::span<const double> values,
                                       std::span<const double> output, double rate,
                                       Precision stored) {
  const Terms terms = terms_of(weights, values, output, rate);
  if (terms.keys.size() > most_keys || !tells_enough(terms, stored)) return {};
  std::vector<double> dropped =
      terms.keys.size() <= terms.width ? triangular(terms) : NonNegative(terms).solve();
  improve(terms, dropped);
  std::vector<std::uint8_t> out(weights.size(), 0);
  for (std::size_t n = 0; n < dropped.size(); ++n) out[terms.keys[n]] = dropped[n] > 0 ? 1 : 0;
  return out;
}

}  // namespace attest::check
