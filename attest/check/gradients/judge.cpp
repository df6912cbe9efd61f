// SPDX-License-Identifier: MIT
#include "attest/check/gradients/judge.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "attest/base/text.h"
#include "attest/base/threads.h"
#include "attest/check/at_index.h"

namespace attest::check::gradients {
namespace {

std::int64_t count(const auto& list) { return static_cast<std::int64_t>(list.size()); }

/// One thread where starting others takes longer than the work.
int threads_for(const Problem& problem) {
  const auto [B, H, G, T, S, D, E] = problem.shape;
  return static_cast<double>(B * H * T) * static_cast<double>(S * (D + E)) < 1e6 ? 1 : 0;
}

constexpr std::int64_t rows_at_once = 32;  // of each head that is worked on: tables of 32·S numbers

/// Some heads that are worked on together, run of queries after run.
class Heads {
 public:
  Heads(const Problem& problem, const Noise& noise, std::int64_t first, std::int64_t heads,
        ThreadPool& pool)
      : problem_(problem), pool_(pool), forwards_(at_index(heads)) {
    pool.run(heads, [&](std::int64_t n) {
      const std::int64_t head = first + n;
      forwards_[at_index(n)].emplace(problem, noise, head / problem.shape.H,
                                     head % problem.shape.H);
    });
  }

  /// f(tables), for each run of queries.
  template <class F>
  void each_run(F f) {
    std::vector<HeadTable> tables(forwards_.size());
    const std::int64_t T = problem_.shape.T;
    for (std::int64_t begin = 0; begin < T; begin += rows_at_once) {
      pool_.run(static_cast<std::int64_t>(tables.size()), [&](std::int64_t n) {
        tables[at_index(n)] = forwards_[at_index(n)]->run(begin, std::min(T, begin + rows_at_once));
      });
      f(tables);
    }
  }
  [[nodiscard]] const std::vector<double>& per_key(std::size_t n) const {
    return forwards_[n]->per_key();
  }

 private:
  const Problem& problem_;
  ThreadPool& pool_;
  std::vector<std::optional<HeadForward>> forwards_;
};

/// Head 0 of the batch that heads are of, run after run: recipes read it by mistake.
class FirstHeads {
 public:
  explicit FirstHeads(const Sample& all) : all_(all) {}
  /// Beside each table, that of head 0. Tables come in the order of their heads.
  std::vector<const HeadTable*> beside(const std::vector<HeadTable>& tables) {
    held_.clear();
    std::vector<const HeadTable*> out;
    for (const HeadTable& table : tables) {
      auto& kept = of_run_[table.first_place];
      if (table.h == 0 || !kept) {
        const auto rows = std::span(all_.rows).first(table.rows.size());
        kept = std::make_shared<const HeadTable>(part_of(table, rows, {}));
      }
      held_.push_back(kept);
      out.push_back(kept.get());
    }
    return out;
  }

