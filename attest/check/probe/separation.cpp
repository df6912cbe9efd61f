// SPDX-License-Identifier: MIT
#include "attest/check/probe/separation.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <tuple>
#include <utility>

#include "attest/base/threads.h"
#include "attest/check/at_index.h"
#include "attest/check/mistakes/evaluate.h"

namespace attest::check {
namespace {

constexpr double same_output = 0x1p-40;
constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr std::int64_t rows_at_a_time = 64;

/// Rows whose numbers are compared, head by head.
using Places = std::vector<lab::RowPlace>;

/// All rows, or where an output of them costs more than `most` multiplications as many as cost that: at
/// least one of each head, other ones in each, and the last.
Places sampled_rows(const lab::AttentionShape& n, double most) {
  const double row = static_cast<double>(n.S) * static_cast<double>(n.D + n.E);
  const std::int64_t heads = n.B * n.H;
  const double affordable = most / std::max(1.0, row * static_cast<double>(heads));
  const bool all = affordable >= static_cast<double>(n.T);
  const std::int64_t each = all ? n.T : std::max<std::int64_t>(1, std::llround(affordable));
  Places out;
  for (std::int64_t head = 0; head < heads; ++head) {
    for (std::int64_t k = 0; k < each; ++k) {
      const std::int64_t i = all ? k : (k * heads + head) * n.T / (each * heads);
      out.push_back({head / n.H, head % n.H, i});
    }
  }
  if (!all && out.back().i != n.T - 1) out.push_back({n.B - 1, n.H - 1, n.T - 1});
  return out;
}

/// A mistake as it was made, and its output on the rows that are compared.
struct Outcome {
  const Mistake* mistake = nullptr;  ///< null: the claim itself
  std::string label{};
  Recipe recipe{};
  std::vector<double> output{};
};

void append_rows(Evaluation& evaluation, std::span<const lab::RowPlace> places,
                 std::vector<double>& out) {
  for (const lab::RowPlace at : places) {
    const std::vector<double>& row = evaluation.row(at).output;
    out.insert(out.end(), row.begin(), row.end());
  }
}

/// What says nothing about an output's numbers, or is no mistake in them.
bool left_out(const Mistake& mistake) {
  return mistake.kind != MistakeKind::wrong || mistake.axis == Axis::label ||
         mistake.axis == Axis::gradient || mistake.axis == Axis::block || mistake.make == nullptr;
}

/// The claim first, then every mistake with every value that can be made on it; no outputs yet.
std::vector<Outcome> outcomes_of(const Claim& claim) {
  std::vector<Outcome> out;
  out.push_back({.label = "right"});
  constexpr double none[] = {0};
  for (const Mistake& mistake : catalogue()) {
    if (left_out(mistake)) continue;
    const std::span<const double> values =
        mistake.values.empty() ? std::span<const double>(none) : mistake.values;
    for (const double value : values) {
      Recipe recipe;
      if (!mistake.make(recipe, claim, value)) continue;
      // What was dropped is read from the output that is judged; without one nothing is.
      if (recipe.scoring.mix.fitted_dropout) continue;
      out.push_back({&mistake, Made{&mistake, value}.label(), std::move(recipe), {}});
    }
  }
  return out;
}

/// Outputs on these rows; what does not fit the claim's shapes goes.
void compute(const Dump& dump, const Places& places, ThreadPool& pool,
             std::vector<Outcome>& outcomes) {
  std::vector<char> fits(outcomes.size(), 1);
  pool.run(static_cast<std::int64_t>(outcomes.size()), [&](std::int64_t n) {
    Outcome& outcome = outcomes[at_index(n)];
    auto evaluation = Evaluation::make(dump, outcome.recipe);
    fits[at_index(n)] = evaluation || n == 0 ? 1 : 0;
    if (evaluation) append_rows(*evaluation, places, outcome.output);
  });
  std::size_t n = 0;
  std::erase_if(outcomes, [&](const Outcome&) { return fits[n++] == 0; });
}

/// Σ (a − b)², infinite where NaN or infinities lie differently; or anything above `limit` once it is known
/// to be that.
double squares_between(std::span<const double> a, std::span<const double> b, double limit) {
  double sum = 0;
  for (std::size_t n = 0; n < a.size(); ++n) {
    const double apart = a[n] - b[n];
    if (std::isfinite(apart)) {
      sum += apart * apart;
    } else if (!(std::isnan(a[n]) && std::isnan(b[n])) && a[n] != b[n]) {
      return infinity;
    }
    if (sum > limit) return sum;
  }
  return sum;
}

/// Two outcomes that the sampled rows do not tell apart.
struct Undecided {
  std::size_t first = 0, second = 0;
  double squares = 0;    ///< Σ (first − second)² of the rows compared since
  bool decided = false;  ///< told apart by them
};

/// ‖right‖ of all rows; no output is kept.
double norm_of_right(const Dump& dump, ThreadPool& pool) {
  const lab::AttentionShape& n = dump.claim.shape;
  std::vector<double> squares(at_index(n.B * n.H));
  pool.run(n.B * n.H, [&](std::int64_t head) {
    auto evaluation = Evaluation::make(dump, {});
    for (std::int64_t i = 0; evaluation && i < n.T; ++i) {
      for (const double x : evaluation->row({head / n.H, head % n.H, i}).output) {
        squares[at_index(head)] += std::isfinite(x) ? x * x : 0;
      }
    }
  });
  double sum = 0;
  for (const double each : squares) sum += each;
  return std::sqrt(sum);
}

class Measurer {
 public:
  Measurer(const Claim& claim, double multiplications, ThreadPool& pool)
      : pool_(&pool), dump_{claim, {}}, outcomes_(outcomes_of(claim)) {
    const Places places = sampled_rows(claim.shape, multiplications);
    const std::int64_t rows = claim.shape.B * claim.shape.H * claim.shape.T;
    sampled_ = std::ssize(places) < rows;
    if (sampled_)
      spread_ = std::sqrt(static_cast<double>(rows) / static_cast<double>(places.size()));
    compute(dump_, places, pool, outcomes_);
    norm_ = norm_of_right(dump_, pool);
    class_of_.resize(outcomes_.size());
    for (std::size_t n = 0; n < class_of_.size(); ++n) class_of_[n] = n;
  }

