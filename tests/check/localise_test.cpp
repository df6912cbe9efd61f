// SPDX-License-Identifier: MIT
#include "attest/check/diagnose/localise.h"

#include <gtest/gtest.h>

#include <functional>

namespace attest::check {
namespace {

std::vector<bool> set_of(std::size_t count, const std::vector<std::size_t>& places) {
  std::vector<bool> out(count);
  for (const std::size_t place : places) out[place] = true;
  return out;
}

std::string words(std::size_t count, const std::vector<std::size_t>& places) {
  return places_in_words(set_of(count, places), "query", "queries");
}

TEST(Localise, SaysASetOfPlacesInWords) {
  EXPECT_EQ(words(8, {}), "");
  EXPECT_EQ(words(3, {0, 1, 2}), "");
  EXPECT_EQ(words(8, {3}), "only query 3");
  EXPECT_EQ(words(8, {7}), "only the last query");
  EXPECT_EQ(words(2, {1}), "only query 1");
  EXPECT_EQ(words(4, {0, 1, 3}), "every query but 2");
  EXPECT_EQ(words(4, {0, 1, 2}), "every query but the last");
  EXPECT_EQ(words(8, {5, 6, 7}), "from query 5 on");
  EXPECT_EQ(words(8, {0, 1, 2}), "up to query 2");
  EXPECT_EQ(words(8, {2, 3, 4}), "only queries 2 to 4");
  EXPECT_EQ(words(50, {16, 32, 48}), "only queries 16, 32 and 48: multiples of 16");
  EXPECT_EQ(words(50, {0, 16, 32, 48}), "only queries 0, 16, 32 and 48: multiples of 16");
  EXPECT_EQ(words(50, {16, 48}), "only queries 16 and 48");
  EXPECT_EQ(words(20, {1, 3, 5, 8, 11, 12, 15, 19}), "only queries 1, 3, 5, 8, 11 and 3 more");
}

/// An output [2, 3, 4, 5] of which some numbers are unusual.
Judged marked(const std::function<bool(lab::RowPlace, std::int64_t)>& unusual) {
  static const Observed output{.stage = Stage::output};
  Judged out{.rows = {{.B = 2, .H = 3, .G = 3, .T = 4, .S = 4, .D = 5, .E = 5}},
             .tables = {{&output, 5}},
             .fits = {std::vector<TableFit>(24)},
             .wrong_columns = {std::vector<std::int64_t>(5)},
             .empty = std::vector<bool>(24),
             .hides = std::vector<bool>(24)};
  for (std::int64_t n = 0; n < 24; ++n) {
    for (std::int64_t e = 0; e < 5; ++e) {
      if (!unusual(out.rows.place(n), e)) continue;
      ++out.fits[0][static_cast<std::size_t>(n)].unusual;
      ++out.wrong_columns[0][static_cast<std::size_t>(e)];
    }
  }
  return out;
}

using Sentences = std::vector<std::string>;

TEST(Localise, NamesTheBatchTheHeadTheQueriesAndTheFeatures) {
  const auto at = [](lab::RowPlace row, std::int64_t) { return row.b == 1 && row.h == 2; };
  EXPECT_EQ(localise(marked(at), 0), (Sentences{"only batch 1", "only the last head"}));
  const auto late = [](lab::RowPlace row, std::int64_t) { return row.i >= 2; };
  EXPECT_EQ(localise(marked(late), 0), (Sentences{"from query 2 on"}));
  const auto last = [](lab::RowPlace row, std::int64_t e) { return row.i == 3 && e > 2; };
  EXPECT_EQ(localise(marked(last), 0), (Sentences{"only the last query", "from feature 3 on"}));
  EXPECT_EQ(localise(marked([](auto, auto) { return true; }), 0), (Sentences{"everywhere"}));
  EXPECT_EQ(localise(marked([](auto, auto) { return false; }), 0), (Sentences{}));
}

TEST(Localise, SaysThatTheQueriesSeeNoKeyOrNotEveryKey) {
  Judged judged = marked([](lab::RowPlace row, std::int64_t) { return row.i == 1; });
  for (std::size_t n = 0; n < 24; ++n)
    judged.empty[n] = judged.rows.place(static_cast<std::int64_t>(n)).i == 1;
  judged.hides = judged.empty;
  EXPECT_EQ(localise(judged, 0),
            (Sentences{"exactly the queries that see no key", "only query 1"}));
  judged.empty.assign(24, false);
  EXPECT_EQ(localise(judged, 0),
            (Sentences{"only query 1", "exactly the queries from which a key is hidden"}));
}

}  // namespace
}  // namespace attest::check