 private:
  const Sample& all_;
  std::map<std::int64_t, std::shared_ptr<const HeadTable>> of_run_;
  std::vector<std::shared_ptr<const HeadTable>> held_;
};

}  // namespace

AllCells whole_pass(const Problem& problem, const Noise& noise, const GradientRecipe& recipe,
                    const std::function<void(double)>& progress) {
  const Sample all = everything(problem.shape);
  Backward back(problem, noise, all, recipe);
  ThreadPool pool(threads_for(problem));
  FirstHeads first_heads(all);
  const std::int64_t groups = problem.shape.B * problem.shape.G;
  const std::int64_t each = problem.shape.H / problem.shape.G;
  for (std::int64_t done = 0; done < groups;) {
    const std::int64_t now = std::min<std::int64_t>(pool.threads(), groups - done);
    std::vector<std::vector<double>> per_key(at_index(now * each));
    if (recipe.rows == RowsTerm::per_key) {  // sums over all queries, before the first is taken
      Heads before(problem, noise, done * each, now * each, pool);
      before.each_run([](const auto&) {});
      for (std::size_t n = 0; n < per_key.size(); ++n) per_key[n] = before.per_key(n);
    }
    Heads heads(problem, noise, done * each, now * each, pool);
    heads.each_run([&](std::vector<HeadTable>& tables) {
      for (std::size_t n = 0; n < tables.size(); ++n) {
        if (!per_key[n].empty()) tables[n].per_key = per_key[n];
      }
      const auto firsts = first_heads.beside(tables);
      pool.run(now, [&](std::int64_t g) {
        for (std::int64_t n = g * each; n < (g + 1) * each; ++n) {
          back.add(tables[at_index(n)], *firsts[at_index(n)], Backward::Sums::both);
        }
      });
      for (std::size_t n = 0; n < tables.size(); ++n) {
        back.add_shared({tables[n], tables[n], *firsts[n], *firsts[n]});
      }
    });
    done += now;
    if (progress) progress(static_cast<double>(done) / static_cast<double>(groups));
  }
  return back.finish();
}

Workspace make_workspace(const Problem& problem, const Noise& noise, const Sample& sample) {
  Workspace out{.problem = problem, .noise = noise, .sample = sample};
  const Sample all = everything(problem.shape);
  const bool whole = sample.rows == all.rows && sample.keys == all.keys;
  ThreadPool pool(threads_for(problem));
  const std::int64_t heads = problem.shape.B * problem.shape.H;
  out.row_tables.resize(at_index(heads));
  if (!whole) out.key_tables.resize(at_index(heads));
  for (std::int64_t done = 0; done < heads;) {
    const std::int64_t now = std::min<std::int64_t>(pool.threads(), heads - done);
    Heads some(problem, noise, done, now, pool);
    some.each_run([&](std::vector<HeadTable>& tables) {
      pool.run(now, [&](std::int64_t n) {
        HeadTable& table = tables[at_index(n)];
        HeadTable& rows = out.row_tables[at_index(done + n)];
        if (whole) return rows.append(std::move(table));
        std::vector<std::int64_t> places;
        for (const std::int64_t i : sample.rows) {
          const std::int64_t place = i - table.first_place;
          if (place >= 0 && place < static_cast<std::int64_t>(table.rows.size()))
            places.push_back(place);
        }
        const auto every = std::span(all.rows).first(table.rows.size());
        rows.append(part_of(table, places, all.keys));
        out.key_tables[at_index(done + n)].append(part_of(table, every, sample.keys));
      });
    });
    done += now;
  }
  return out;
}

double used(double found, double expected, double tolerance) {
  if (std::isnan(found) && std::isnan(expected)) return 0;
  if (found == expected) return 0;
  const double apart = std::fabs(found - expected);
  if (!(apart < std::numeric_limits<double>::infinity())) {
    return std::numeric_limits<double>::infinity();
  }
  return tolerance > 0 ? apart / tolerance : std::numeric_limits<double>::infinity();
}

namespace {

/// "batch1.h2.d_query[0,3]": a leading part is left out where there is only one.
std::string address_of(const ObservedGradient& found, std::size_t place) {
  const Shape& shape = found.values.shape();
  auto flat = static_cast<std::int64_t>(place);
  std::vector<std::int64_t> index(shape.size());
  for (std::size_t axis = shape.size(); axis-- > 0;) {
    index[axis] = flat % shape[axis];
    flat /= shape[axis];
  }
  if (shape.size() != 4) return sentence(name_of(found.of), "[", index[0], "]");
  std::string out;
  if (shape[0] > 1) out += sentence("batch", index[0], ".");
  if (shape[1] > 1) out += sentence("h", index[1], ".");
  return out + sentence(name_of(found.of), "[", index[2], ",", index[3], "]");
}

std::string formula_of(GradientOf of) {
  switch (of) {
    case GradientOf::query:
      return "d_query[i] is the sum over keys of d_dot[i,j] times key[j]";
    case GradientOf::key:
      return "d_key[j] is the sum over queries, and over the heads that read it, of d_dot[i,j] "
             "times "
             "query[i]";
    case GradientOf::value:
      return "d_value[j] is the sum over queries, and over the heads that read it, of weights[i,j] "
             "times d_output[i]";
    case GradientOf::bias:
      return "d_bias[i,j] is weights[i,j] times what d_weights[i,j] and d_log_sum_exp[i] exceed "
             "the "
             "rows term by, summed over the axes that the bias does not have";
    case GradientOf::sink:
      return "d_sink is the sum over batch and queries of the sink's weight times what "
             "d_log_sum_exp[i] exceeds the rows term by";
  }
  return "";
}

/// A set of indices in words: "only head 3", "from query 64 on", "queries 0 to 3"; "" if all that there
/// are, from `least` on.
std::string in_words(const std::set<std::int64_t>& wrong, std::int64_t least, std::int64_t extent,
                     const char* one, const char* many) {
  if (count(wrong) == extent - least || wrong.empty()) return "";
  const std::int64_t first = *wrong.begin(), last = *wrong.rbegin();
  if (wrong.size() == 1) {
    if (last == extent - 1 && extent > 2) return sentence("only the last ", one, " (", last, ")");
    return sentence("only ", one, " ", first);
  }
  if (last - first + 1 != count(wrong)) {
    return sentence(wrong.size(), " of ", extent - least, " ", many);
  }
  if (last == extent - 1) return sentence("from ", one, " ", first, " on");
  return sentence(many, " ", first, " to ", last);
}

}  // namespace

StageJudgement judge(const ObservedGradient& found, std::span<const double> expected,
                     std::span<const double> tolerance) {
  StageJudgement out{.name = found.name, .stage = std::string(name_of(found.of))};
  const auto numbers = found.values.elements();
  const std::int64_t width = found.values.rank() == 4 ? found.values.extent(3) : 1;
  if (found.of == GradientOf::query)
    out.rows.assign(numbers.size() / at_index(std::max<std::int64_t>(width, 1)), 0);
  const auto cell = [&](std::size_t n) {
    return Cell{address_of(found, n), numbers[n], expected[n], tolerance[n], formula_of(found.of)};
  };
  std::optional<std::size_t> first, worst;
  for (std::size_t n = 0; n < numbers.size(); ++n) {
    if (!found.given(n)) continue;
    ++out.compared;
    const double fraction = used(numbers[n], expected[n], tolerance[n]);
    if (std::isnan(numbers[n]) != std::isnan(expected[n])) ++out.nan_apart;
    const double apart = std::fabs(numbers[n] - expected[n]);
    if (apart > out.worst) out.worst = apart;
    if (fraction > 1) {
      ++out.wrong;
      if (!first) first = n;
    }
    if (fraction > out.used || !worst) {
      out.used = std::max(out.used, fraction);
      worst = n;
    }
    if (!out.rows.empty()) {
      float& row = out.rows[n / at_index(width)];
      row = std::max(row, static_cast<float>(fraction));
    }
  }
  if (first) out.first_wrong = cell(*first);
  if (worst) out.worst_cell = cell(*worst);
  return out;
}

std::string where(const ObservedGradient& found, std::span<const double> expected,
                  std::span<const double> tolerance) {
  const auto numbers = found.values.elements();
  const Shape& shape = found.values.shape();
  std::vector<std::set<std::int64_t>> wrong(shape.size());
  for (std::size_t n = 0; n < numbers.size(); ++n) {
    if (!found.given(n) || !(used(numbers[n], expected[n], tolerance[n]) > 1)) continue;
    auto flat = static_cast<std::int64_t>(n);
    for (std::size_t axis = shape.size(); axis-- > 0;) {
      wrong[axis].insert(flat % shape[axis]);
      flat /= shape[axis];
    }
  }
  std::string out;
  const auto say = [&](std::size_t axis, const char* one, const char* many) {
    const std::string words =
        in_words(wrong[axis], axis == 2 ? found.first_key : 0, shape[axis], one, many);
    if (!words.empty()) out += (out.empty() ? "" : ", ") + words;
  };
  if (shape.size() == 1) {
    say(0, "head", "heads");
  } else {
    const bool keys = found.of == GradientOf::key || found.of == GradientOf::value;
    say(0, "batch", "batches");
    say(1, "head", "heads");
    say(2, keys ? "key" : "query", keys ? "keys" : "queries");
    if (found.of == GradientOf::bias) say(3, "key", "keys");
  }
  return sentence(found.name, ": ", out.empty() ? "everywhere" : out);
}

}  // namespace attest::check::gradients