  /// On the sampled rows, distances as they would be if all rows were like those.
  Separation measure() {
    find_same();
    compare_others();
    for (Outcome& outcome : outcomes_) outcome.output = {};
    return classified();
  }

  /// What the sampled rows alone do not tell apart is compared on others, if need be on all.
  Separation refined() {
    if (!sampled_) return classified();
    std::vector<Undecided> pairs = undecided();
    compare_whole(pairs);
    join_same(pairs);
    out_.near.clear();
    out_.smallest = least_;
    for (const Undecided& pair : pairs) {
      const bool one_mistake = outcomes_[pair.first].mistake == outcomes_[pair.second].mistake;
      const bool both_first = class_of_[pair.first] == pair.first &&  //
                              class_of_[pair.second] == pair.second;
      if (!one_mistake && both_first)
        take(pair.first, pair.second, std::sqrt(pair.squares) / norm_);
    }
    return classified();
  }

 private:
  [[nodiscard]] static double wanted() { return told_apart * unit_of(Precision::bf16); }

  [[nodiscard]] double apart(std::size_t a, std::size_t b, double enough) const {
    const double limit = enough * norm_;
    return std::sqrt(squares_between(outcomes_[a].output, outcomes_[b].output, limit * limit)) /
           norm_;
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
    // On all rows those of a class of the sample may leave it: they stay as far from the others.
    const double enough = wanted() + (sampled_ ? 2 * same_output : 0);
    for (std::size_t n = 1; n < outcomes_.size(); ++n) {
      if (class_of_[n] != n) continue;
      for (std::size_t other = 0; other < n; ++other) {
        const bool one_mistake = outcomes_[other].mistake == outcomes_[n].mistake;
        if (class_of_[other] != other || one_mistake) continue;
        const double between = apart(other, n, std::max(enough, std::min(least_, 1e3)));
        if (between < enough) {
          unsure_.emplace_back(other, n);
        } else {
          least_ = std::min(least_, between);
        }
        take(other, n, spread_ * between);
      }
    }
  }

  void take(std::size_t first, std::size_t second, double between) {
    out_.smallest = std::min(out_.smallest, between);
    if (between >= wanted()) return;
    out_.near.push_back({outcomes_[first].label, outcomes_[second].label, between});
  }

  /// Pairs of one class, or of two classes that the sample leaves near.
  [[nodiscard]] std::vector<Undecided> undecided() const {
    std::vector<Undecided> out;
    for (std::size_t n = 1; n < outcomes_.size(); ++n) {
      for (std::size_t other = 0; other < n; ++other) {
        const std::pair classes = std::minmax(class_of_[other], class_of_[n]);
        if (classes.first == classes.second ||
            std::ranges::find(unsure_, std::pair(classes.first, classes.second)) != unsure_.end()) {
          out.push_back({other, n, 0});
        }
      }
    }
    return out;
  }

