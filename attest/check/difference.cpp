// SPDX-License-Identifier: MIT
#include "attest/check/difference.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "attest/base/shape.h"
#include "attest/lab/trace.h"

namespace attest::check {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();
constexpr std::uint64_t farthest = std::numeric_limits<std::uint64_t>::max();

/// How far a bit pattern without its sign is from zero, and on which side.
struct Step {
  bool negative = false;
  std::uint64_t from_zero = 0;
};

/// The place of a value on the grid of a floating-point type: neighbours differ by one.
Step step_of(double value, DType grid) {
  const bool negative = std::signbit(value);
  const double size = negative ? -value : value;
  switch (grid) {
    case DType::f32:
      return {negative, std::bit_cast<std::uint32_t>(to_float_nearest(size))};
    case DType::f16:
      return {negative, to_half(size).bits};
    case DType::bf16:
      return {negative, to_bfloat16(size).bits};
    default:
      return {negative, std::bit_cast<std::uint64_t>(size)};
  }
}

int fraction_bits(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return 23;
    case DType::f16:
      return 10;
    case DType::bf16:
      return 7;
    default:
      return 52;
  }
}

/// A wide integer that `number` would round, as its own 64 bits and a sign.
bool wide(DType dtype) { return dtype == DType::i64 || dtype == DType::u64; }

Step integer_at(const AnyTensor& tensor, std::size_t n) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, tensor.bytes().data() + n * sizeof bits, sizeof bits);
  const bool negative = tensor.dtype() == DType::i64 && (bits >> 63U) != 0;
  return {negative, negative ? ~bits + 1 : bits};
}

std::uint64_t steps_between(Step a, Step b) {
  if (a.negative == b.negative) {
    return a.from_zero > b.from_zero ? a.from_zero - b.from_zero : b.from_zero - a.from_zero;
  }
  const std::uint64_t sum = a.from_zero + b.from_zero;
  return sum < a.from_zero ? farthest : sum;  // the way through zero; it cannot wrap for f64
}

bool same_number(double a, double b) { return a == b && std::signbit(a) == std::signbit(b); }

/// One place of both sets, measured.
struct Pair {
  ElementDifference measured;
  bool accepted = false;
};

class StageComparison {
 public:
  StageComparison(const AnyTensor& first, const AnyTensor& second, const DifferenceOptions& options,
                  StageDifference& out)
      : first_(first), second_(second), options_(options), out_(out) {}

  void run() {
    out_.coarser = coarser_of(first_.dtype(), second_.dtype());
    for (std::size_t n = 0; n < first_.size(); ++n) compare_patterns(n);
    for (std::size_t n = 0; n < first_.size(); ++n) compare_numbers(n);
    const bool nan_decides = options_.shared_nan == SharedNaN::matches || out_.nan_in_both == 0;
    const bool something = out_.compared + out_.nan_in_both > 0;
    out_.verdict = out_.differing > 0         ? Verdict::differs
                   : nan_decides && something ? Verdict::match
                                              : Verdict::undecided;
  }

 private:
  /// NaN first: every later comparison would be false beside one, and so look like a pass.
  void compare_patterns(std::size_t n) {
    const bool a = std::isnan(first_.number(n));
    const bool b = std::isnan(second_.number(n));
    if (a && b) ++out_.nan_in_both;
    if (a == b) return;
    ++(a ? out_.nan_in_first : out_.nan_in_second);
    ++out_.differing;
    if (!out_.first) {
      out_.first =
          ElementDifference{address(n),   DifferenceKind::nan, first_.number(n), second_.number(n),
                            not_a_number, not_a_number,        farthest};
    }
  }

  void compare_numbers(std::size_t n) {
    if (std::isnan(first_.number(n)) || std::isnan(second_.number(n))) return;
    const Pair pair = measure(n);
    const ElementDifference& at = pair.measured;
    ++out_.compared;
    if (at.absolute > out_.max_absolute) {
      out_.worst = at;
      out_.worst->address = address(n);
    }
    out_.max_absolute = std::max(out_.max_absolute, at.absolute);
    out_.max_relative = std::max(out_.max_relative, at.relative);
    out_.max_ulp = std::max(out_.max_ulp, at.ulp);
    if (pair.accepted) return;
    ++out_.differing;
    if (!out_.first) {
      out_.first = at;
      out_.first->address = address(n);
    }
  }

