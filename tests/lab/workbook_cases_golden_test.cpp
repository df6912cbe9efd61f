// SPDX-License-Identifier: MIT
// Recorded cases of the workbook's own program. Products must agree bit for bit. Elsewhere a
// recording may differ for two reasons only: the exp of the C library that it ran on, or
// (x-mean)**2 by its pow, was not correctly rounded. Such a difference is not believed but
// reproduced, by computing the case again with exactly that function; any other difference fails.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <functional>
#include <iostream>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "attest/io/json.h"
#include "attest/lab/elementary.h"
#include "attest/lab/oracle/real.h"
#include "attest/lab/workbook.h"
#include "tests/support/bits.h"
#include "tests/support/matrices.h"
#include "tests/support/shared_files.h"
#include "tests/support/whole_sum.h"

namespace attest::lab::workbook {
namespace {

using test::Rows;
using test::same_bits;

constexpr double infinity = std::numeric_limits<double>::infinity();

/// The two functions that a recording may have had otherwise.
struct Functions {
  std::function<double(double)> exp;
  std::function<double(double)> square;
};

/// The workbook's formulas once more, on nested rows, with sums in whole numbers.
class Recomputed {
 public:
  explicit Recomputed(Functions functions) : functions_(std::move(functions)) {}

  [[nodiscard]] std::vector<double> softmax(const std::vector<double>& scores) const {
    double peak = -infinity;
    for (const double x : scores) peak = std::max(peak, x);
    std::vector<double> out;
    for (const double x : scores) out.push_back(functions_.exp(x - peak));
    const double total = test::whole_sum(out);
    for (double& x : out) x /= total;
    return out;
  }

  static Rows matmul(const Rows& left, const Rows& right) {
    Rows out;
    for (const auto& row : left) {
      out.emplace_back();
      for (std::size_t j = 0; j < right.front().size(); ++j) {
        std::vector<double> products;
        for (std::size_t n = 0; n < row.size(); ++n) products.push_back(row[n] * right[n][j]);
        out.back().push_back(test::whole_sum(products));
      }
    }
    return out;
  }

  struct Attention {
    Rows output, weights;
  };
  [[nodiscard]] Attention attention(const Rows& q, const Rows& k, const Rows& v, bool causal,
                                    const Rows& allow) const {
    Attention out;
    for (std::size_t i = 0; i < q.size(); ++i) {
      std::vector<double> scores;
      for (std::size_t j = 0; j < k.size(); ++j) {
        std::vector<double> products;
        for (std::size_t d = 0; d < q[i].size(); ++d) products.push_back(q[i][d] * k[j][d]);
        const bool seen = (allow.empty() || allow[i][j] != 0) && (!causal || j <= i);
        const double root = std::sqrt(static_cast<double>(q[i].size()));
        scores.push_back(seen ? test::whole_sum(products) / root : -infinity);
      }
      out.weights.push_back(softmax(scores));
    }
    out.output = matmul(out.weights, v);
    return out;
  }

  [[nodiscard]] Rows normalise(const Rows& rows) const {
    Rows out;
    for (const auto& row : rows) {
      const auto count = static_cast<double>(row.size());
      const double mean = test::whole_sum(row) / count;
      std::vector<double> squares;
      for (const double x : row) squares.push_back(functions_.square(x - mean));
      const double variance = test::whole_sum(squares) / count;
      out.emplace_back();
      for (const double x : row) out.back().push_back((x - mean) / std::sqrt(variance + 1e-5));
    }
    return out;
  }

  static Rows add(Rows a, const Rows& b) {
    for (std::size_t i = 0; i < a.size(); ++i) {
      for (std::size_t j = 0; j < a[i].size(); ++j) a[i][j] += b[i][j];
    }
    return a;
  }

