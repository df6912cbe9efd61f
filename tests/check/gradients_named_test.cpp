// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <map>
#include <set>

#include "attest/base/text.h"
#include "attest/check/gradients/gradient_mistakes.h"
#include "tests/check/gradients_dumps.h"
#include "tests/check/gradients_mistakes.h"
#include "tests/support/draws.h"

/// Mistakes that are made in the tests' own program are named.
namespace attest::test {
namespace {

using check::Diagnosis;
using check::Judgement;

using Kind = GradientDump (*)(std::uint64_t, DType);
const Kind kinds[] = {wide_dump, square_dump, rope_dump, corner_dump};

/// The names of an explanation: its own, and those that give the same numbers.
bool names(const check::Explanation& explanation, const std::string& name) {
  for (const auto& made : explanation.mistakes) {
    if (made.mistake->name == name) return true;
  }
  for (const std::string& label : explanation.same) {
    for (std::size_t begin = 0; begin < label.size();) {
      const std::size_t end = std::min(label.find(" + ", begin), label.size());
      const std::string one = label.substr(begin, end - begin);
      if (one == name || one.starts_with(name + " (")) return true;
      begin = end + 3;
    }
  }
  return false;
}

std::string text_of(const Diagnosis& diagnosis) {
  std::string out = sentence("judgement ", static_cast<int>(diagnosis.judgement));
  for (const auto& explanation : diagnosis.explanations) {
    out += ";";
    for (const auto& made : explanation.mistakes)
      out += sentence(" ", made.mistake->name, " ", made.value);
    for (const auto& line : explanation.fitted) out += sentence(" {", line, "}");
    if (!explanation.same.empty()) out += sentence(" = ", explanation.same.front());
    out += sentence(" at ", explanation.distance);
  }
  for (const auto& explanation : diagnosis.nearest) {
    out +=
        sentence("; near ", explanation.mistakes.front().mistake->name, " ", explanation.distance);
  }
  for (const auto& stage : diagnosis.stages)
    out += sentence("; ", stage.stage, " used ", stage.used);
  return out;
}

struct Count {
  int made = 0, named = 0, unseen = 0;
};

Diagnosis diagnosed(GradientDump& dump, const std::vector<const Made*>& mistakes) {
  Mine program(dump);
  for (const Made* made : mistakes) program.mistakes.emplace(made->after, made->step);
  program.run();
  dump.gradients = program.gradients();
  auto out = check::diagnose_gradients(dump);
  EXPECT_TRUE(out) << out.failure().message;
  return out ? *out : Diagnosis{};
}

bool fits_shape(const Made& made, const GradientDump& dump) {
  const AttentionCase& call = dump.claim.call;
  const bool square = call.query.shape() == call.key.shape();
  if (made.name.ends_with("_transposed") || made.name.ends_with("_swapped")) return square;
  return true;
}

/// Made in this dump and diagnosed; false where the dump cannot show it.
bool make_one(const Made& mistake, GradientDump dump, std::uint64_t seed, Count& count) {
  if (!fits_shape(mistake, dump)) return false;
  const Diagnosis out = diagnosed(dump, {&mistake});
  if (out.judgement == Judgement::right) {
    ++count.unseen;
    return false;
  }
  ++count.made;
  const bool named = out.judgement == Judgement::wrong_named && !out.explanations.empty() &&
                     out.explanations.front().mistakes.size() == 1 &&
                     names(out.explanations.front(), mistake.name);
  count.named += named ? 1 : 0;
  if (!named)
    std::printf("seed %d %s: %s\n", static_cast<int>(seed), mistake.name.c_str(),
                text_of(out).c_str());
  return true;
}

TEST(DiagnoseGradients, NamesEveryMistake) {
  std::map<std::string, Count> counts;
  const std::vector<Made> made = all_made();
  constexpr std::size_t places = 2 * std::size(kinds);  // two seeds of each kind
  for (std::size_t n = 0; n < made.size(); n += stride(1)) {
    for (std::size_t place = 0; place < places; ++place) {
      // In turn, so that those who stop at the first do not all stop at the same.
      const std::size_t turn = (n + place) % places;
      const std::uint64_t seed = 1 + turn / std::size(kinds);
      GradientDump dump = kinds[turn % std::size(kinds)](seed, DType::f32);
      const bool shown = make_one(made[n], std::move(dump), seed, counts[made[n].name]);
      if (shown && !all_draws()) break;
    }
  }
  int all = 0, named = 0;
  for (const auto& [name, count] : counts) {
    EXPECT_GT(count.made, 0) << name << " is never seen";
    EXPECT_GE(count.named * 10, count.made * 9) << name;
    all += count.made;
    named += count.named;
  }
  std::printf("%d of %d named, %d mistakes\n", named, all, static_cast<int>(counts.size()));
  EXPECT_GE(named * 100, all * 99);
}

/// What a mistake is an answer to. Two answers to one question are not made together.
std::string question_of(const std::string& name) {
  const std::pair<const char*, std::vector<const char*>> questions[] = {
      {"mask", {"mask_", "causal_", "window_", "allow_", "documents_"}},
      {"factor", {"sign_", "doubled", "halved", "batch_mean", "query_mean", "mean_loss", "other_"}},
      {"softmax", {"softmax_", "rows_term", "weights_", "dropout_not_reused_rows"}},
      {"order", {"layout_", "heads_reversed", "d_query_d_key", "d_key_d_value", "batches_"}},
      {"blocks",
       {"last_keys", "first_keys", "last_queries", "first_queries", "d_key_last", "d_query_last"}}};
  for (const auto& [question, starts] : questions) {
    for (const char* start : starts) {
      if (name.starts_with(std::string("gradient.") + start)) return question;
    }
  }
  const std::size_t from = name.find('.') + 1;
  return name.substr(from,
                     name.find('_', from + 3) - from);  // "scale", "d_bias", "sink", "heads", …
}

/// Whether a mistake leaves nothing to see of another: gradients that are zero.
bool hides_others(const GradientDump& made) {
  for (const auto& gradient : made.gradients) {
    for (const double x : gradient.values.elements()) {
      if (x != 0) return false;
    }
  }
  return true;
}

// Of 120 seeds, 38 of 40 pairs are named. The others make a rows term of its own from d_weights of keys
// that the mask no longer hides; recipes make it from those that the forward pass saw.
TEST(DiagnoseGradients, NamesPairs) {
  const std::vector<Made> made = all_made();
  int all = 0, named = 0, one_named = 0;
  double slowest = 0;
  for (std::uint64_t seed = 1; seed <= draws(18, 120); ++seed) {
    Random random(seed, 3);
    GradientDump dump = kinds[seed % std::size(kinds)](seed, DType::f32);
    const Made& a = made[static_cast<std::size_t>(
        random.between(0, static_cast<std::int64_t>(made.size()) - 1))];
    const Made& b = made[static_cast<std::size_t>(
        random.between(0, static_cast<std::int64_t>(made.size()) - 1))];
    if (question_of(a.name) == question_of(b.name) || !fits_shape(a, dump) || !fits_shape(b, dump))
      continue;
    GradientDump first = dump, second = dump;
    const Diagnosis alone_a = diagnosed(first, {&a}), alone_b = diagnosed(second, {&b});
    if (alone_a.judgement == Judgement::right || alone_b.judgement == Judgement::right) continue;
    if (hides_others(first) || hides_others(second)) continue;
    const auto start = std::chrono::steady_clock::now();
    const Diagnosis out = diagnosed(dump, {&a, &b});
    slowest = std::max(
        slowest, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    ++all;
    bool has_a = false, has_b = false;
    if (!out.explanations.empty()) {
      has_a = names(out.explanations.front(), a.name),
      has_b = names(out.explanations.front(), b.name);
    }
    named += has_a && has_b ? 1 : 0;
    one_named += has_a || has_b ? 1 : 0;
    if (!has_a || !has_b)
      std::printf("seed %d %s + %s: %s\n", static_cast<int>(seed), a.name.c_str(), b.name.c_str(),
                  text_of(out).c_str());
  }
  std::printf("%d of %d pairs named, %d with one of them; slowest %.2f s\n", named, all, one_named,
              slowest);
  EXPECT_GE(named * 100, all * 95);
}

}  // namespace
}  // namespace attest::test
