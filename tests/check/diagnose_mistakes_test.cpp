// SPDX-License-Identifier: MIT
// Every recorded mistake of shared/data/mistakes judged from its numbers alone, clean and under noise.
//
//     ./dev confusion    prints the table of docs/accuracy.md, and what cannot be told apart
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <map>

#include "attest/base/random.h"
#include "attest/base/text.h"
#include "attest/check/diagnose/diagnosis.h"
#include "attest/check/mistakes/evaluate.h"
#include "tests/support/draws.h"
#include "tests/support/mistake_dumps.h"
#include "tests/support/shared_files.h"

namespace attest::check {
namespace {

using test::MistakeSet;

/// How the data call a mistake, and how the catalogue does, where the two differ.
const std::multimap<std::string, std::string, std::less<>>& other_names() {
  static const std::multimap<std::string, std::string, std::less<>> names{
      {"scale.sqrt_heads", "scale.sqrt_half_width"},  // D = 2·H
      {"tail.zero_keys_counted_to16", "tail.zero_keys_counted (8)"},
      {"num.scores_bf16", "num.scaled_bf16"},
      {"num.scores_f16", "num.scaled_f16"},
      {"rope.base_5e5", "rope.base (5e+05)"},
      {"plain", "sink.missing"},
      {"gqa.all_kv0", "heads.all_use_kv0"},
      {"mask.neg10_fill", "mask.finite_fill (-10)"},
      {"mask.zero_scores", "mask.all_zero_scores"},
  };
  return names;
}

/// Whether a label is the catalogue's for this name: "scale.padded_head_dim (32)" for
/// "scale.padded_head_dim32".
bool is_called(std::string_view label, std::string_view name) {
  const auto [first, last] = other_names().equal_range(name);
  if (std::any_of(first, last, [&](const auto& other) { return label == other.second; })) {
    return true;
  }
  const std::string_view bare = label.substr(0, label.find(" ("));
  if (bare == name) return true;
  // The data write a value behind the name.
  if (bare == label || !name.starts_with(bare)) return false;
  const std::string value(label.substr(bare.size() + 2, label.size() - bare.size() - 3));
  return name.ends_with(value);
}

std::string label_of(const Explanation& explanation) {
  std::string out;
  for (const Made& made : explanation.mistakes) out += (out.empty() ? "" : " + ") + made.label();
  for (const std::string& fitted : explanation.fitted) out += " [" + fitted + "]";
  return out;
}

/// In the set `sink`, what is no mistake in the sink was computed without one: two mistakes.
bool is_second_beside_sink(const Explanation& best, std::string_view name) {
  if (best.mistakes.size() != 2) return false;
  const auto is_sink = [](const Made& made) {
    return made.mistake->name == "sink.missing" || made.mistake->name == "sink.added_to_all_scores";
  };
  return (is_sink(best.mistakes[0]) && is_called(best.mistakes[1].label(), name)) ||
         (is_sink(best.mistakes[1]) && is_called(best.mistakes[0].label(), name));
}

bool names_one(const Diagnosis& diagnosis, std::string_view name) {
  if (diagnosis.explanations.empty()) return false;
  const Explanation& best = diagnosis.explanations.front();
  if (best.mistakes.size() == 1 && is_called(best.mistakes[0].label(), name)) return true;
  if (is_second_beside_sink(best, name)) return true;
  return std::ranges::any_of(best.same,
                             [&](const std::string& same) { return is_called(same, name); });
}

bool same_numbers(const Tensor<double>& a, const Tensor<double>& b);

/// By its own name, or by that of another output that is the same.
bool names_it(const MistakeSet& set, const Diagnosis& diagnosis, std::string_view name) {
  if (names_one(diagnosis, name)) return true;
  const Tensor<double>& own = *set.find(name);
  return std::ranges::any_of(set.outputs, [&](const auto& other) {
    return other.second.shape() == own.shape() && same_numbers(other.second, own) &&
           names_one(diagnosis, other.first);
  });
}

bool same_numbers(const Tensor<double>& a, const Tensor<double>& b) {
  double most = 0, size = 0;
  for (std::size_t n = 0; n < a.size(); ++n) {
    if (std::isnan(a.data()[n]) != std::isnan(b.data()[n])) return false;
    if (std::isnan(a.data()[n])) continue;
    most = std::max(most, std::fabs(a.data()[n] - b.data()[n]));
    size = std::max(size, std::fabs(a.data()[n]));
  }
  return most <= 1e-6 * size;
}

struct Counts {
  int named = 0, right = 0, missed = 0;
};

void judge_set(const MistakeSet& set, Counts& counts) {
  const bool print = std::getenv("ATTEST_CONFUSION") != nullptr;
  const Tensor<double>& correct = *set.find("correct");
  std::size_t turn = 0;
  for (const auto& [name, output] : set.outputs) {
    if (turn++ % test::stride(2) != 0) continue;
    const Dump dump = set.dump(output);
    const auto diagnosis = diagnose(dump);
    ASSERT_TRUE(diagnosis.has_value()) << diagnosis.failure().message;
    const bool right = name == "correct" || same_numbers(output, correct);
    bool fine = false;
    if (right) {
      fine = diagnosis->judgement == Judgement::right;
      counts.right += fine ? 1 : 0;
    } else if (diagnosis->judgement == Judgement::wrong_named) {
      fine = names_it(set, *diagnosis, name);
      counts.named += fine ? 1 : 0;
    }
    if (!fine) ++counts.missed;
    if (print || !fine) {
      std::cout << set.name << "\t" << name << "\t" << (fine ? "ok" : "MISSED") << "\t"
                << name_of(diagnosis->judgement) << "\t"
                << (diagnosis->explanations.empty() ? "" : label_of(diagnosis->explanations[0]))
                << "\t" << diagnosis->margin << "\n";
    }
    EXPECT_TRUE(fine) << set.name << " " << name << "\n" << to_text(dump, *diagnosis);
  }
}

TEST(DiagnoseMistakes, NamesEveryRecordedOneAndClearsTheRightOnes) {
  Counts counts;
  for (const std::string& name : test::mistake_set_names()) {
    const auto set = test::read_mistake_set(name);
    if (!set) GTEST_SKIP() << test::not_shared;
    judge_set(*set, counts);
  }
  std::cout << "right " << counts.right << ", named " << counts.named << ", missed "
            << counts.missed << "\n";
}

/// What a program of that type could have given: noise of half a unit of the row, then stored.
Tensor<double> noisy(const Tensor<double>& output, DType dtype, std::uint64_t seed) {
  Tensor<double> out = output;
  Random random(seed);
  const double unit = dtype == DType::bf16 ? 0x1p-8 : dtype == DType::f16 ? 0x1p-11 : 0x1p-24;
  const auto width = static_cast<std::size_t>(output.extent(3));
  for (std::size_t row = 0; row < out.size() / width; ++row) {
    double squares = 0;
    for (std::size_t e = 0; e < width; ++e) {
      const double x = output.data()[row * width + e];
      squares += std::isfinite(x) ? x * x : 0;
    }
    const double size = unit * std::sqrt(squares / static_cast<double>(width));
    for (std::size_t e = 0; e < width; ++e) {
      double& x = out.data()[row * width + e];
      x += size * random.bell();
      if (dtype == DType::bf16) x = to_double(to_bfloat16(x));
      if (dtype == DType::f16) x = to_double(to_half(x));
      if (dtype == DType::f32) x = static_cast<double>(to_float_nearest(x));
    }
  }
  return out;
}

Precision precision_of(DType dtype) {
  return dtype == DType::bf16  ? Precision::bf16
         : dtype == DType::f16 ? Precision::f16
                               : Precision::f32;
}

TEST(DiagnoseMistakes, ConvictsNoRightOutputUnderNoise) {
  const std::array<DType, 3> dtypes{DType::f32, DType::f16, DType::bf16};
  const char* draws_text = std::getenv("ATTEST_DRAWS");
  const std::uint64_t draws =
      test::draws(3, draws_text != nullptr ? std::strtoull(draws_text, nullptr, 10) : 24);
  int convicted = 0, right = 0, by_rounding = 0;
  for (const std::string& name : test::mistake_set_names()) {
    auto set = test::read_mistake_set(name);
    if (!set) GTEST_SKIP() << test::not_shared;
    for (const DType dtype : dtypes) {
      set->claim.precision = precision_of(dtype);
      for (std::uint64_t seed = 0; seed < draws; ++seed) {
        const Dump dump = set->dump(noisy(*set->find("correct"), dtype, seed), dtype);
        const auto diagnosis = diagnose(dump);
        ASSERT_TRUE(diagnosis.has_value()) << diagnosis.failure().message;
        const bool is_right = diagnosis->judgement == Judgement::right;
        const bool rounded = diagnosis->judgement == Judgement::right_by_rounding;
        right += is_right ? 1 : 0;
        by_rounding += rounded ? 1 : 0;
        if (is_right || rounded) continue;
        ++convicted;
        EXPECT_TRUE(false) << name << " " << attest::name_of(dtype) << " seed " << seed << "\n"
                           << to_text(dump, *diagnosis);
      }
    }
  }
  EXPECT_EQ(convicted, 0);
  std::cout << "right " << right << ", within rounding " << by_rounding << ", convicted "
            << convicted << "\n";
}

double distance(const Tensor<double>& a, const Tensor<double>& b) {
  double apart = 0, size = 0;
  for (std::size_t n = 0; n < a.size(); ++n) {
    const double x = a.data()[n], y = b.data()[n];
    if (std::isnan(x) != std::isnan(y)) return std::numeric_limits<double>::infinity();
    if (std::isnan(x)) continue;
    apart += (x - y) * (x - y);
    size += x * x;
  }
  return std::sqrt(apart / size);
}

/// The relative distance to the nearest other output that is not the same in exact arithmetic.
double to_nearest(const MistakeSet& set, const std::string& name, const Tensor<double>& output) {
  double out = std::numeric_limits<double>::infinity();
  for (const auto& [other, numbers] : set.outputs) {
    if (other == name || same_numbers(output, numbers)) continue;
    if (numbers.shape() == output.shape()) out = std::min(out, distance(output, numbers));
  }
  return out;
}

/// The output that these mistakes give.
Tensor<double> output_of(const Dump& dump, const std::vector<Made>& mistakes) {
  Recipe recipe;
  for (const Made& made : mistakes) {
    EXPECT_TRUE(made.mistake->make(recipe, dump.claim, made.value));
  }
  auto evaluation = Evaluation::make(dump, recipe);
  Tensor<double> out(dump.stages.front().values.shape());
  const lab::AttentionShape& s = dump.claim.shape;
  for (std::int64_t n = 0; n < s.B * s.H * s.T; ++n) {
    const StageRow& row = evaluation->row({n / (s.H * s.T), n / s.T % s.H, n % s.T});
    std::copy(row.output.begin(), row.output.end(), out.data() + n * s.E);
  }
  return out;
}

enum class Answer { named, unsure, neighbour, missed };

/// `neighbour`: a mistake was named that is nearer to the right one than three times the noise.
Answer answer_of(const MistakeSet& set, const std::string& name, const Tensor<double>& output,
                 const Dump& dump, const Diagnosis& diagnosis) {
  const double noise = distance(output, dump.stages.front().values);
  const bool wrong = diagnosis.judgement == Judgement::wrong_named;
  if (wrong && names_it(set, diagnosis, name)) return Answer::named;
  const auto near = [&](const Explanation& one) {
    return distance(output, output_of(dump, one.mistakes)) < 3 * noise;
  };
  const auto& found = diagnosis.explanations;
  if (wrong) return near(found[0]) ? Answer::neighbour : Answer::missed;
  if (diagnosis.judgement == Judgement::wrong_unexplained) return Answer::missed;
  const bool by_data = to_nearest(set, name, output) < 3 * noise;
  // The catalogue may have a nearer neighbour than the data have.
  const bool by_catalogue = found.size() > 1 && near(found[0]) && near(found[1]);
  return by_data || by_catalogue ? Answer::unsure : Answer::missed;
}

/// How many of one set's mistakes were answered how, and which were not told apart.
struct Confusion {
  std::map<std::pair<std::string, DType>, std::array<int, 4>> counts{};  // by set; an Answer each
  std::vector<std::string> apart{};
  std::size_t turn = 0;  // of all sets together: a part of the draws must not be the first of each

