// SPDX-License-Identifier: MIT
#include "attest/linalg/machine.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "attest/base/tensor.h"
#include "attest/base/threads.h"
#include "attest/linalg/kernels/machine.h"

namespace attest {
namespace {

constexpr std::int64_t most_bytes = std::int64_t{1} << 40;

double seconds_now() {
  using namespace std::chrono;
  return duration<double>(steady_clock::now().time_since_epoch()).count();
}

/// All threads leave together. They spin, since a sleeping thread wakes later than a sample is exact
/// to, but let others run where there are more threads than processors.
class StartLine {
 public:
  explicit StartLine(int threads) : threads_(threads) {}
  void wait() {
    const int lap = lap_.load();
    if (arrived_.fetch_add(1) + 1 == threads_) {
      arrived_ = 0;
      lap_.fetch_add(1);
      return;
    }
    for (int turns = 0; lap_.load() == lap; ++turns) {
      if (turns % 1024 == 1023) std::this_thread::yield();
    }
  }

 private:
  int threads_;
  std::atomic<int> arrived_ = 0;
  std::atomic<int> lap_ = 0;
};

/// work(thread, rounds) on every thread, rounds doubled until a sample is long enough.
using Work = std::function<void(int, std::int64_t)>;

struct Samples {
  std::int64_t rounds = 1;
  std::vector<double> seconds;
};

Samples take_samples(const Sampling& sampling, const Work& work) {
  Samples out;
  StartLine line(sampling.threads);
  std::atomic<std::int64_t> rounds = 1;
  std::atomic<bool> long_enough = false;
  const auto timed = [&](int thread, std::int64_t count) {
    line.wait();
    const double begin = seconds_now();
    work(thread, count);
    line.wait();
    return seconds_now() - begin;
  };
  const auto member = [&](int thread) {
    while (true) {
      const double took = timed(thread, rounds);
      if (thread == 0) {
        long_enough = took >= sampling.seconds || rounds > (std::int64_t{1} << 50);
        if (!long_enough) rounds = rounds * 2;
      }
      line.wait();
      if (long_enough) break;
    }
    for (int sample = 0; sample < sampling.samples; ++sample) {
      const double took = timed(thread, rounds);
      if (thread == 0) out.seconds.push_back(took);
    }
  };
  {
    std::vector<std::jthread> others;
    for (int thread = 1; thread < sampling.threads; ++thread) others.emplace_back(member, thread);
    member(0);
  }
  out.rounds = rounds;
  return out;
}

/// `amount` of work on each thread in each round.
MeasuredRate rate_of(Samples samples, double amount, int threads) {
  std::vector<double>& times = samples.seconds;
  std::sort(times.begin(), times.end());
  const std::size_t half = times.size() / 2;
  const double middle = times.size() % 2 == 1 ? times[half] : (times[half - 1] + times[half]) / 2;
  const double total = amount * threads * static_cast<double>(samples.rounds);
  return {total / middle, total / times.front(), static_cast<int>(times.size())};
}

Failure bad_option(const std::string& what) {
  return {ErrorKind::value, "bad-option", "[machine] " + what};
}

Result<void> check(const Sampling& sampling) {
  if (sampling.threads < 1 || sampling.threads > 1024) {
    return bad_option("threads must be from 1 to 1024, not " + std::to_string(sampling.threads));
  }
  if (sampling.samples < 1 || sampling.samples > 1000) {
    return bad_option("samples must be from 1 to 1000, not " + std::to_string(sampling.samples));
  }
  if (!(sampling.seconds >= 0 && sampling.seconds <= 10)) {
    return bad_option("a sample must take from 0 to 10 seconds, not " +
                      std::to_string(sampling.seconds));
  }
  return {};
}

/// The f32 loops of an instruction set.
const kernels::MachineKernels& loops_of([[maybe_unused]] Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::avx2) return kernels::avx2::machine;
  if (isa != Isa::portable) return kernels::avx512::machine;
#endif
  return kernels::portable::machine;
}

/// The bfloat16 loops; nothing where such numbers are widened to f32.
const kernels::Bf16Kernels* bf16_loops_of([[maybe_unused]] Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::avx512bf16) return &kernels::avx512bf16::machine_bf16;
  if (isa == Isa::amx) return &kernels::amx::machine_bf16;
#endif
  return nullptr;
}

Isa preferred_isa() {
  for (const IsaState& row : instruction_sets()) {
    if (row.preferred) return row.isa;
  }
  return Isa::portable;
}

/// Where results of loops go that nobody wants.
std::atomic<float> unwanted = 0;

MeasuredRate flops_of(float (*loop)(std::int64_t), double flops, const Sampling& sampling) {
  const auto samples = take_samples(sampling, [loop](int, std::int64_t rounds) {
    // A round is a few nanoseconds; this many make the clock's own cost small.
    unwanted.store(loop(rounds * 256), std::memory_order_relaxed);
  });
  return rate_of(samples, flops * 256, sampling.threads);
}

}  // namespace

Result<MeasuredRate> measure_f32_peak(Isa isa, const Sampling& sampling) {
  if (const auto ok = check(sampling); !ok) return ok.failure();
  if (const auto present = isa_of(name_of(isa)); !present) return present.failure();
  const kernels::MachineKernels& loops = loops_of(isa);
  return flops_of(loops.multiply_add, loops.multiply_add_flops, sampling);
}

Result<MeasuredRate> measure_bf16_peak(Isa isa, const Sampling& sampling) {
  const kernels::Bf16Kernels* loops = bf16_loops_of(isa);
  if (loops == nullptr) return measure_f32_peak(isa, sampling);
  if (const auto ok = check(sampling); !ok) return ok.failure();
  if (const auto present = isa_of(name_of(isa)); !present) return present.failure();
  return flops_of(loops->multiply_add, loops->multiply_add_flops, sampling);
}

Result<MeasuredRate> measure_read_bandwidth(std::int64_t bytes, const Sampling& sampling) {
  if (const auto ok = check(sampling); !ok) return ok.failure();
  if (bytes < 0 || bytes > most_bytes) {
    return bad_option("bytes must be from 0 to " + std::to_string(most_bytes) + ", not " +
                      std::to_string(bytes));
  }
  const kernels::MachineKernels& loops = loops_of(preferred_isa());
  const std::int64_t step = loops.read_step;
  const std::int64_t each = bytes / 4 / sampling.threads / step * step;
  if (each == 0) return MeasuredRate{0, 0, sampling.samples};
  std::vector<Tensor<float>> parts;
  for (int thread = 0; thread < sampling.threads; ++thread) {
    parts.emplace_back(Shape{each});  // zeros, written: the pages are there
  }
  const auto samples = take_samples(sampling, [&](int thread, std::int64_t rounds) {
    const float* part = parts[static_cast<std::size_t>(thread)].data();
    for (std::int64_t round = 0; round < rounds; ++round) {
      unwanted.store(loops.read(part, each), std::memory_order_relaxed);
    }
  });
  return rate_of(samples, 4.0 * static_cast<double>(each), sampling.threads);
}

}  // namespace attest
