// SPDX-License-Identifier: MIT
// Prints one hash for each part of the exact tier, over results on inputs that are the same
// everywhere. The test builds this program with several compilers and optimisation levels and
// requires equal output; the program itself repeats everything under a hostile host environment.
#include <bit>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

#include "attest/base/attention_case.h"
#include "attest/base/random.h"
#include "attest/lab/attention.h"
#include "attest/lab/attention_backward.h"
#include "attest/lab/elementary.h"
#include "attest/lab/exact_sum.h"
#include "attest/lab/positions.h"
#include "attest/lab/workbook.h"

namespace {

using namespace attest;

/// FNV-1a over the bits of numbers; every NaN counts as the same one.
class Hash {
 public:
  void add(double value) {
    const std::uint64_t bits =
        value == value ? std::bit_cast<std::uint64_t>(value) : 0x7FF8ULL << 48U;
    for (unsigned byte = 0; byte < 8; ++byte) {
      state_ = (state_ ^ ((bits >> (8 * byte)) & 0xFFU)) * 0x100000001B3ULL;
    }
  }
  void add(const Tensor<double>& values) {
    for (const double value : values.elements()) add(value);
  }
  [[nodiscard]] std::uint64_t value() const { return state_; }

 private:
  std::uint64_t state_ = 0xCBF29CE484222325ULL;
};

using Hashes = std::vector<std::pair<std::string, std::uint64_t>>;

/// Arguments made before the host environment is disturbed: any bits, and the usual range.
std::vector<double> arguments() {
  Random random(1);
  std::vector<double> out;
  for (int n = 0; n < 3000; ++n) out.push_back(std::bit_cast<double>(random.bits()));
  for (int n = 0; n < 3000; ++n) out.push_back(random.uniform(-20, 20));
  return out;
}

AttentionCase random_case() {
  Random random(2);
  AttentionCase call;
  call.query = Tensor<double>({2, 4, 5, 3});
  call.key = Tensor<double>({2, 2, 7, 3});
  call.value = Tensor<double>({2, 2, 7, 6});
  call.bias = Tensor<double>({1, 4, 5, 7});
  for (auto* tensor : {&call.query, &call.key, &call.value, &*call.bias}) {
    for (double& x : tensor->elements()) x = random.bell();
  }
  call.mask = Mask::causal_bottom_right();
  call.mask.window.left = 4;
  call.softcap = 3.5;
  call.sink = {0.5, -1, 2, 0.125};
  call.alibi_slopes = lab::alibi_slopes(4);
  return call;
}

Hashes hashes(const std::vector<double>& numbers, const AttentionCase& call) {
  Hashes out;
  const std::pair<const char*, double (*)(double) noexcept> functions[] = {
      {"exp", lab::exp}, {"exp2", lab::exp2}, {"log", lab::log}, {"tanh", lab::tanh},
      {"erf", lab::erf}, {"sin", lab::sin},   {"cos", lab::cos}};
  for (const auto& [name, function] : functions) {
    Hash hash;
    for (const double x : numbers) hash.add(function(x));
    out.emplace_back(name, hash.value());
  }
  Hash sums;
  for (std::size_t n = 3000; n + 64 < numbers.size(); n += 7)
    sums.add(lab::exact_sum({&numbers[n], 64}));
  out.emplace_back("exact_sum", sums.value());

  Hash attention;
  if (const auto result = lab::attention(call.inputs(), call.options())) {
    attention.add(result->output);
    attention.add(result->weights);
    attention.add(result->log_sum_exp);
    const lab::AttentionOutputGradients back{std::as_const(result->output).view<4>(),
                                             std::as_const(result->log_sum_exp).view<3>()};
    if (const auto gradients = lab::attention_backward(call.inputs(), call.options(), back)) {
      attention.add(gradients->d_query);
      attention.add(gradients->d_key);
      attention.add(gradients->d_value);
      attention.add(gradients->d_bias);
      attention.add(gradients->d_sink);
    }
  }
  out.emplace_back("attention", attention.value());

  Hash block;
  if (const auto result = lab::workbook::transformer_block(lab::workbook::fixture::rows())) {
    for (const auto& stage : result->stages) block.add(stage.values);
  }
  out.emplace_back("block", block.value());
  return out;
}

}  // namespace

int main() {
  const std::vector<double> numbers = arguments();
  const AttentionCase call = random_case();
  const Hashes plain = hashes(numbers, call);
  for (const auto& [name, value] : plain) {
    std::printf("%-10s %016llx\n", name.c_str(), static_cast<unsigned long long>(value));
  }
#if defined(__SSE2__)
  // Flush-to-zero, denormals-are-zero, and each rounding mode: nothing may change.
  for (const unsigned rounding : {0x0000U, 0x2000U, 0x4000U, 0x6000U}) {
    const unsigned before = _mm_getcsr();
    _mm_setcsr((before & ~0x6000U) | 0x8040U | rounding);
    const Hashes disturbed = hashes(numbers, call);
    _mm_setcsr(before);
    if (disturbed != plain) {
      std::printf("another result under host mode %04x\n", rounding);
      return 1;
    }
  }
#endif
  return 0;
}
