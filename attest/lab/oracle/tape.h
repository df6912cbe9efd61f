// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "attest/lab/oracle/array.h"
#include "attest/lab/oracle/real.h"

namespace attest::lab::oracle {

template <class R>
class Tape;

/// A number that remembers how it was made: a value, and a node of a tape. Without a node it is a
/// constant. Every operation below states its value and its slope, and nothing else.
template <class R>
struct Var {
  R value{};
  std::int64_t node = -1;
  Tape<R>* tape = nullptr;

  Var() = default;
  Var(R constant) : value(std::move(constant)) {}  // NOLINT(google-explicit-constructor)
  Var(R number, std::int64_t place, Tape<R>* where)
      : value(std::move(number)), node(place), tape(where) {}

  friend Var operator+(const Var& a, const Var& b) {
    return record<R>(a.value + b.value, a, R(1), b, R(1));
  }
  friend Var operator-(const Var& a, const Var& b) {
    return record<R>(a.value - b.value, a, R(1), b, R(-1));
  }
  friend Var operator*(const Var& a, const Var& b) {
    return record<R>(a.value * b.value, a, b.value, b, a.value);
  }
  friend Var operator/(const Var& a, const Var& b) {
    const R quotient = a.value / b.value;
    return record<R>(quotient, a, 1 / b.value, b, -quotient / b.value);
  }
  friend Var operator-(const Var& a) { return record<R>(-a.value, a, R(-1)); }

  friend bool operator<(const Var& a, const Var& b) { return a.value < b.value; }
  friend bool operator>(const Var& a, const Var& b) { return a.value > b.value; }
  friend bool operator<=(const Var& a, const Var& b) { return a.value <= b.value; }
  friend bool operator>=(const Var& a, const Var& b) { return a.value >= b.value; }
  friend bool operator==(const Var& a, const Var& b) { return a.value == b.value; }
};

/// Reverse-mode differentiation: a list of nodes in the order in which they were made, each with
/// its slope against every node that it was made from.
template <class R>
class Tape {
 public:
  /// An independent variable.
  [[nodiscard]] Var<R> variable(R value) { return close(std::move(value)); }
  [[nodiscard]] Array<Var<R>> variables(const Array<R>& numbers) {
    Array<Var<R>> out;
    out.shape = numbers.shape;
    for (const R& x : numbers.values) out.values.push_back(variable(x));
    return out;
  }

  /// The node that `close` makes next depends on `operand` with this slope.
  void depend(const Var<R>& operand, R slope) {
    if (operand.node >= 0) edges_.push_back({operand.node, std::move(slope)});
  }
  [[nodiscard]] Var<R> close(R value) {
    ends_.push_back(edges_.size());
    return {std::move(value), static_cast<std::int64_t>(ends_.size()) - 1, this};
  }

  /// Adds d_y to what the result depends on: the gradient will be that of Σ d_y · y.
  void seed(const Var<R>& y, const R& d_y) {
    adjoints_.resize(ends_.size());
    if (y.node >= 0) adjoints_[static_cast<std::size_t>(y.node)] += d_y;
  }

  /// From the last node to the first: d_parent += slope · d_node.
  void backward() {
    adjoints_.resize(ends_.size());
    for (std::size_t node = ends_.size(); node-- > 0;) {
      if (adjoints_[node] == 0) continue;
      const std::size_t begin = node == 0 ? 0 : ends_[node - 1];
      for (std::size_t e = begin; e < ends_[node]; ++e) {
        adjoints_[static_cast<std::size_t>(edges_[e].parent)] += edges_[e].slope * adjoints_[node];
      }
    }
  }

  /// After `backward`: the gradient with respect to x; 0 for a constant.
  [[nodiscard]] R gradient(const Var<R>& x) const {
    return x.node < 0 ? R(0) : adjoints_[static_cast<std::size_t>(x.node)];
  }