  /// Rows of one head after another, until every pair is told apart or all of its rows are compared.
  void compare_whole(std::vector<Undecided>& pairs) {
    std::vector<std::optional<Evaluation>> evaluations(outcomes_.size());
    const lab::AttentionShape& shape = dump_.claim.shape;
    for (std::int64_t head = 0; head < shape.B * shape.H; ++head) {
      for (std::int64_t begin = 0; begin < shape.T; begin += rows_at_a_time) {
        Places places;
        for (std::int64_t i = begin; i < std::min(shape.T, begin + rows_at_a_time); ++i) {
          places.push_back({head / shape.H, head % shape.H, i});
        }
        std::vector<char> wanted(outcomes_.size());
        for (const Undecided& pair : pairs) {
          if (!pair.decided) wanted[pair.first] = wanted[pair.second] = 1;
        }
        pool_->run(std::ssize(outcomes_), [&](std::int64_t n) {
          auto& evaluation = evaluations[at_index(n)];
          outcomes_[at_index(n)].output.clear();
          if (wanted[at_index(n)] == 0) return evaluation.reset();
          if (!evaluation) evaluation = Evaluation::make(dump_, outcomes_[at_index(n)].recipe);
          append_rows(*evaluation, places, outcomes_[at_index(n)].output);
        });
        compare_rows(pairs);
      }
    }
    for (Outcome& outcome : outcomes_) outcome.output = {};
  }

  void compare_rows(std::vector<Undecided>& pairs) {
    const double enough = wanted() * norm_;
    pool_->run(std::ssize(pairs), [&](std::int64_t n) {
      Undecided& pair = pairs[at_index(n)];
      if (pair.decided) return;
      pair.squares +=
          squares_between(outcomes_[pair.first].output, outcomes_[pair.second].output, infinity);
      pair.decided = pair.squares >= enough * enough;
    });
  }

  void join_same(const std::vector<Undecided>& pairs) {
    for (std::size_t n = 0; n < class_of_.size(); ++n) class_of_[n] = n;
    for (const Undecided& pair : pairs) {  // in the order of the second, then of the first
      if (class_of_[pair.second] != pair.second || class_of_[pair.first] != pair.first) continue;
      if (std::sqrt(pair.squares) > same_output * norm_) continue;
      class_of_[pair.second] = pair.first;
    }
  }

  [[nodiscard]] Separation classified() {
    out_.mistakes = 0;
    out_.same.clear();
    out_.unseen.clear();
    collect_classes();
    std::ranges::sort(out_.near, {}, &MistakePair::apart);
    return out_;
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

  ThreadPool* pool_;
  Dump dump_;
  std::vector<Outcome> outcomes_;
  bool sampled_ = false;
  std::vector<std::size_t> class_of_;  ///< the first outcome of the same output
  std::vector<std::pair<std::size_t, std::size_t>> unsure_;  ///< classes near on the sampled rows
  double spread_ = 1;                                        ///< √(all rows / sampled rows)
  double least_ = infinity;  ///< of the pairs that the sampled rows tell apart
  double norm_ = 0;
  Separation out_;
};

}  // namespace

std::int64_t Separation::untold_at(Precision precision) const {
  const double wanted = told_apart * unit_of(precision);
  return std::ranges::count_if(near, [&](const MistakePair& pair) { return pair.apart < wanted; });
}

Separation separation(const Claim& claim, double multiplications) {
  ThreadPool pool;
  Measurer measurer(claim, multiplications, pool);
  (void)measurer.measure();
  return measurer.refined();
}

Result<MeasuredProbe> decisive_probe(ProbeRequest request, std::int64_t seeds,
                                     const std::function<void(std::int64_t tried)>& progress) {
  struct Tried {
    Probe probe;
    std::unique_ptr<Measurer> measurer;
    Separation separation;
  };
  ThreadPool pool;
  std::optional<Tried> best;
  const auto rank = [](const Tried& tried) {
    const Separation& s = tried.separation;
    return std::tuple(s.untold_at(Precision::f16), s.untold_at(Precision::bf16), -s.smallest);
  };
  for (std::int64_t tried = 0; tried < seeds; ++tried, ++request.seed) {
    auto probe = make_probe(request);
    if (!probe) return probe.failure();
    auto measurer = std::make_unique<Measurer>(probe->claim, affordable_output, pool);
    Separation measured = measurer->measure();
    Tried one{*std::move(probe), std::move(measurer), std::move(measured)};
    if (!best || rank(one) < rank(*best)) best = std::move(one);
    if (progress) progress(tried + 1);
    if (best->separation.untold_at(Precision::bf16) == 0) break;
  }
  return MeasuredProbe{std::move(best->probe), best->measurer->refined()};
}

}  // namespace attest::check
