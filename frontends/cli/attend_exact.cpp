// SPDX-License-Identifier: MIT
// attend by the exact tier and by the oracle.
#include <fmt/format.h>

#include <algorithm>

#include "attest/lab/attention.h"
#include "attest/lab/oracle.h"
#include "frontends/cli/attend_tiers.h"
#include "frontends/cli/command.h"

namespace attest::cli {
namespace {

/// In seconds. Longer than that, nobody waits for digits without being sure that they come.
constexpr double longest_oracle = 600;

/// The oracle's numbers as the nearest doubles, in their order.
Tensor<double> nearest(const lab::oracle::OracleTensor& from) {
  Tensor<double> out(from.shape);
  for (std::size_t n = 0; n < from.values.size(); ++n) {
    out.elements()[n] = lab::oracle::nearest_double(from.values[n]);
  }
  return out;
}

/// Which element of `from` stands at each place of the output as it is given out.
std::vector<std::size_t> order_as_given(const LoadedCase& loaded, const Shape& shape) {
  Tensor<double> numbers(shape);
  for (std::size_t n = 0; n < numbers.size(); ++n) numbers.elements()[n] = static_cast<double>(n);
  const Tensor<double> moved = as_given(loaded.given, numbers);
  return {moved.elements().begin(), moved.elements().end()};
}

std::vector<std::string> oracle_texts(const lab::oracle::OracleTensor& from, int digits) {
  std::vector<std::string> out;
  for (const auto& value : from.values) out.push_back(lab::oracle::digits(value, digits));
  return out;
}

/// The output's texts, moved to where its numbers are given out.
std::vector<std::string> output_texts(const LoadedCase& loaded,
                                      const lab::oracle::OracleTensor& output, int digits) {
  const std::vector<std::string> texts = oracle_texts(output, digits);
  std::vector<std::string> out;
  for (const std::size_t n : order_as_given(loaded, output.shape)) out.push_back(texts[n]);
  return out;
}

}  // namespace

Result<Outcome> run_exact(LoadedCase& loaded, const AttendOptions& o) {
  if (auto ok = widen(loaded); !ok) return ok.failure();
  Progress progress("attend");
  const auto result =
      lab::attention(loaded.call.inputs(), loaded.call.options(),
                     o.weights ? lab::Weights::keep : lab::Weights::drop,
                     [&](std::int64_t done, std::int64_t total) { progress.show(done, total); });
  if (!result) return result.failure();
  Outcome out{{{"output", as_given(loaded.given, result->output)}}, "exact tier"};
  if (o.weights) {
    out.results.push_back({"weights", without_missing_axes(loaded.given, result->weights)});
  }
  if (o.log_sum_exp) {
    out.results.push_back({"log_sum_exp", without_missing_axes(loaded.given, result->log_sum_exp)});
  }
  return out;
}

double oracle_seconds(const lab::AttentionShape& s) {
  // Measured on one core of a 2025 processor, D + E from 2 to 512: 10 us a pair of query and key,
  // and 0.1 us more for each number of the two rows.
  double pairs = 1;
  for (const std::int64_t extent : {s.B, s.H, s.T, s.S}) pairs *= static_cast<double>(extent);
  return pairs * 1e-7 * (100 + static_cast<double>(s.D) + static_cast<double>(s.E));
}

Result<Outcome> run_oracle(LoadedCase& loaded, const AttendOptions& o) {
  const double seconds = oracle_seconds(shape_of(loaded));
  if (seconds > longest_oracle) {
    return Failure{ErrorKind::value, "too-large",
                   fmt::format("[attend] --oracle would take about {:.0f} minutes, and {:.0f} are "
                               "the most: take a part of the call, or --compare, which judges the "
                               "engine on --rows N rows by the exact tier",
                               seconds / 60, longest_oracle / 60)};
  }
  if (seconds > 5) note(fmt::format("the oracle takes up to about {:.0f} s", seconds));
  if (auto ok = widen(loaded); !ok) return ok.failure();
  const Progress progress("attend --oracle");
  const auto result = lab::oracle::attention(loaded.call.inputs(), loaded.call.options());
  if (!result) return result.failure();
  const int digits = static_cast<int>(std::max<std::int64_t>(o.style.digits.value_or(50), 2));
  Outcome out{{{"output", as_given(loaded.given, nearest(result->output)),
                output_texts(loaded, result->output, digits)}},
              "oracle"};
  if (o.weights) {
    out.results.push_back({"weights", without_missing_axes(loaded.given, nearest(result->weights)),
                           oracle_texts(result->weights, digits)});
  }
  if (o.log_sum_exp) {
    out.results.push_back({"log_sum_exp",
                           without_missing_axes(loaded.given, nearest(result->log_sum_exp)),
                           oracle_texts(result->log_sum_exp, digits)});
  }
  return out;
}

}  // namespace attest::cli