  [[nodiscard]] Pair measure(std::size_t n) const {
    const double a = first_.number(n);
    const double b = second_.number(n);
    Pair pair{{"", DifferenceKind::number, a, b, 0, 0, 0}, same_number(a, b)};
    ElementDifference& at = pair.measured;
    if (wide(first_.dtype()) && wide(second_.dtype())) {
      at.ulp = steps_between(integer_at(first_, n), integer_at(second_, n));
      at.absolute = static_cast<double>(at.ulp);
      pair.accepted = at.ulp == 0;
    } else if (a != b) {
      const bool floating = is_floating(first_.dtype()) || is_floating(second_.dtype());
      at.ulp = ulp_distance(a, b, floating ? out_.coarser : DType::i64);
      at.absolute = std::abs(b - a);
    }
    if (at.absolute != 0) at.relative = a == 0 ? infinity : at.absolute / std::abs(a);
    if (std::isinf(a) || std::isinf(b)) {
      at.kind = DifferenceKind::infinity;
      if (a != b) at.relative = infinity;
      return pair;  // no tolerance reaches an infinity
    }
    if (options_.ulp && at.ulp <= *options_.ulp) pair.accepted = true;
    if (options_.absolute && at.absolute <= *options_.absolute) pair.accepted = true;
    if (options_.relative && at.relative <= *options_.relative) pair.accepted = true;
    return pair;
  }

  [[nodiscard]] std::string address(std::size_t n) const {
    lab::Address out{out_.name, std::vector<std::int64_t>(first_.shape().size())};
    auto rest = static_cast<std::int64_t>(n);
    for (std::size_t axis = out.index.size(); axis-- > 0;) {
      out.index[axis] = rest % first_.shape()[axis];
      rest /= first_.shape()[axis];
    }
    return out.text();
  }

  const AnyTensor& first_;
  const AnyTensor& second_;
  const DifferenceOptions& options_;
  StageDifference& out_;
};

const AnyTensor* find(const NamedStages& stages, std::string_view name) {
  for (const auto& [other, tensor] : stages) {
    if (other == name) return &tensor;
  }
  return nullptr;
}

StageDifference unlike(const std::string& name, DifferenceKind kind, std::string note) {
  StageDifference out;
  out.name = name;
  out.verdict = Verdict::differs;
  out.structure = kind;
  out.note = std::move(note);
  out.first = ElementDifference{name,         kind,         not_a_number, not_a_number,
                                not_a_number, not_a_number, farthest};
  return out;
}

void summarise(DifferenceReport& report) {
  bool all_match = true;
  for (const StageDifference& stage : report.stages) {
    report.compared += stage.compared;
    report.differing += stage.differing;
    all_match = all_match && stage.verdict == Verdict::match;
    if (!report.first && stage.first) report.first = stage.first;
  }
  report.verdict = report.first                          ? Verdict::differs
                   : all_match && !report.stages.empty() ? Verdict::match
                                                         : Verdict::undecided;
}

}  // namespace

NamedStages to_stages(const io::NamedTensors& tensors) { return tensors.tensors; }

NamedStages to_stages(const std::vector<lab::Stage>& stages) {
  NamedStages out;
  for (const lab::Stage& stage : stages) out.emplace_back(stage.name, stage.values);
  return out;
}

DType coarser_of(DType a, DType b) noexcept {
  const bool of_a = is_floating(a);
  const bool of_b = is_floating(b);
  if (!of_a && !of_b) return DType::f64;
  if (of_a != of_b) return of_a ? a : b;
  return fraction_bits(a) <= fraction_bits(b) ? a : b;
}

std::uint64_t ulp_distance(double a, double b, DType grid) noexcept {
  if (std::isnan(a) || std::isnan(b)) return farthest;
  if (a == b) return 0;
  if (std::isinf(a) || std::isinf(b)) return farthest;
  if (!is_floating(grid)) {
    return static_cast<std::uint64_t>(std::min(std::abs(b - a), 0x1p63));
  }
  return steps_between(step_of(a, grid), step_of(b, grid));
}

DifferenceReport compare(const NamedStages& first, const NamedStages& second,
                         const DifferenceOptions& options) {
  DifferenceReport report;
  for (const auto& [name, tensor] : first) {
    const AnyTensor* other = find(second, name);
    if (other == nullptr) {
      report.stages.push_back(unlike(name, DifferenceKind::missing, "only in the first set"));
    } else if (other->shape() != tensor.shape()) {
      report.stages.push_back(
          unlike(name, DifferenceKind::shape,
                 to_string(tensor.shape()) + " against " + to_string(other->shape())));
    } else {
      StageDifference& stage = report.stages.emplace_back();
      stage.name = name;
      StageComparison(tensor, *other, options, stage).run();
    }
  }
  for (const auto& [name, tensor] : second) {
    if (find(first, name) != nullptr) continue;
    report.stages.push_back(unlike(name, DifferenceKind::missing, "only in the second set"));
  }
  summarise(report);
  return report;
}

}  // namespace attest::check
