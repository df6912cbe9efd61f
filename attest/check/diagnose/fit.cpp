// SPDX-License-Identifier: MIT
#include "attest/check/diagnose/fit.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>
#include <numbers>
#include <utility>

#include "attest/base/text.h"
#include "attest/check/at_index.h"

namespace attest::check {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr std::size_t fitted_rows = 6;
constexpr std::size_t nearest_bases = 12;

/// A fit may follow the rounding a little, and what has its value does not.
constexpr double as_near_as_fitted = 1.25;

std::string six_digits(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.6g", value);
  return text;
}

double default_scale(const Claim& claim) {
  const double width = static_cast<double>(std::max<std::int64_t>(claim.shape.D, 1));
  return claim.call.scale.value_or(1 / std::sqrt(width));
}

/// A number that a program may have another of.
struct Constant {
  std::string_view name;
  Axis axis = Axis::scale;
  std::string_view mistake;  ///< of the catalogue, if it has one for any value
  bool both_signs = false;
  bool (*applies)(const Claim&) = nullptr;
  double (*start)(const Claim&) = nullptr;
  void (*set)(Recipe&, const Claim&, double) = nullptr;
  /// Places of the grid on which it is sought: where numbers wave as it changes, many.
  int (*places)(const Claim&) = nullptr;
};

bool begins_with_products(const Claim& claim) { return claim.has_query_and_key(); }
double one(const Claim&) { return 1; }

constexpr double reach = 7;  // e^±7 around where a constant starts
int few_places(const Claim&) { return 33; }

/// Formula       an angle p·b^(−x), 0 ≤ x < 1, turns with ln b by p·x·b^(−x) ≤ p/(e·ln b): a place for
///               every half radian at the base that is claimed
int places_for_base(const Claim& claim) {
  double farthest = 1;
  for (const std::int64_t p : claim.rope->query_positions) {
    farthest = std::max(farthest, static_cast<double>(p));
  }
  const double turn =
      farthest / (std::numbers::e * std::log(std::max(claim.rope->config.base, 2.0)));
  return static_cast<int>(std::clamp(4 * reach * turn, 33.0, 1025.0));
}

constexpr std::array constants{
    Constant{"scale", Axis::scale, "scale.other_constant", true, begins_with_products,
             default_scale,
             [](Recipe& recipe, const Claim&, double x) { recipe.scoring.scale = x; }, few_places},
    Constant{
        "softcap", Axis::softcap, "softcap.wrong_value", false, [](const Claim&) { return true; },
        [](const Claim& claim) { return claim.call.softcap.value_or(10); },
        [](Recipe& recipe, const Claim&, double x) { recipe.scoring.softcap = x; }, few_places},
    Constant{"base of the rotary positions", Axis::rope, "rope.base", false,
             [](const Claim& claim) { return begins_with_products(claim) && claim.rope; },
             [](const Claim& claim) { return claim.rope->config.base; },
             [](Recipe& recipe, const Claim&, double x) { recipe.operands.rope.base = x; },
             places_for_base},
    Constant{"factor of the exponent", Axis::exponent, "", false,
             [](const Claim& claim) {
               return !begins_with_products(claim) || claim.call.bias || claim.call.softcap ||
                      !claim.call.alibi_slopes.empty() || !claim.call.sink.empty();
             },
             one,
             [](Recipe& recipe, const Claim&, double x) { recipe.scoring.softmax.exponent = x; },
             few_places},
    Constant{"factor of the weights", Axis::dropout, "dropout.scale_only", true,
             [](const Claim&) { return true; }, one,
             [](Recipe& recipe, const Claim&, double x) { recipe.scoring.mix.weight_factor = x; },
             few_places},
    Constant{"more keys of score 0 in the denominator", Axis::softmax, "", false,
             [](const Claim&) { return true; },
             [](const Claim& claim) {
               return static_cast<double>(std::max<std::int64_t>(claim.shape.S, 1));
             },
             [](Recipe& recipe, const Claim&, double x) { recipe.scoring.softmax.more_zeros = x; },
             few_places},
    Constant{"factor of the ALiBi slopes", Axis::alibi, "", true,
             [](const Claim& claim) { return !claim.call.alibi_slopes.empty(); }, one,
             [](Recipe& recipe, const Claim& claim, double x) {
               std::vector<double> slopes = claim.call.alibi_slopes;
               for (double& slope : slopes) slope *= x;
               recipe.scoring.alibi.slopes = std::move(slopes);
             },
             few_places},
};

/// One constant beside a recipe that stays as it is.
class Fitting {
 public:
  Fitting(const Dump& dump, const Samples& samples, const Recipe& base, const Constant& constant)
      : dump_(dump), samples_(samples), base_(base), constant_(constant) {
    const std::size_t rows = std::min(fitted_rows, samples.samples.size());
    rows_ = std::span(samples.samples).first(rows);
  }

