// SPDX-License-Identifier: MIT
#include "attest/check/diagnose/localise.h"

#include <algorithm>
#include <numeric>

#include "attest/base/text.h"
#include "attest/check/at_index.h"

namespace attest::check {
namespace {

std::vector<std::int64_t> members(const std::vector<bool>& in, bool which) {
  std::vector<std::int64_t> out;
  for (std::size_t n = 0; n < in.size(); ++n) {
    if (in[n] == which) out.push_back(static_cast<std::int64_t>(n));
  }
  return out;
}

bool is_run(const std::vector<std::int64_t>& places) {
  return !places.empty() &&
         places.back() - places.front() + 1 == static_cast<std::int64_t>(places.size());
}

/// "3", "2 and 5", "1, 4 and 7", "1, 4, 7 and 12 more".
std::string listed(const std::vector<std::int64_t>& places) {
  constexpr std::size_t most = 6;
  std::string out;
  const std::size_t shown = places.size() <= most ? places.size() : most - 1;
  for (std::size_t n = 0; n < shown; ++n) {
    const bool last = n + 1 == shown && shown == places.size();
    out += (n == 0 ? "" : last ? " and " : ", ") + sentence(places[n]);
  }
  if (shown < places.size()) out += sentence(" and ", places.size() - shown, " more");
  return out;
}

/// The step of which all are multiples, if it is not 1, and all multiples but perhaps 0 are there.
std::int64_t common_step(const std::vector<std::int64_t>& places, std::int64_t count) {
  std::int64_t step = 0;
  for (const std::int64_t place : places) step = std::gcd(step, place);
  if (step < 2) return 0;
  const std::int64_t all = (count - 1) / step + (places.front() == 0 ? 1 : 0);
  return all == static_cast<std::int64_t>(places.size()) && places.size() > 1 ? step : 0;
}

/// Which batches, heads and queries have unusual numbers.
struct Marks {
  std::vector<bool> batches, heads, queries;
};
Marks marks_of(const Judged& judged, std::size_t table) {
  const lab::AttentionShape& shape = judged.rows.shape;
  Marks out{std::vector<bool>(at_index(shape.B)), std::vector<bool>(at_index(shape.H)),
            std::vector<bool>(at_index(shape.T))};
  for (std::int64_t n = 0; n < judged.rows.count(); ++n) {
    if (judged.fits[table][at_index(n)].unusual == 0) continue;
    const lab::RowPlace at = judged.rows.place(n);
    out.batches[at_index(at.b)] = true;
    out.heads[at_index(at.h)] = true;
    out.queries[at_index(at.i)] = true;
  }
  return out;
}

/// Whether exactly the rows of this kind are unusual, or only such rows.
enum class Kind { none, some_of, exactly };
Kind rows_of_kind(const Judged& judged, std::size_t table, const std::vector<bool>& kind) {
  bool any = false, every = true, others = true;
  for (std::size_t n = 0; n < kind.size(); ++n) {
    const bool unusual = judged.fits[table][n].unusual > 0;
    if (unusual && !kind[n]) return Kind::none;
    any = any || unusual;
    every = every && (unusual || !kind[n]);
    others = others && kind[n];
  }
  if (!any || others) return Kind::none;
  return every ? Kind::exactly : Kind::some_of;
}

}  // namespace

std::string places_in_words(const std::vector<bool>& in, std::string_view one,
                            std::string_view many) {
  const std::vector<std::int64_t> inside = members(in, true), outside = members(in, false);
  const auto count = static_cast<std::int64_t>(in.size());
  if (inside.empty() || outside.empty()) return "";
  if (inside.size() == 1) {
    if (inside.front() == count - 1 && count > 2) return sentence("only the last ", one);
    return sentence("only ", one, " ", inside.front());
  }
  if (outside.size() == 1 && count > 2) {
    if (outside.front() == count - 1) return sentence("every ", one, " but the last");
    return sentence("every ", one, " but ", outside.front());
  }
  if (is_run(inside) && inside.back() == count - 1) {
    return sentence("from ", one, " ", inside.front(), " on");
  }
  if (is_run(inside) && inside.front() == 0) return sentence("up to ", one, " ", inside.back());
  if (is_run(inside)) return sentence("only ", many, " ", inside.front(), " to ", inside.back());
  std::string out = sentence("only ", many, " ", listed(inside));
  if (const std::int64_t step = common_step(inside, count)) {
    out += sentence(": multiples of ", step);
  }
  return out;
}

std::vector<std::string> localise(const Judged& judged, std::size_t table) {
  std::vector<std::string> out;
  if (judged.total(table).unusual == 0) return out;
  const auto say = [&](std::string words) {
    if (!words.empty()) out.push_back(std::move(words));
  };
  const Kind empty = rows_of_kind(judged, table, judged.empty);
  const Kind hides = rows_of_kind(judged, table, judged.hides);
  const Marks marks = marks_of(judged, table);
  if (empty == Kind::exactly) say("exactly the queries that see no key");
  if (empty == Kind::some_of) say("only queries that see no key");
  say(places_in_words(marks.batches, "batch", "batches"));
  say(places_in_words(marks.heads, "head", "heads"));
  say(places_in_words(marks.queries, "query", "queries"));
  if (empty == Kind::none && hides == Kind::exactly) {
    say("exactly the queries from which a key is hidden");
  } else if (empty == Kind::none && hides == Kind::some_of) {
    say("only queries from which a key is hidden");
  }
  std::vector<bool> columns;
  for (const std::int64_t count : judged.wrong_columns[table]) columns.push_back(count > 0);
  const Stage stage = judged.tables[table].observed->stage;
  if (stage == Stage::output) say(places_in_words(columns, "feature", "features"));
  if (stage < Stage::log_sum_exp) say(places_in_words(columns, "key", "keys"));
  if (out.empty()) out.emplace_back("everywhere");
  return out;
}

}  // namespace attest::check
