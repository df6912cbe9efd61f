// SPDX-License-Identifier: MIT
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "attest/base/attention_case.h"
#include "attest/base/random.h"
#include "attest/io/tensor_file.h"
#include "attest/lab/attention.h"
#include "run_program.h"
#include "tests/support/matrices.h"

/// Dumps of attention for tests of `attest check`, and the command run on them.
namespace attest::test {

inline constexpr double infinity = std::numeric_limits<double>::infinity();

/// Numbers that a float holds.
inline Tensor<double> bell(Shape shape, std::uint64_t seed) {
  Random random(seed);
  return random_bell(random, std::move(shape));
}

/// B 2, H 4 over G 2, T 3, S 5, D 6, E 7: no two sizes alike where one could be taken for another.
inline AttentionCase grouped() {
  AttentionCase call;
  call.query = bell({2, 4, 3, 6}, 1);
  call.key = bell({2, 2, 5, 6}, 2);
  call.value = bell({2, 2, 5, 7}, 3);
  return call;
}

inline AnyTensor f32(const Tensor<double>& values) {
  return AnyTensor::from_f64(values, DType::f32);
}

inline Tensor<double> output_of(const AttentionCase& call) {
  return lab::attention(call.inputs(), call.options()).value().output;
}

/// query, key, value and output in f32, under these names.
inline io::NamedTensors dump_of(const AttentionCase& call, const Tensor<double>& output) {
  io::NamedTensors file;
  file.add("query", f32(call.query));
  file.add("key", f32(call.key));
  file.add("value", f32(call.value));
  file.add("output", f32(output));
  return file;
}

/// Writes the file and checks it.
inline Ended checked(const io::NamedTensors& file, std::vector<std::string> arguments,
                     const std::string& name = "dump.safetensors") {
  const ScratchFolder scratch;
  EXPECT_TRUE(io::write_tensors(scratch.file(name), file));
  arguments.insert(arguments.begin(), {"check", scratch.file(name)});
  return run_attest(arguments);
}

/// [B, H, T, D] as [B, T, H, D].
inline Tensor<double> time_first(const Tensor<double>& x) {
  Tensor<double> out({x.extent(0), x.extent(2), x.extent(1), x.extent(3)});
  for (std::int64_t b = 0; b < x.extent(0); ++b) {
    for (std::int64_t h = 0; h < x.extent(1); ++h) {
      for (std::int64_t t = 0; t < x.extent(2); ++t) {
        for (std::int64_t d = 0; d < x.extent(3); ++d) out(b, t, h, d) = x(b, h, t, d);
      }
    }
  }
  return out;
}

inline Tensor<double> packed(const Tensor<double>& x) {
  return time_first(x).reshaped({x.extent(0), x.extent(2), x.extent(1) * x.extent(3)});
}

inline bool says(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace attest::test
