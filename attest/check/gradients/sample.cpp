// SPDX-License-Identifier: MIT
#include "attest/check/gradients/sample.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "attest/check/at_index.h"
#include "attest/check/gradients/judge.h"

namespace attest::check::gradients {
namespace {

std::int64_t count(const auto& list) { return static_cast<std::int64_t>(list.size()); }

/// How many deviations the worst number of each query, or key, is off.
std::vector<double> used_by_place(const Problem& problem, const AllCells& right,
                                  std::initializer_list<GradientOf> of, std::int64_t length) {
  std::vector<double> out(at_index(length), 0);
  for (const ObservedGradient& found : problem.dump.gradients) {
    const Cells& cells = right[static_cast<std::size_t>(found.of)];
    if (std::ranges::find(of, found.of) == of.end()) continue;
    if (found.values.size() != cells.value.size()) continue;
    const auto width = at_index(found.values.extent(3));
    for (std::size_t n = 0; n < cells.value.size(); ++n) {
      if (!found.given(n)) continue;
      double& place = out[n / width % at_index(length)];
      place = std::max(place, used(found.values.elements()[n], cells.value[n], cells.noise[n]));
    }
  }
  return out;
}

std::vector<std::int64_t> telling(const std::vector<double>& used_by) {
  const std::int64_t length = count(used_by);
  std::vector<std::int64_t> order(used_by.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::greater<>{},
                           [&](std::int64_t n) { return used_by[at_index(n)]; });
  order.resize(std::min<std::size_t>(4, order.size()));
  for (const std::int64_t n : {std::int64_t{0}, length / 3, 2 * length / 3, length - 1}) {
    order.push_back(n);
  }
  const auto is_wrong = [](double deviations_off) { return deviations_off > deviations; };
  const auto first = std::ranges::find_if(used_by, is_wrong);
  if (first != used_by.end()) {
    const auto last = std::find_if(used_by.rbegin(), used_by.rend(), is_wrong);
    const std::int64_t begin = first - used_by.begin(), end = used_by.rend() - last;
    for (const std::int64_t n : {begin - 1, begin, end - 1, end}) {
      if (n >= 0 && n < length) order.push_back(n);
    }
  }
  std::ranges::sort(order);
  order.erase(std::unique(order.begin(), order.end()), order.end());
  return order;
}

}  // namespace

Sample telling_sample(const Problem& problem, const AllCells& right) {
  const auto by_query = used_by_place(problem, right, {GradientOf::query}, problem.shape.T);
  const auto by_key =
      used_by_place(problem, right, {GradientOf::key, GradientOf::value}, problem.shape.S);
  return {telling(by_query), telling(by_key)};
}

Workspace few_cells(const Workspace& workspace) {
  const Sample& sample = workspace.sample;
  const auto pick = [](std::int64_t length, std::initializer_list<std::int64_t> at) {
    std::vector<std::int64_t> out;
    for (const std::int64_t n : at) {
      if (n < length && (out.empty() || n > out.back())) out.push_back(n);
    }
    return out;
  };
  const std::int64_t rows = count(sample.rows), keys = count(sample.keys);
  const auto row_places = pick(rows, {0, rows / 2, rows - 1});
  const auto key_places = pick(keys, {0, keys / 3});
  const Sample all = everything(workspace.problem.shape);
  Workspace out{.problem = workspace.problem, .noise = workspace.noise};
  for (const std::int64_t n : row_places) out.sample.rows.push_back(sample.rows[at_index(n)]);
  for (const std::int64_t n : key_places) out.sample.keys.push_back(sample.keys[at_index(n)]);
  const auto& by_keys = workspace.whole() ? workspace.row_tables : workspace.key_tables;
  for (std::size_t n = 0; n < by_keys.size(); ++n) {
    out.row_tables.push_back(part_of(workspace.row_tables[n], row_places, all.keys));
    out.key_tables.push_back(part_of(by_keys[n], all.rows, key_places));
  }
  return out;
}

std::size_t most_paired(const Workspace& few) {
  const auto [B, H, G, T, S, D, E] = few.problem.shape;
  const auto rows = static_cast<double>(count(few.sample.rows) * S);
  const auto keys = static_cast<double>(count(few.sample.keys) * T);
  const auto width = static_cast<double>(D + E);
  const double cost =
      static_cast<double>(B * H) * (rows * (40 + 3 * width) + keys * (40 + 2 * width));
  return static_cast<std::size_t>(std::clamp(std::sqrt(8e9 / cost), 12.0, 1000.0));
}

double products_of(const Problem& problem) {
  const auto [B, H, G, T, S, D, E] = problem.shape;
  return static_cast<double>(B * H * T) * static_cast<double>(S * (2 * D + 3 * E));
}

int most_whole_passes(const Problem& problem) {
  return static_cast<int>(std::clamp(4e10 / products_of(problem), 2.0, 64.0));
}

}  // namespace attest::check::gradients