  struct Block {
    Rows output;
    std::vector<Rows> maps;
  };
  [[nodiscard]] Block block(const Rows& x, bool causal) const {
    const BlockParameters p;
    const auto rows_of = [](const Tensor<double>& t) {
      Rows out(static_cast<std::size_t>(t.extent(0)));
      for (std::size_t n = 0; n < t.size(); ++n) {
        out[n / static_cast<std::size_t>(t.extent(1))].push_back(t.elements()[n]);
      }
      return out;
    };
    Block out;
    Rows joined(x.size());
    for (const auto* projection : {&p.P1, &p.P2}) {
      const Rows head = matmul(x, rows_of(*projection));
      const Attention result = attention(head, head, head, causal, {});
      out.maps.push_back(result.weights);
      for (std::size_t i = 0; i < x.size(); ++i) {
        joined[i].insert(joined[i].end(), result.output[i].begin(), result.output[i].end());
      }
    }
    const Rows hidden = normalise(add(x, matmul(joined, rows_of(p.WO))));
    Rows activated = matmul(hidden, rows_of(p.W1));
    for (auto& row : activated) {
      for (double& value : row) value = std::max(0.0, value);
    }
    out.output = normalise(add(hidden, matmul(activated, rows_of(p.W2))));
    return out;
  }

 private:
  Functions functions_;
};

// ---- Reading the cases.

double number_of(const io::Json& json) {
  if (json.is(io::Json::Kind::null)) return -infinity;  // among softmax scores
  if (const auto* whole = json.integer_if()) return static_cast<double>(*whole);
  if (const auto* number = json.double_if()) return *number;
  ADD_FAILURE() << "no number at byte " << json.offset();
  return 0;
}

Rows rows_of(const io::Json& json) {
  Rows out;
  for (const io::Json& row : json.items()) {
    out.emplace_back();
    for (const io::Json& x : row.items()) {
      const bool* flag = x.boolean_if();
      out.back().push_back(flag != nullptr ? static_cast<double>(*flag) : number_of(x));
    }
  }
  return out;
}

std::vector<double> flat(const Rows& rows) {
  std::vector<double> out;
  for (const auto& row : rows) out.insert(out.end(), row.begin(), row.end());
  return out;
}

std::vector<double> flat(const Tensor<double>& tensor) {
  return {tensor.elements().begin(), tensor.elements().end()};
}

/// One recorded case: what we give for it, or nothing for an error; and the same recomputed.
struct Case {
  const io::Json& json;

  [[nodiscard]] Rows rows(const char* name) const { return rows_of(*json.find(name)); }
  [[nodiscard]] std::string op() const { return *json.find("op")->string_if(); }
  [[nodiscard]] bool causal() const { return *json.find("causal")->boolean_if(); }
  [[nodiscard]] std::vector<double> scores() const {
    std::vector<double> out;
    for (const io::Json& x : json.find("scores")->items()) out.push_back(number_of(x));
    return out;
  }

  [[nodiscard]] std::vector<double> expected() const {
    const io::Json& expect = *json.find("expect");
    std::vector<double> out;
    const auto append = [&](const Rows& rows) {
      const auto numbers = flat(rows);
      out.insert(out.end(), numbers.begin(), numbers.end());
    };
    if (op() == "matmul") append(rows_of(*expect.find("product")));
    if (op() == "softmax") {
      for (const io::Json& x : expect.find("weights")->items()) out.push_back(number_of(x));
    }
    if (op() == "attention" || op() == "block") append(rows_of(*expect.find("output")));
    if (op() == "attention") append(rows_of(*expect.find("weights")));
    if (op() == "block") {
      for (const io::Json& map : expect.find("maps")->items()) append(rows_of(map));
    }
    return out;
  }

  [[nodiscard]] std::optional<std::vector<double>> ours() const {
    const auto both = [](std::vector<double> a, const std::vector<double>& b) {
      a.insert(a.end(), b.begin(), b.end());
      return a;
    };
    if (op() == "matmul") {
      const auto found = matmul(test::matrix_of(rows("left")), test::matrix_of(rows("right")));
      if (found) return flat(*found);
    } else if (op() == "softmax") {
      const auto found = softmax(scores());
      if (found) return flat(*found);
    } else if (op() == "attention") {
      AttentionOptions options{.causal = causal(), .allow = {}};
      if (const Rows allow = rows("allow"); !allow.empty()) {
        options.allow = Tensor<bool>(
            {static_cast<std::int64_t>(allow.size()), static_cast<std::int64_t>(allow[0].size())});
        for (std::size_t n = 0; n < options.allow->size(); ++n) {
          options.allow->elements()[n] = flat(allow)[n] != 0;
        }
      }
      const auto found = attention(test::matrix_of(rows("query")), test::matrix_of(rows("key")),
                                   test::matrix_of(rows("value")), options);
      if (found) return both(flat(found->output), flat(found->weights));
    } else {
      const auto found = transformer_block(test::matrix_of(rows("rows")), {}, {.causal = causal()});
      if (found) return both(both(flat(found->output), flat(found->maps[0])), flat(found->maps[1]));
    }
    return std::nullopt;
  }