  struct Found {
    double value = 0;
    double error = infinity;  ///< of the value
  };
  std::optional<Found> find() {
    std::optional<Found> best;
    double least = infinity;
    for (const double sign : {1.0, -1.0}) {
      if (sign < 0 && !constant_.both_signs) break;
      for (const double start : minima(sign)) {
        const double rough = golden(sign, start);
        const Found found = newton(sign * std::exp(rough));
        const double left = squares(found.value);
        if (left < least) best = found;
        least = std::min(least, left);
      }
    }
    return best;
  }
  [[nodiscard]] std::int64_t tried() const { return tried_; }

 private:
  [[nodiscard]] double log_start() const {
    return std::log(std::fabs(constant_.start(dump_.claim)));
  }
  /// The two best places of the grid, as logarithms.
  std::vector<double> minima(double sign) {
    std::vector<std::pair<double, double>> places;
    const int grid = constant_.places(dump_.claim);
    for (int n = 0; n < grid; ++n) {
      const double at = log_start() + reach * (2.0 * n / (grid - 1) - 1);
      places.emplace_back(squares(sign * std::exp(at)), at);
    }
    std::vector<std::pair<double, double>> low;
    for (std::size_t n = 0; n < places.size(); ++n) {
      const double here = places[n].first;
      if (n > 0 && places[n - 1].first < here) continue;
      if (n + 1 < places.size() && places[n + 1].first < here) continue;
      if (here < infinity) low.push_back(places[n]);
    }
    std::sort(low.begin(), low.end());
    std::vector<double> out;
    for (std::size_t n = 0; n < low.size() && n < 2; ++n) out.push_back(low[n].second);
    return out;
  }

  double golden(double sign, double middle) {
    const double ratio = (std::sqrt(5.0) - 1) / 2;
    const double step = 2 * reach / (constant_.places(dump_.claim) - 1);
    double low = middle - step, high = middle + step;
    double a = high - ratio * (high - low), b = low + ratio * (high - low);
    double at_a = squares(sign * std::exp(a)), at_b = squares(sign * std::exp(b));
    for (int n = 0; n < 24; ++n) {
      if (at_a < at_b) {
        high = b;
        b = std::exchange(a, b - ratio * (b - low));
        at_b = std::exchange(at_a, squares(sign * std::exp(a)));
      } else {
        low = a;
        a = std::exchange(b, a + ratio * (high - a));
        at_a = std::exchange(at_b, squares(sign * std::exp(b)));
      }
    }
    return (low + high) / 2;
  }

  Found newton(double x) {
    Found out{x};
    for (int n = 0; n < 4; ++n) {
      const double step = 1e-5 * std::fabs(x);
      const std::vector<double> here = residuals(x), below = residuals(x - step),
                                above = residuals(x + step);
      double along = 0, square = 0;
      for (std::size_t k = 0; k < here.size(); ++k) {
        const double slope = (above[k] - below[k]) / (2 * step);
        if (!std::isfinite(slope) || !std::isfinite(here[k])) continue;
        along += slope * here[k];
        square += slope * slope;
      }
      if (!(square > 0)) return {x, infinity};
      const double next = x - along / square;
      out.error = 1 / std::sqrt(square);
      if (!(squares(next) <= squares(x))) break;
      x = out.value = next;
    }
    return out;
  }

  double squares(double x) {
    double sum = 0;
    for (const double r : residuals(x)) sum += std::isfinite(r) ? r * r : 1e30;
    return sum;
  }

