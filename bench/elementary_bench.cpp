// SPDX-License-Identifier: MIT
#include <benchmark/benchmark.h>

#include <cmath>
#include <cstddef>
#include <random>
#include <string>
#include <vector>

#include "attest/lab/elementary.h"
#include "attest/lab/elementary_detail.h"

// Nanoseconds per call over typical arguments, beside the same loop with the system's libm, whose
// results are not correctly rounded and are here for orientation only.
namespace {

namespace lab = attest::lab;

constexpr std::size_t batch = 4096;

std::vector<double> uniform(double low, double high) {
  std::mt19937_64 random(1);
  std::vector<double> x(batch);
  for (double& value : x) {
    value = low + (high - low) * (static_cast<double>(random() >> 11) * 0x1p-53);
  }
  return x;
}

void measure(benchmark::State& state, double (*function)(double), double low, double high) {
  const std::vector<double> arguments = uniform(low, high);
  benchmark::DoNotOptimize(function(arguments[0]));  // builds the tables
  for (auto _ : state) {
    double sum = 0.0;
    for (const double x : arguments) sum += function(x);
    benchmark::DoNotOptimize(sum);
  }
  using benchmark::Counter;
  const auto calls = static_cast<double>(state.iterations()) * static_cast<double>(batch);
  state.counters["s_per_call"] = Counter(calls, Counter::kIsRate | Counter::kInvert);
}

double libm_sech_squared(double x) { return 1.0 / (std::cosh(x) * std::cosh(x)); }
double libm_density(double x) { return 0.3989422804014327 * std::exp(-0.5 * x * x); }
double libm_frequency(double x) { return std::pow(10000.0, -x / 128.0); }

double frequency(double x) { return lab::rational_power(10000.0, -static_cast<int>(x), 128); }
double frequency_big(double x) {
  return lab::detail::rational_power_big(10000.0, -static_cast<int>(x), 128);
}

using Function = double (*)(double);

struct Row {
  const char* name;
  Function here;
  Function libm;
  Function big;  // the slow path by itself
  double low;
  double high;
};

const Row rows[] = {
    {"exp", lab::exp, std::exp, lab::detail::exp_big, -40, 40},
    {"exp2", lab::exp2, std::exp2, lab::detail::exp2_big, -40, 40},
    {"expm1", lab::expm1, std::expm1, lab::detail::expm1_big, -10, 10},
    {"log", lab::log, std::log, lab::detail::log_big, 0, 100},
    {"tanh", lab::tanh, std::tanh, lab::detail::tanh_big, -5, 5},
    {"sech_squared", lab::sech_squared, libm_sech_squared, lab::detail::sech_squared_big, -5, 5},
    {"erf", lab::erf, std::erf, lab::detail::erf_big, -5, 5},
    {"normal_density", lab::normal_density, libm_density, lab::detail::normal_density_big, -8, 8},
    {"sin", lab::sin, std::sin, lab::detail::sin_big, -1e4, 1e4},
    {"cos", lab::cos, std::cos, lab::detail::cos_big, -1e4, 1e4},
    {"sin_of_huge", lab::sin, std::sin, lab::detail::sin_big, 1e300, 1e301},
    {"rotary_frequency", frequency, libm_frequency, frequency_big, 1, 128},
};

void enlist(const std::string& name, Function function, double low, double high) {
  benchmark::RegisterBenchmark(
      name.c_str(), [=](benchmark::State& state) { measure(state, function, low, high); });
}

}  // namespace

int main(int argc, char** argv) {
  for (const Row& row : rows) {
    enlist(row.name, row.here, row.low, row.high);
    enlist(std::string(row.name) + "/libm", row.libm, row.low, row.high);
    enlist(std::string(row.name) + "/big", row.big, row.low, row.high);
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