  [[nodiscard]] int total(Answer answer) const {
    int out = 0;
    for (const auto& [key, of] : counts) out += of[static_cast<std::size_t>(answer)];
    return out;
  }
};

constexpr std::array noisy_types{DType::f32, DType::f16, DType::bf16};

/// Named, cannot tell, a nearer neighbour named, missed: "41, 2, 0, 0".
std::string cell(const std::array<int, 4>& counts) {
  return sentence(counts[0], ", ", counts[1], ", ", counts[2], ", ", counts[3]);
}

/// As docs/accuracy.md shows it.
void print(const Confusion& confusion) {
  std::cout << "\nnamed, cannot tell, a nearer neighbour named, missed:\n\n"
            << "| set | f32 | f16 | bf16 |\n| --- | --- | --- | --- |\n";
  std::array<std::array<int, 4>, 3> all{};
  for (const std::string& name : test::mistake_set_names()) {
    std::cout << "| " << name;
    for (std::size_t n = 0; n < noisy_types.size(); ++n) {
      const auto found = confusion.counts.find({name, noisy_types[n]});
      const std::array<int, 4> counts =
          found == confusion.counts.end() ? std::array<int, 4>{} : found->second;
      std::cout << " | " << cell(counts);
      for (std::size_t k = 0; k < counts.size(); ++k) all[n][k] += counts[k];
    }
    std::cout << " |\n";
  }
  std::cout << "| all | " << cell(all[0]) << " | " << cell(all[1]) << " | " << cell(all[2])
            << " |\n\nnot told apart, or a nearer neighbour named:\n\n";
  for (const std::string& line : confusion.apart) std::cout << line << "\n";
}

void judge_noisy_set(const MistakeSet& set, DType dtype, Confusion& confusion) {
  const Tensor<double>& correct = *set.find("correct");
  for (const auto& [name, output] : set.outputs) {
    if (name == "correct" || same_numbers(output, correct)) continue;
    if (confusion.turn++ % test::stride(8) != 0) continue;
    const Dump dump = set.dump(noisy(output, dtype, 7), dtype);
    const auto diagnosis = diagnose(dump);
    ASSERT_TRUE(diagnosis.has_value()) << diagnosis.failure().message;
    const Answer answer = answer_of(set, name, output, dump, *diagnosis);
    ++confusion.counts[{set.name, dtype}][static_cast<std::size_t>(answer)];
    if (answer != Answer::named) {
      constexpr std::array names{"named", "cannot tell", "neighbour", "MISSED"};
      std::string line = sentence(attest::name_of(dtype), " ", set.name, ": ", name, ": ",
                                  names[static_cast<std::size_t>(answer)]);
      for (std::size_t n = 0; n < std::min<std::size_t>(2, diagnosis->explanations.size()); ++n) {
        const std::string label = label_of(diagnosis->explanations[n]);
        line += (n == 0 ? ": " : " / ") + (label.empty() ? "as claimed" : label);
      }
      confusion.apart.push_back(line);
    }
    EXPECT_NE(answer, Answer::missed)
        << set.name << " " << name << " " << attest::name_of(dtype) << "\n"
        << to_text(dump, *diagnosis);
  }
}

TEST(DiagnoseMistakes, NamesThemUnderNoiseOrSaysThatItCannotTell) {
  Confusion confusion;
  for (const std::string& name : test::mistake_set_names()) {
    auto set = test::read_mistake_set(name);
    if (!set) GTEST_SKIP() << test::not_shared;
    for (const DType dtype : noisy_types) {
      set->claim.precision = precision_of(dtype);
      judge_noisy_set(*set, dtype, confusion);
    }
  }
  if (std::getenv("ATTEST_CONFUSION") != nullptr) print(confusion);
  const int named = confusion.total(Answer::named), unsure = confusion.total(Answer::unsure);
  std::cout << "named " << named << ", cannot tell " << unsure << ", a nearer neighbour named "
            << confusion.total(Answer::neighbour) << ", missed " << confusion.total(Answer::missed)
            << "\n";
  // One in ten of all; a part may happen to hold more of those that lie close together.
  EXPECT_GT(named, 0);
  EXPECT_LT((test::all_draws() ? 10 : 5) * unsure, named);
}

}  // namespace
}  // namespace attest::check