  [[nodiscard]] std::vector<double> again(const Functions& functions) const {
    const Recomputed with(functions);
    std::vector<double> out;
    const auto append = [&](const Rows& rows) {
      const auto numbers = flat(rows);
      out.insert(out.end(), numbers.begin(), numbers.end());
    };
    if (op() == "matmul") append(Recomputed::matmul(rows("left"), rows("right")));
    if (op() == "softmax") return with.softmax(scores());
    if (op() == "attention") {
      const auto found =
          with.attention(rows("query"), rows("key"), rows("value"), causal(), rows("allow"));
      append(found.output);
      append(found.weights);
    }
    if (op() == "block") {
      const auto found = with.block(rows("rows"), causal());
      append(found.output);
      for (const Rows& map : found.maps) append(map);
    }
    return out;
  }
};

// ---- Judging them.

double our_square(double x) { return x * x; }
double their_square(double x) {
  // Python's ** of floats is the C library's pow; volatile keeps a compiler from making x * x of
  // it.
  volatile double two = 2;
  return std::pow(x, two);
}
double their_exp(double x) {
  const double theirs = std::exp(x);
  const double right = lab::exp(x);
  // Where they differ, ours must be the one that is nearest to the true value.
  if (!same_bits(theirs, right)) {
    const double nearest = oracle::nearest_double(oracle::exp(oracle::Real(x)));
    EXPECT_TRUE(same_bits(right, nearest)) << "exp(" << test::hex(x) << ")";
  }
  return theirs;
}

struct Counts {
  int equal = 0, by_exp = 0, by_square = 0, by_both = 0, errors = 0;
};

/// Which of the two functions explains a difference; fails if none does.
void judge(const Case& one, Counts& counts, const std::string& which) {
  const auto found = one.ours();
  if (one.json.find("error") != nullptr) {
    EXPECT_FALSE(found.has_value()) << which << " must be an error";
    ++counts.errors;
    return;
  }
  ASSERT_TRUE(found.has_value()) << which << " must not be an error";
  const auto ours = [](double x) { return lab::exp(x); };
  ASSERT_TRUE(same_bits(*found, one.again({ours, our_square})))
      << which << ", by the test's formulas";
  const auto expected = one.expected();
  if (same_bits(*found, expected)) {
    ++counts.equal;
    return;
  }
  ASSERT_NE(one.op(), "matmul") << which << " must agree bit for bit";
  if (same_bits(one.again({their_exp, our_square}), expected)) {
    ++counts.by_exp;
  } else if (same_bits(one.again({ours, their_square}), expected)) {
    ++counts.by_square;
  } else if (same_bits(one.again({their_exp, their_square}), expected)) {
    ++counts.by_both;
  } else {
    ADD_FAILURE() << which << " differs, and neither exp nor the square explains it: "
                  << same_bits(*found, expected).message();
  }
}

/// Every line of a file of cases; returns how many.
int judge_file(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  int lines = 0;
  Counts counts;
  while (std::getline(file, line)) {
    if (line.empty()) continue;
    ++lines;
    const std::string which = path.substr(path.rfind('/') + 1) + " line " + std::to_string(lines);
    const auto json = io::parse_json(line, which);
    if (!json) {
      ADD_FAILURE() << json.failure().message;
      continue;
    }
    judge(Case{*json}, counts, which);
  }
  std::cout << "  " << lines << " cases: " << counts.equal << " equal bit for bit, "
            << counts.by_exp << " attributed to exp, " << counts.by_square
            << " attributed to the square, " << counts.by_both << " to both, " << counts.errors
            << " errors\n";
  return lines;
}

TEST(WorkbookCases, OurRecordingAgreesOrIsAttributed) {
  EXPECT_EQ(judge_file(ATTEST_SOURCE_DIR "/tests/golden/workbook_cases.jsonl"), 240);
}

TEST(WorkbookCases, TheReleaseRecordingAgreesOrIsAttributed) {
  const auto path = test::shared_path("data/workbook/cases.jsonl");
  if (!path) GTEST_SKIP() << test::not_shared;
  EXPECT_EQ(judge_file(path->string()), 500);
}

}  // namespace
}  // namespace attest::lab::workbook
