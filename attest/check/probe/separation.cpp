// SPDX-License-Identifier: MIT
#include "attest/check/probe/separation.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <tuple>
#include <utility>

#include "attest/check/mistakes/evaluate.h"

namespace attest::check {
namespace {

constexpr double same_output = 0x1p-40;

/// A mistake as it was made, and its output, row after row.
struct Outcome {
  const Mistake* mistake = nullptr;  ///< null: the claim itself
  std::string label;
  std::vector<double> output;
};

std::optional<std::vector<double>> output_of(const Dump& dump, const Recipe& recipe) {
  auto evaluation = Evaluation::make(dump, recipe);
  if (!evaluation) return std::nullopt;
  const lab::AttentionShape& n = dump.claim.shape;
  std::vector<double> out;
  out.reserve(static_cast<std::size_t>(n.B * n.H * n.T * n.E));
  for (std::int64_t b = 0; b < n.B; ++b) {
    for (std::int64_t h = 0; h < n.H; ++h) {
      for (std::int64_t i = 0; i < n.T; ++i) {
        const auto& row = evaluation->row({b, h, i}).output;
        out.insert(out.end(), row.begin(), row.end());
      }
    }
  }
  return out;
}

/// What says nothing about an output's numbers, or is no mistake in them.
bool left_out(const Mistake& mistake) {
  return mistake.kind != MistakeKind::wrong || mistake.axis == Axis::label ||
         mistake.axis == Axis::gradient || mistake.axis == Axis::block || mistake.make == nullptr;
}

/// The claim first, then every mistake with every value that can be made on it.
std::vector<Outcome> outcomes_of(const Dump& dump) {
  std::vector<Outcome> out;
  out.push_back({nullptr, "right", output_of(dump, {}).value_or(std::vector<double>())});
  constexpr double none[] = {0};
  for (const Mistake& mistake : catalogue()) {
    if (left_out(mistake)) continue;
    const std::span<const double> values =
        mistake.values.empty() ? std::span<const double>(none) : mistake.values;
    for (const double value : values) {
      Recipe recipe;
      if (!mistake.make(recipe, dump.claim, value)) continue;
      // What was dropped is read from the output that is judged; without one nothing is.
      if (recipe.scoring.mix.fitted_dropout) continue;
      auto output = output_of(dump, recipe);
      if (!output) continue;
      out.push_back({&mistake, Made{&mistake, value}.label(), *std::move(output)});
    }
  }
  return out;
}

double norm_of(std::span<const double> numbers) {
  double sum = 0;
  for (const double x : numbers) sum += std::isfinite(x) ? x * x : 0;
  return std::sqrt(sum);
}

/// ‖a − b‖, or anything not below `enough` once it is known to be that.
double distance(std::span<const double> a, std::span<const double> b, double enough) {
  constexpr double never = std::numeric_limits<double>::infinity();
  const double limit = enough * enough;
  double sum = 0;
  for (std::size_t n = 0; n < a.size(); ++n) {
    const double apart = a[n] - b[n];
    if (std::isfinite(apart)) {
      sum += apart * apart;
    } else if (!(std::isnan(a[n]) && std::isnan(b[n])) && a[n] != b[n]) {
      return never;
    }
    if (sum > limit) return std::sqrt(sum);
  }
  return std::sqrt(sum);
}

class Measurer {
 public:
  explicit Measurer(const Claim& claim) : dump_{claim, {}}, outcomes_(outcomes_of(dump_)) {
    norm_ = norm_of(outcomes_[0].output);
    class_of_.resize(outcomes_.size());
    for (std::size_t n = 0; n < class_of_.size(); ++n) class_of_[n] = n;
  }

  Separation measure() {
    find_same();
    compare_others();
    collect_classes();
    std::ranges::sort(out_.near, {}, &MistakePair::apart);
    return std::move(out_);
  }

 private:
  [[nodiscard]] double apart(std::size_t a, std::size_t b, double enough) const {
    return distance(outcomes_[a].output, outcomes_[b].output, enough * norm_) / norm_;
  }

  /// Each outcome joins the class of the first that has its output.
  void find_same() {
    for (std::size_t n = 1; n < outcomes_.size(); ++n) {
      for (std::size_t first = 0; first < n; ++first) {
        if (class_of_[first] != first || apart(first, n, 2 * same_output) > same_output) continue;
        class_of_[n] = first;
        break;
      }
    }
  }

  void compare_others() {
    const double wanted = told_apart * unit_of(Precision::bf16);
    for (std::size_t n = 1; n < outcomes_.size(); ++n) {
      if (class_of_[n] != n) continue;
      for (std::size_t other = 0; other < n; ++other) {
        const bool one_mistake = outcomes_[other].mistake == outcomes_[n].mistake;
        if (class_of_[other] != other || one_mistake) continue;
        const double between = apart(other, n, std::max(wanted, std::min(out_.smallest, 1e3)));
        out_.smallest = std::min(out_.smallest, between);
        if (between >= wanted) continue;
        out_.near.push_back({outcomes_[other].label, outcomes_[n].label, between});
      }
    }
  }

  void collect_classes() {
    for (std::size_t first = 0; first < outcomes_.size(); ++first) {
      if (class_of_[first] != first) continue;
      std::vector<std::string> labels;
      bool two_mistakes = false;
      for (std::size_t n = first; n < outcomes_.size(); ++n) {
        if (class_of_[n] != first) continue;
        labels.push_back(outcomes_[n].label);
        two_mistakes = two_mistakes || outcomes_[n].mistake != outcomes_[first].mistake;
      }
      if (first == 0) {
        out_.unseen.assign(labels.begin() + 1, labels.end());
      } else {
        out_.mistakes += static_cast<std::int64_t>(labels.size());
        if (two_mistakes) out_.same.push_back(std::move(labels));
      }
    }
  }

  Dump dump_;
  std::vector<Outcome> outcomes_;
  std::vector<std::size_t> class_of_;  ///< the first outcome of the same output
  double norm_ = 0;
  Separation out_;
};

}  // namespace

std::int64_t Separation::untold_at(Precision precision) const {
  const double wanted = told_apart * unit_of(precision);
  return std::ranges::count_if(near, [&](const MistakePair& pair) { return pair.apart < wanted; });
}

Separation separation(const Claim& claim) { return Measurer(claim).measure(); }

Result<MeasuredProbe> decisive_probe(ProbeRequest request, std::int64_t seeds,
                                     const std::function<void(std::int64_t tried)>& progress) {
  std::optional<MeasuredProbe> best;
  const auto rank = [](const MeasuredProbe& measured) {
    const Separation& s = measured.separation;
    return std::tuple(s.untold_at(Precision::f16), s.untold_at(Precision::bf16), -s.smallest);
  };
  for (std::int64_t tried = 0; tried < seeds; ++tried, ++request.seed) {
    auto probe = make_probe(request);
    if (!probe) return probe.failure();
    MeasuredProbe measured{*std::move(probe), {}};
    measured.separation = separation(measured.probe.claim);
    if (!best || rank(measured) < rank(*best)) best = std::move(measured);
    if (progress) progress(tried + 1);
    if (best->separation.untold_at(Precision::bf16) == 0) break;
  }
  return *std::move(best);
}

}  // namespace attest::check