 private:
  struct Edge {
    std::int64_t parent;
    R slope;
  };
  std::vector<std::size_t> ends_;  // node n owns the edges from ends_[n-1] to ends_[n]
  std::vector<Edge> edges_;
  std::vector<R> adjoints_;
};

/// f(a), or f(a, b), with the slopes ∂f/∂a and ∂f/∂b.
template <class R>
[[nodiscard]] Var<R> record(R value, const Var<R>& a, R slope_a) {
  if (a.node < 0) return value;
  a.tape->depend(a, std::move(slope_a));
  return a.tape->close(std::move(value));
}
template <class R>
[[nodiscard]] Var<R> record(R value, const Var<R>& a, R slope_a, const Var<R>& b, R slope_b) {
  if (a.node < 0) return record<R>(std::move(value), b, std::move(slope_b));
  a.tape->depend(a, std::move(slope_a));
  a.tape->depend(b, std::move(slope_b));
  return a.tape->close(std::move(value));
}

template <class R>
[[nodiscard]] const R& value_of(const Var<R>& x) {
  return x.value;
}

template <class R>
[[nodiscard]] Var<R> exp(const Var<R>& x) {
  const R y = exp(x.value);
  return record<R>(y, x, y);
}
template <class R>
[[nodiscard]] Var<R> log(const Var<R>& x) {
  return record<R>(log(x.value), x, 1 / x.value);
}
template <class R>
[[nodiscard]] Var<R> log1p(const Var<R>& x) {
  return record<R>(log1p(x.value), x, 1 / (1 + x.value));
}
template <class R>
[[nodiscard]] Var<R> sqrt(const Var<R>& x) {
  const R y = sqrt(x.value);
  return record<R>(y, x, 1 / (2 * y));
}
template <class R>
[[nodiscard]] Var<R> logistic(const Var<R>& x) {
  // s' = s·(1 − s), and 1 − s(x) = s(−x) without cancellation
  const R y = logistic(x.value);
  return record<R>(y, x, y * logistic(R(-x.value)));
}
template <class R>
[[nodiscard]] Var<R> tanh(const Var<R>& x) {
  // 1 − tanh²(x) = 4·s(2x)·s(−2x), s the logistic function: again without cancellation
  return record<R>(tanh(x.value), x, 4 * logistic(R(2 * x.value)) * logistic(R(-2 * x.value)));
}
template <class R>
[[nodiscard]] Var<R> erf(const Var<R>& x) {
  return record<R>(erf(x.value), x, 2 / sqrt(pi()) * exp(R(-x.value * x.value)));
}
template <class R>
[[nodiscard]] Var<R> erfc(const Var<R>& x) {
  return record<R>(erfc(x.value), x, -2 / sqrt(pi()) * exp(R(-x.value * x.value)));
}
template <class R>
[[nodiscard]] Var<R> sin(const Var<R>& x) {
  return record<R>(sin(x.value), x, cos(x.value));
}
template <class R>
[[nodiscard]] Var<R> cos(const Var<R>& x) {
  return record<R>(cos(x.value), x, -sin(x.value));
}
template <class R>
[[nodiscard]] Var<R> pow(const Var<R>& x, const R& exponent) {
  return record<R>(pow(x.value, exponent), x, exponent * pow(x.value, R(exponent - 1)));
}

/// start + Σ_k first(k) · second(k), as one node.
template <class R, class First, class Second>
[[nodiscard]] Var<R> sum_of_products(std::int64_t count, const Var<R>& start, First first,
                                     Second second) {
  R sum = start.value;
  Tape<R>* tape = start.tape;
  for (std::int64_t k = 0; k < count; ++k) {
    const Var<R>& a = first(k);
    const Var<R>& b = second(k);
    sum += a.value * b.value;
    if (tape == nullptr) tape = a.tape != nullptr ? a.tape : b.tape;
  }
  if (tape == nullptr) return sum;
  tape->depend(start, R(1));
  for (std::int64_t k = 0; k < count; ++k) {
    tape->depend(first(k), second(k).value);
    tape->depend(second(k), first(k).value);
  }
  return tape->close(std::move(sum));
}

/// The gradients of Σ d_output · f(inputs) for a function from arrays to one array.
template <class Function>
[[nodiscard]] std::vector<Array<Real>> pull_back(const std::vector<Array<Real>>& inputs,
                                                 const Array<Real>& d_output, Function function) {
  Tape<Real> tape;
  std::vector<Array<Var<Real>>> variables;
  for (const Array<Real>& input : inputs) variables.push_back(tape.variables(input));
  const Array<Var<Real>> output = function(variables);
  for (std::size_t i = 0; i < output.values.size(); ++i) {
    tape.seed(output.values[i], d_output.values[i]);
  }
  tape.backward();
  std::vector<Array<Real>> gradients = inputs;
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    for (std::size_t i = 0; i < inputs[k].values.size(); ++i) {
      gradients[k].values[i] = tape.gradient(variables[k].values[i]);
    }
  }
  return gradients;
}

}  // namespace attest::lab::oracle