  /// (recomputed − found) / noise of the claim's numbers.
  std::vector<double> residuals(double x) {
    ++tried_;
    Recipe recipe = base_;
    constant_.set(recipe, dump_.claim, x);
    std::vector<double> out;
    std::optional<Evaluation> evaluation = Evaluation::make(dump_, recipe);
    for (const Sample& sample : rows_) {
      const StageRow* row = evaluation ? &evaluation->row(sample.at) : nullptr;
      for (std::size_t t = 0; t < samples_.tables.size(); ++t) {
        const std::span<const double> found = sample.tables[t].found;
        const std::span<const double> own = row != nullptr
                                                ? row->of(samples_.tables[t].observed->stage)
                                                : std::span<const double>();
        for (std::size_t k = 0; k < found.size(); ++k) {
          if (!std::isfinite(found[k])) {
            out.push_back(0);
            continue;
          }
          const double size = std::fabs(found[k]);
          const double noise = samples_.noise(t, sample.tables[t].typical[k], size, size);
          out.push_back(k < own.size() ? (own[k] - found[k]) / std::max(noise, 1e-300) : infinity);
        }
      }
    }
    return out;
  }

  const Dump& dump_;
  const Samples& samples_;
  const Recipe& base_;
  const Constant& constant_;
  std::span<const Sample> rows_;
  std::int64_t tried_ = 0;
};

std::vector<std::string> names_of_factor(double factor, double error) {
  std::vector<std::string> out;
  for (int percent = 5; percent < 100; percent += 5) {
    const double rate = percent / 100.0;
    if (std::fabs(factor * (1 - rate) - 1) <= error) {
      out.push_back(sentence("1/(1 - ", rate, "): a dropout rate of ", rate));
    }
  }
  return out;
}

std::vector<std::string> names_of_exponent(double factor, double error) {
  if (std::fabs(factor / std::numbers::ln2 - 1) <= error)
    return {"ln(2): powers of 2 in place of e"};
  if (std::fabs(factor / std::numbers::log2e - 1) <= error) {
    return {"log2(e): exp of what is meant for exp2"};
  }
  return {};
}

std::string text_of(const Constant& constant, const Claim& claim, const Fitting::Found& found) {
  std::string out = sentence(constant.name, " = ", six_digits(found.value));
  const double error = 4 * found.error / std::fabs(found.value) + 1e-12;
  std::vector<std::string> names;
  if (constant.name == "scale") names = names_of_scale(claim, found.value, error);
  if (constant.axis == Axis::exponent) names = names_of_exponent(found.value, error);
  if (constant.axis == Axis::dropout) names = names_of_factor(found.value, error);
  for (const std::string& name : names) out += " = " + name;
  return out;
}

struct Task {
  const Constant* constant = nullptr;
  const Candidate* base = nullptr;  // null: the claim
};

bool same_axis(const Candidate& base, Axis axis) {
  return std::ranges::any_of(base.mistakes,
                             [&](const Made& made) { return made.mistake->axis == axis; });
}

/// Named mistakes of the constant's axis beside the same base, which give the numbers as well: the
/// constant is theirs. Pairs of what costs a whole head are only found so.
std::vector<Candidate> named_beside(const Dump& dump, const Samples& samples, const Task& task,
                                    double distance, std::int64_t& tried) {
  constexpr std::array no_value{0.0};
  std::vector<Candidate> out;
  for (const Mistake& mistake : catalogue()) {
    if (mistake.axis != task.constant->axis && mistake.axis != Axis::exponent) continue;
    if (same_axis(*task.base, mistake.axis)) continue;
    std::span<const double> values = mistake.values;
    if (values.empty()) values = no_value;
    for (const double value : values) {
      Candidate candidate{.mistakes = task.base->mistakes, .recipe = task.base->recipe};
      if (!mistake.make(candidate.recipe, dump.claim, value)) continue;
      candidate.mistakes.push_back({&mistake, value});
      candidate.fit = fit_of(dump, samples, candidate.recipe, 1);
      ++tried;
      const bool as_near = candidate.fit.distance() <= distance * as_near_as_fitted;
      if (candidate.fit.fits() && as_near) out.push_back(std::move(candidate));
    }
  }
  return out;
}

std::optional<Candidate> carry_out(const Dump& dump, const Samples& samples, const Task& task,
                                   std::int64_t& tried) {
  Candidate out;
  if (task.base != nullptr) out = {.mistakes = task.base->mistakes, .recipe = task.base->recipe};
  Fitting fitting(dump, samples, out.recipe, *task.constant);
  const std::optional<Fitting::Found> found = fitting.find();
  tried = fitting.tried();
  if (!found || !std::isfinite(found->error)) return std::nullopt;
  const Recipe base = out.recipe;
  task.constant->set(out.recipe, dump.claim, found->value);
  out.fit = fit_of(dump, samples, out.recipe, 1);
  if (!out.fit.fits()) return std::nullopt;
  const Mistake* known = find_mistake(task.constant->mistake);
  if (known != nullptr) out.mistakes.push_back({known, found->value});
  out.fitted.push_back(text_of(*task.constant, dump.claim, *found));
  return out;
}

std::vector<Candidate> carry_out_all(const Dump& dump, const Samples& samples,
                                     const std::vector<Task>& tasks, ThreadPool& pool,
                                     std::int64_t& tried) {
  std::vector<std::vector<Candidate>> done(tasks.size());
  std::vector<std::int64_t> counts(tasks.size());
  pool.run(static_cast<std::int64_t>(tasks.size()), [&](std::int64_t n) {
    const Task& task = tasks[at_index(n)];
    std::optional<Candidate> fitted = carry_out(dump, samples, task, counts[at_index(n)]);
    if (!fitted) return;
    std::vector<Candidate>& out = done[at_index(n)];
    if (task.base != nullptr) {
      out = named_beside(dump, samples, task, fitted->fit.distance(), counts[at_index(n)]);
    }
    if (out.empty()) out.push_back(std::move(*fitted));
  });
  std::vector<Candidate> out;
  for (std::vector<Candidate>& part : done) {
    std::move(part.begin(), part.end(), std::back_inserter(out));
  }
  for (const std::int64_t count : counts) tried += count;
  return out;
}

/// The wrong ones, by how near their first rows come.
std::vector<Candidate> nearest_of(const std::vector<Candidate>& singles) {
  std::vector<Candidate> out;
  for (const Candidate& single : singles) {
    const bool wrong = single.mistakes.front().mistake->kind == MistakeKind::wrong;
    if (wrong && !single.fit.apart && single.fit.rows > 0) out.push_back(single);
  }
  const auto rank = [](const Candidate& one) {
    return one.fit.distance() / static_cast<double>(one.fit.rows);
  };
  std::stable_sort(out.begin(), out.end(),
                   [&](const Candidate& a, const Candidate& b) { return rank(a) < rank(b); });
  if (out.size() > nearest_bases) out.resize(nearest_bases);
  return out;
}

/// The window of a causal program, and where its queries stand, are counted: each is tried.
std::vector<Candidate> fit_counts(const Dump& dump, const Samples& samples, ThreadPool& pool,
                                  std::int64_t& tried) {
  const Claim& claim = dump.claim;
  const bool positions =
      claim.call.mask.future_hidden || claim.call.mask.window.left || claim.call.mask.window.right;
  const std::int64_t keys = std::min<std::int64_t>(claim.shape.S, 4096);
  std::vector<Candidate> all;
  for (std::int64_t n = 0; n < keys; ++n) {
    Candidate left;
    left.recipe.scoring.sight.window = Sides{n, claim.call.mask.window.right};
    left.fitted = {sentence("window: ", n, " keys before the query's own (", n + 1, " with it)")};
    all.push_back(std::move(left));
    for (const std::int64_t shift : {n, -n}) {
      if (n == 0 || !positions) continue;
      Candidate moved;
      moved.recipe.scoring.sight.position_shift = shift;
      moved.fitted = {sentence("queries stand ", shift, " keys from where they should")};
      all.push_back(std::move(moved));
    }
  }
  pool.run(static_cast<std::int64_t>(all.size()), [&](std::int64_t n) {
    Candidate& candidate = all[at_index(n)];
    candidate.fit = fit_of(dump, samples, candidate.recipe, 1);
  });
  tried += static_cast<std::int64_t>(all.size());
  std::erase_if(all, [](const Candidate& candidate) { return !candidate.fit.fits(); });
  return all;
}

}  // namespace

