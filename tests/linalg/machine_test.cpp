// SPDX-License-Identifier: MIT
#include "attest/linalg/machine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <vector>

#include "attest/linalg/kernels/machine.h"

namespace {

using namespace attest;

std::vector<Isa> present_sets() {
  std::vector<Isa> out;
  for (const IsaState& row : instruction_sets()) {
    if (row.present) out.push_back(row.isa);
  }
  return out;
}

/// The f32 loops that this machine runs.
std::vector<const kernels::MachineKernels*> present_loops() {
  std::vector<const kernels::MachineKernels*> out{&kernels::portable::machine};
#if defined(__x86_64__)
  for (const Isa isa : present_sets()) {
    if (isa == Isa::avx2) out.push_back(&kernels::avx2::machine);
    if (isa == Isa::avx512) out.push_back(&kernels::avx512::machine);
  }
#endif
  return out;
}

std::vector<const kernels::Bf16Kernels*> present_bf16_loops() {
  std::vector<const kernels::Bf16Kernels*> out;
#if defined(__x86_64__)
  for (const Isa isa : present_sets()) {
    if (isa == Isa::avx512bf16) out.push_back(&kernels::avx512bf16::machine_bf16);
    if (isa == Isa::amx) out.push_back(&kernels::amx::machine_bf16);
  }
#endif
  return out;
}

double shortest(float (*loop)(std::int64_t), std::int64_t rounds) {
  using Clock = std::chrono::steady_clock;
  double out = std::numeric_limits<double>::infinity();
  for (int sample = 0; sample < 9; ++sample) {
    const auto begin = Clock::now();
    volatile float result = loop(rounds);
    static_cast<void>(result);
    out = std::min(out, std::chrono::duration<double>(Clock::now() - begin).count());
  }
  return out;
}

constexpr Sampling quick{.threads = 1, .samples = 3, .seconds = 0.0005};

TEST(Machine, LoopsComputeWhatTheirFlopsSay) {
  for (const auto* loops : present_loops()) {
    for (const std::int64_t rounds : {0, 1, 1000}) {
      EXPECT_EQ(loops->multiply_add(rounds), static_cast<float>(loops->multiply_add_flops));
    }
  }
  for (const auto* loops : present_bf16_loops()) {
    for (const std::int64_t rounds : {0, 1, 1000}) {
      EXPECT_EQ(loops->multiply_add(rounds), 2.0F * static_cast<float>(rounds));
    }
  }
}

// A loop that the compiler has shortened takes the same time for any number of rounds, or promises
// more than a fused multiply-add a chain every two cycles can give. The clock is not known, but no
// processor has one above 10 GHz, and no core finishes a step of a chain of dependent operations in
// less than two cycles.
TEST(Machine, NoRoundIsLeftOut) {
  const auto demand = [](float (*loop)(std::int64_t)) {
    constexpr std::int64_t rounds = 100000;
    constexpr double two_cycles = 2e-10;
    EXPECT_GT(shortest(loop, rounds), two_cycles * rounds);
    EXPECT_GT(shortest(loop, 64 * rounds), 8 * shortest(loop, rounds));
  };
  for (const auto* loops : present_loops()) demand(loops->multiply_add);
  for (const auto* loops : present_bf16_loops()) demand(loops->multiply_add);
}

TEST(Machine, ReadingVisitsEveryNumberOnce) {
  for (const auto* loops : present_loops()) {
    for (const std::int64_t steps : {0, 1, 5}) {
      for (const std::int64_t rest : {std::int64_t{0}, std::int64_t{1}, loops->read_step - 1}) {
        // Powers of two at places that differ, so that neither a gap nor a repetition keeps the sum;
        // beyond the last whole step a NaN, which must not be read into it.
        const std::int64_t whole = steps * loops->read_step;
        std::vector<float> numbers(static_cast<std::size_t>(whole + rest),
                                   std::numeric_limits<float>::quiet_NaN());
        float expected = 0;
        for (std::int64_t at = 0; at < whole; ++at) {
          const auto number = static_cast<float>(at + 1);  // whole numbers: the sum is exact
          numbers[static_cast<std::size_t>(at)] = number;
          expected += number;
        }
        EXPECT_EQ(loops->read(numbers.data(), whole + rest), expected);
      }
    }
  }
}

TEST(Machine, EveryPresentSetHasItsLimits) {
  for (const Isa isa : present_sets()) {
    for (const auto& rate : {measure_f32_peak(isa, quick), measure_bf16_peak(isa, quick)}) {
      ASSERT_TRUE(rate.has_value()) << name_of(isa);
      EXPECT_GT(rate->median, 0) << name_of(isa);
      EXPECT_GE(rate->best, rate->median) << name_of(isa);
      EXPECT_EQ(rate->samples, quick.samples);
    }
  }
}

TEST(Machine, AbsentSetIsRefused) {
  for (const IsaState& row : instruction_sets()) {
    if (row.present) continue;
    for (const auto& rate : {measure_f32_peak(row.isa, quick), measure_bf16_peak(row.isa, quick)}) {
      ASSERT_FALSE(rate.has_value()) << name_of(row.isa);
      EXPECT_EQ(rate.failure().id, "bad-isa");
    }
  }
}

TEST(Machine, NonsenseIsRefused) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const Sampling& sampling :
       {Sampling{.threads = 0}, Sampling{.threads = -1}, Sampling{.threads = 1025},
        Sampling{.samples = 0}, Sampling{.samples = 1001}, Sampling{.seconds = -1},
        Sampling{.seconds = nan}, Sampling{.seconds = 11}}) {
    EXPECT_EQ(measure_f32_peak(Isa::portable, sampling).failure().id, "bad-option");
    EXPECT_EQ(measure_bf16_peak(Isa::portable, sampling).failure().id, "bad-option");
    EXPECT_EQ(measure_read_bandwidth(4096, sampling).failure().id, "bad-option");
  }
  EXPECT_EQ(measure_read_bandwidth(-1, quick).failure().id, "bad-option");
  EXPECT_EQ(measure_read_bandwidth((std::int64_t{1} << 40) + 1, quick).failure().id, "bad-option");
}

TEST(Machine, BandwidthOfAnySizeAndAnyThreads) {
  for (const int threads : {1, 2, 3}) {
    Sampling sampling = quick;
    sampling.threads = threads;
    for (const std::int64_t bytes : {0, 1, 63}) {
      const auto nothing = measure_read_bandwidth(bytes, sampling);
      ASSERT_TRUE(nothing.has_value());
      EXPECT_EQ(nothing->median, 0) << "nothing can be read from " << bytes << " bytes";
    }
    for (const std::int64_t bytes : {std::int64_t{8192}, std::int64_t{1} << 20}) {
      const auto rate = measure_read_bandwidth(bytes, sampling);
      ASSERT_TRUE(rate.has_value());
      EXPECT_GT(rate->median, 0);
      EXPECT_GE(rate->best, rate->median);
    }
  }
}

}  // namespace
