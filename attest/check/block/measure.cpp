// SPDX-License-Identifier: MIT
#include "attest/check/block/measure.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace attest::check::block {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

/// How far two tables are apart, relative to the first.
double apart(const Numbers& a, const Numbers& b) {
  if (a.value.size() != b.value.size()) return infinity;
  double squares = 0, size = 0;
  for (std::size_t n = 0; n < a.value.size(); ++n) {
    const double d = a.value[n] - b.value[n];
    if (d != d) {  // a NaN, or ∞ − ∞
      if ((a.value[n] != a.value[n]) != (b.value[n] != b.value[n])) return infinity;
      continue;
    }
    squares += d * d;
    size += a.value[n] * a.value[n];
  }
  return squares == 0 ? 0 : std::sqrt(squares / std::max(size, 1e-300));
}

}  // namespace

bool Outcome::explains() const {
  return std::all_of(fits.begin(), fits.end(), [](const Fit& fit) { return fit.good(); });
}

std::size_t Outcome::good_links() const {
  return static_cast<std::size_t>(
      std::count_if(fits.begin(), fits.end(), [](const Fit& fit) { return fit.good(); }));
}

double Outcome::distance() const {
  double squares = 0;
  for (const Fit& fit : fits) squares += fit.distance * fit.distance;
  return fits.empty() ? 0 : std::sqrt(squares / static_cast<double>(fits.size()));
}

bool nearer(const Outcome& a, const Outcome& b) {
  if (a.good_links() != b.good_links()) return a.good_links() > b.good_links();
  return a.distance() < b.distance();
}

Measurer::Measurer(const Trial& trial) : trial_(trial) {
  const Recompute run = trial.start(trial.claim, Noise::with);
  for (std::size_t l = 0; l < trial.links.size(); ++l) {
    claimed_.push_back(run(l));
    claim_.fits.push_back(fit_of(trial.links[l].found, claimed_.back(), trial.zones));
    claim_.changes.push_back(0);
    double spread = 0, size = 0;
    for (std::size_t n = 0; n < claimed_.back().value.size(); ++n) {
      spread += claimed_.back().variance[n];
      size += trial.links[l].found.value[n] * trial.links[l].found.value[n];
    }
    // Beyond this no table is looked at with its noise: fifty times the claim's, and of its own size.
    reject_.push_back(size > 0 ? 50 * std::sqrt(spread / size) + 200 * trial.unit : infinity);
    if (!(reject_.back() == reject_.back())) reject_.back() = infinity;
  }
}

Outcome Measurer::measure(const BlockRecipe& recipe) {
  Outcome out;
  ++tried;
  const Recompute quick = trial_.start(recipe, Noise::without);
  Recompute careful;
  for (std::size_t l = 0; l < trial_.links.size(); ++l) {
    Numbers numbers = quick(l);
    if (numbers.empty()) return {};
    out.changes.push_back(apart(claimed_[l], numbers) > 1e-14 ? 1 : 0);
    if (out.changes.back() == 0) {
      out.fits.push_back(claim_.fits[l]);
      continue;
    }
    const double distance = apart(trial_.links[l].found, numbers);
    if (!(distance <= reject_[l])) {
      out.fits.push_back({distance / std::max(reject_[l], 1e-300) * 50, infinity, infinity});
      continue;
    }
    if (!careful) careful = trial_.start(recipe, Noise::with);
    out.fits.push_back(fit_of(trial_.links[l].found, careful(l), trial_.zones));
  }
  return out;
}

Fit fit_of(const Numbers& found, const Numbers& recomputed, const Zones& zones) {
  if (recomputed.value.size() != found.value.size()) return {infinity, infinity, infinity};
  Fit out;
  double squares = 0;
  for (std::size_t n = 0; n < found.value.size(); ++n) {
    const double a = found.value[n], b = recomputed.value[n];
    if (a != a && b != b) continue;
    const double d = std::fabs(a - b);
    if (d == 0 || a == b) continue;
    if (!(d < infinity)) return {infinity, infinity, infinity};
    const double most = zones.most(recomputed, n), typical = zones.typical(recomputed, n);
    const double deviation = recomputed.deviation_at(n) * zones.safety;
    out.used = std::max(out.used, most > 0 ? d / most : infinity);
    out.unusual = std::max(out.unusual, typical > 0 ? d / typical : infinity);
    const double share = deviation > 0 ? std::min(d / deviation, 1e6) : 1e6;
    squares += share * share;
  }
  if (!found.value.empty()) {
    out.distance = std::sqrt(squares / static_cast<double>(found.value.size()));
  }
  return out;
}

}  // namespace attest::check::block
