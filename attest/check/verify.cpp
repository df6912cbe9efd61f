// SPDX-License-Identifier: MIT
#include "attest/check/verify.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "attest/base/text.h"
#include "attest/check/verify_record.h"
#include "attest/lab/trace.h"

namespace attest::check {

// ---- the record -------------------------------------------------------------------------------

namespace {
constexpr std::size_t kept_failures = 5;
}

std::string address_of(const Spot& spot, const Shape& shape, std::size_t n) {
  lab::Address out{std::string(spot.stage), std::vector<std::int64_t>(shape.size())};
  auto rest = static_cast<std::int64_t>(n);
  for (std::size_t axis = shape.size(); axis-- > 0;) {
    out.index[axis] = rest % shape[axis];
    rest /= shape[axis];
  }
  return spot.subject.empty() ? out.text() : std::string(spot.subject) + ": " + out.text();
}

void Recorder::fail(const std::string& address, double found, double expected, double allowed) {
  ++check_.failed;
  if (check_.failures.size() < kept_failures) {
    check_.failures.push_back({address, found, expected, allowed});
  }
}

void Recorder::equal(double found, double expected, const std::string& address) {
  ++check_.assertions;
  if (!(found == expected)) fail(address, found, expected, 0);
}

void Recorder::near(double found, double expected, double allowed, const std::string& address) {
  ++check_.assertions;
  if (!(std::abs(found - expected) <= allowed)) fail(address, found, expected, allowed);
}

void Recorder::inside(double found, const Range& range, const std::string& address) {
  ++check_.assertions;
  if (!(found >= range.low - range.allowed)) {
    fail(address, found, range.low, range.allowed);
  } else if (!(found <= range.high + range.allowed)) {
    fail(address, found, range.high, range.allowed);
  }
}

void Recorder::that(bool holds, const std::string& address) {
  ++check_.assertions;
  if (!holds) fail(address, 0, 1, 0);
}

void Recorder::within(const Tensor<double>& found, const lab::oracle::OracleTensor& expected,
                      const Tensor<double>& bound, const Spot& spot) {
  if (found.shape() != expected.shape || found.shape() != bound.shape()) {
    that(false, std::string(spot.subject) + ": " + std::string(spot.stage) + " has shape " +
                    to_string(found.shape()) + ", expected " + to_string(expected.shape));
    return;
  }
  for (std::size_t n = 0; n < found.size(); ++n) {
    ++check_.assertions;
    const double allowed = bound.elements()[n];
    const double used = lab::used_fraction(found.elements()[n], expected.values[n], allowed);
    if (used > check_.used) {
      check_.used = used;
      check_.used_at = address_of(spot, found.shape(), n);
    }
    if (!(used <= 1)) {
      fail(address_of(spot, found.shape(), n), found.elements()[n],
           lab::oracle::nearest_double(expected.values[n]), allowed);
    }
  }
}

void Recorder::same_bits(const Tensor<double>& found, const Tensor<double>& expected,
                         const Spot& spot) {
  if (found.shape() != expected.shape()) {
    that(false, std::string(spot.subject) + ": " + std::string(spot.stage) + " has another shape");
    return;
  }
  for (std::size_t n = 0; n < found.size(); ++n) {
    ++check_.assertions;
    const double a = found.elements()[n];
    const double b = expected.elements()[n];
    if (std::bit_cast<std::uint64_t>(a) != std::bit_cast<std::uint64_t>(b)) {
      fail(address_of(spot, found.shape(), n), a, b, 0);
    }
  }
}

void add_check(VerifySection& section, std::string name, std::string about,
               const std::function<void(Recorder&)>& work) {
  VerifyCheck check;
  check.name = std::move(name);
  check.about = std::move(about);
  Recorder recorder(check);
  work(recorder);
  section.checks.push_back(std::move(check));
}

// ---- what is verified -------------------------------------------------------------------------

Implementation Implementation::exact_tier() {
  Implementation out;
  out.attention = [](const AttentionInputs<double>& inputs,
                     const AttentionOptions<double>& options) {
    return lab::attention(inputs, options);
  };
  out.attention_backward = lab::attention_backward;
  out.block = [](const Tensor<double>& rows, const lab::workbook::BlockParameters& parameters,
                 const lab::workbook::AttentionOptions& options) {
    return lab::workbook::transformer_block(rows, parameters, {.causal = options.causal});
  };
  out.matmul = lab::workbook::matmul;
  out.softmax = lab::workbook::softmax;
  return out;
}

AttentionCase one_head(const Tensor<double>& query, const Tensor<double>& key,
                       const Tensor<double>& value) {
  const auto lifted = [](const Tensor<double>& rows) {
    return Tensor<double>(rows).reshaped({1, 1, rows.extent(0), rows.extent(1)});
  };
  AttentionCase out;
  out.query = lifted(query);
  out.key = lifted(key);
  out.value = lifted(value);
  return out;
}

Tensor<double> rows_of(std::initializer_list<std::initializer_list<double>> rows) {
  std::vector<double> numbers;
  for (const auto& row : rows) numbers.insert(numbers.end(), row.begin(), row.end());
  return Tensor<double>(
      {static_cast<std::int64_t>(rows.size()), static_cast<std::int64_t>(rows.begin()->size())},
      numbers);
}

namespace {

Failure wrong_shape(std::string_view name, const Shape& found, const Shape& expected) {
  return {ErrorKind::shape, "wrong-shape",
          sentence("[verify] ", name, " has shape ", to_string(found), ", expected ",
                   to_string(expected))};
}

/// A result of another shape becomes a failure, so that no section looks past its end.
Implementation guarded(const Implementation& use) {
  Implementation out = use;
  out.attention = [&use](const AttentionInputs<double>& inputs,
                         const AttentionOptions<double>& options) {
    auto result = use.attention(inputs, options);
    if (!result) return result;
    const auto [B, H, T, D] = inputs.query.extents;
    const Shape output{B, H, T, inputs.value.extent(3)};
    const Shape weights{B, H, T, inputs.key.extent(2)};
    const Shape sums{B, H, T};
    if (result->output.shape() != output) {
      result = wrong_shape("output", result->output.shape(), output);
    } else if (result->weights.shape() != weights) {
      result = wrong_shape("weights", result->weights.shape(), weights);
    } else if (result->log_sum_exp.shape() != sums) {
      result = wrong_shape("log_sum_exp", result->log_sum_exp.shape(), sums);
    }
    return result;
  };
  out.block = [&use](const Tensor<double>& rows, const lab::workbook::BlockParameters& parameters,
                     const lab::workbook::AttentionOptions& options) {
    auto result = use.block(rows, parameters, options);
    if (!result) return result;
    const Shape map{rows.extent(0), rows.extent(0)};
    const bool maps = result->maps.size() == 2 && result->maps[0].shape() == map &&
                      result->maps[1].shape() == map;
    if (result->output.shape() != rows.shape()) {
      result = wrong_shape("output", result->output.shape(), rows.shape());
    } else if (!maps) {
      result = Failure{ErrorKind::shape, "wrong-shape", "[verify] two maps of [L, L] are expected"};
    }
    return result;
  };
  return out;
}

EvaluatedCase evaluate(VerifyCase c, const Implementation& use) {
  const auto inputs = c.call.inputs();
  const auto options = c.call.options();
  auto found = use.attention(inputs, options);
  auto expected = lab::oracle::attention(inputs, options);
  auto bound = lab::bound_attention(inputs, options);
  return {std::move(c), std::move(found), std::move(expected), std::move(bound)};
}

}  // namespace

VerifyReport verify(const VerifyOptions& options) {
  using Section = VerifySection (*)(const VerifyContext&);
  struct Named {
    const char* name;
    Section run;
  };
  constexpr Named sections[] = {{"hand-calculated facts", verify_facts},
                                {"invariants", verify_invariants},
                                {"oracle", verify_against_oracle},
                                {"future change", verify_future_change},
                                {"permutation and constants", verify_permutation},
                                {"gradients", verify_gradients},
                                {"block and layers", verify_layers},
                                {"elementary functions", verify_elementary},
                                {"errors", verify_errors}};
  VerifyReport report;
  report.seed = options.seed;
  report.cases = std::max(options.cases, release_cases);
  const Implementation use = guarded(options.implementation);
  VerifyContext context{options, use, {}};
  for (std::int64_t n = 0; n < report.cases; ++n) {
    context.cases.push_back(evaluate(workbook_case(options.seed, n), context.use));
  }
  for (std::int64_t n = 0; n < report.cases; ++n) {
    context.cases.push_back(evaluate(general_case(options.seed, n), context.use));
  }
  for (const Named& section : sections) {
    if (options.progress) {
      options.progress(section.name, std::ssize(report.sections), std::ssize(sections));
    }
    report.sections.push_back(section.run(context));
    report.sections.back().name = section.name;
  }
  return report;
}

std::int64_t VerifySection::assertions() const {
  std::int64_t count = 0;
  for (const VerifyCheck& check : checks) count += check.assertions;
  return count;
}
std::int64_t VerifySection::failed() const {
  std::int64_t count = 0;
  for (const VerifyCheck& check : checks) count += check.failed;
  return count;
}
std::int64_t VerifyReport::assertions() const {
  std::int64_t count = 0;
  for (const VerifySection& section : sections) count += section.assertions();
  return count;
}
std::int64_t VerifyReport::failed() const {
  std::int64_t count = 0;
  for (const VerifySection& section : sections) count += section.failed();
  return count;
}

bool VerifyReport::passed() const {
  for (const VerifySection& section : sections) {
    for (const VerifyCheck& check : section.checks) {
      if (check.assertions == 0 || check.failed > 0) return false;
    }
  }
  return !sections.empty();
}

const VerifySection* VerifyReport::find(std::string_view name) const {
  for (const VerifySection& section : sections) {
    if (section.name == name) return &section;
  }
  return nullptr;
}

}  // namespace attest::check