std::vector<Candidate> fit_constants(const Dump& dump, const Samples& samples, ThreadPool& pool,
                                     std::int64_t& tried) {
  std::vector<Task> tasks;
  for (const Constant& constant : constants) {
    if (constant.applies(dump.claim)) tasks.push_back({&constant, nullptr});
  }
  std::vector<Candidate> out = carry_out_all(dump, samples, tasks, pool, tried);
  if (!out.empty()) return out;
  return fit_counts(dump, samples, pool, tried);
}

std::vector<Candidate> fit_constants_beside(const Dump& dump, const Samples& samples,
                                            const std::vector<Candidate>& singles, ThreadPool& pool,
                                            std::int64_t& tried) {
  const std::vector<Candidate> bases = nearest_of(singles);
  std::vector<Task> tasks;
  for (const Constant& constant : constants) {
    if (!constant.applies(dump.claim)) continue;
    for (const Candidate& base : bases) {
      if (is_costly(dump.claim, base.recipe)) continue;  // as among the pairs
      if (!same_axis(base, constant.axis)) tasks.push_back({&constant, &base});
    }
  }
  return carry_out_all(dump, samples, tasks, pool, tried);
}

std::vector<std::string> names_of_scale(const Claim& claim, double scale, double error) {
  const lab::AttentionShape& shape = claim.shape;
  const auto real = [](std::int64_t n) { return static_cast<double>(n); };
  const double d = real(shape.D), hd = real(shape.H * shape.D);
  std::vector<std::pair<std::string, double>> known{
      {"1 (no scale)", 1},
      {"1/D", 1 / d},
      {"1/sqrt(D)", 1 / std::sqrt(d)},
      {"sqrt(D)", std::sqrt(d)},
      {"D", d},
      {"D^(-1/4)", 1 / std::sqrt(std::sqrt(d))},
      {"1/sqrt(H*D)", 1 / std::sqrt(hd)},
      {"1/(H*D)", 1 / hd},
      {"1/sqrt(H)", 1 / std::sqrt(real(shape.H))},
      {"1/sqrt(S)", 1 / std::sqrt(real(shape.S))},
      {"1/sqrt(T)", 1 / std::sqrt(real(shape.T))},
      {"1/sqrt(E)", 1 / std::sqrt(real(shape.E))},
      {"ln(2)/sqrt(D)", std::numbers::ln2 / std::sqrt(d)},
      {"log2(e)/sqrt(D)", std::numbers::log2e / std::sqrt(d)},
      {"1/2", 0.5},
      {"1/sqrt(2)", std::numbers::sqrt2 / 2},
      {"1/(2*sqrt(D))", 0.5 / std::sqrt(d)},
      {"sqrt(2/D)", std::sqrt(2 / d)},
  };
  for (const std::int64_t block : {8, 16, 32, 64, 128}) {
    const std::int64_t padded = (shape.D + block - 1) / block * block;
    if (padded != shape.D) {
      known.emplace_back(sentence("1/sqrt(", padded, "), D padded to a multiple of ", block),
                         1 / std::sqrt(real(padded)));
    }
  }
  if (claim.call.scale) {
    const double own = *claim.call.scale;
    known.insert(known.end(), {{"the claimed scale", own},
                               {"the claimed scale squared", own * own},
                               {"the root of the claimed scale", std::sqrt(std::fabs(own))},
                               {"1/the claimed scale", 1 / own},
                               {"the claimed scale/sqrt(D)", own / std::sqrt(d)}});
  }
  std::vector<std::string> out;
  for (const auto& [name, value] : known) {
    const bool minus = std::fabs(-value / scale - 1) <= error;
    if (!std::isfinite(value) || !(minus || std::fabs(value / scale - 1) <= error)) continue;
    out.push_back(minus ? "-" + name : name);
  }
  return out;
}

std::vector<std::string> constants_of(const Claim& claim, const Recipe& recipe) {
  if (!recipe.scoring.scale) return {};
  const double scale = *recipe.scoring.scale;
  std::string out = "scale = " + six_digits(scale);
  for (const std::string& name : names_of_scale(claim, scale, 1e-12)) out += " = " + name;
  return {out};
}

}  // namespace attest::check
