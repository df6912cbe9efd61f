// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "attest/base/shape.h"
#include "attest/base/text.h"
#include "attest/lab/attention_backward.h"
#include "tests/support/matrices.h"
#include "tests/support/random_case.h"

/// Random calls with documents and dropout beside every other option.
namespace attest::test {

/// Starts of `documents` documents on an axis of this length; some have nothing on it.
inline std::vector<std::int64_t> random_starts(Random& random, std::int64_t documents,
                                               std::int64_t length) {
  std::vector<std::int64_t> starts{0, length};
  for (std::int64_t n = 1; n < documents; ++n) starts.push_back(random.between(0, length));
  std::ranges::sort(starts);
  return starts;
}

/// Packs a call at random. A square corner needs documents that are square.
inline void pack(Random& random, AttentionCase& call) {
  const std::int64_t documents = random.between(1, 4);
  Packing& packing = call.mask.packing;
  packing.query_starts = random_starts(random, documents, call.query.extent(2));
  packing.key_starts = call.mask.corner == Corner::square
                           ? packing.query_starts
                           : random_starts(random, documents, call.key.extent(2));
}

/// Names every token at random, for all batches or for each.
inline void name_tokens(Random& random, AttentionCase& call) {
  const auto names = [&](std::int64_t length) {
    const std::int64_t batches = random.between(0, 1) == 0 ? 1 : call.query.extent(0);
    std::vector<std::int64_t> out;
    for (std::int64_t n = 0; n < batches * length; ++n) out.push_back(random.between(-1, 1));
    return out;
  };
  call.mask.documents.query = names(call.query.extent(2));
  call.mask.documents.key = names(call.key.extent(2));
}

/// `random_case`, and packing, names and dropout, each in two of three cases.
inline AttentionCase documented_case(std::uint64_t seed, const CaseLimits& limits = {}) {
  AttentionCase out = random_case(seed, limits);
  Random random(seed, 5);
  if (random.between(0, 2) != 0) pack(random, out);
  if (random.between(0, 2) != 0) name_tokens(random, out);
  if (random.between(0, 2) != 0) out.dropout = {random.uniform(0, 0.9), random.bits()};
  return out;
}

inline std::string describe_documents(std::uint64_t seed, const AttentionCase& call) {
  return sentence(describe(seed, call), call.mask.packing.query_starts.empty() ? "" : ", packed",
                  call.mask.documents.query.empty() ? "" : ", named", ", dropout ",
                  call.dropout.rate);
}

/// Rows and columns of every batch and head of a [B, H, rows, columns].
struct Cut {
  std::int64_t first_row = 0;
  std::int64_t rows = 0;
  std::int64_t first_column = 0;
  std::int64_t columns = 0;
};
template <class T>
Tensor<T> cut_out(const Tensor<T>& from, const Cut& cut) {
  Tensor<T> out({from.extent(0), from.extent(1), cut.rows, cut.columns});
  for (std::int64_t b = 0; b < from.extent(0); ++b) {
    for (std::int64_t h = 0; h < from.extent(1); ++h) {
      for (std::int64_t i = 0; i < cut.rows; ++i) {
        for (std::int64_t j = 0; j < cut.columns; ++j) {
          out(b, h, i, j) = from(b, h, cut.first_row + i, cut.first_column + j);
        }
      }
    }
  }
  return out;
}

/// The table that a broadcast one stands for.
template <class T>
Tensor<T> whole_table(const Tensor<T>& from, const Shape& shape) {
  Tensor<T> out(shape);
  const auto wide = broadcast(from.template view<4>(), {shape[0], shape[1], shape[2], shape[3]});
  for (std::int64_t b = 0; b < shape[0]; ++b) {
    for (std::int64_t h = 0; h < shape[1]; ++h) {
      for (std::int64_t i = 0; i < shape[2]; ++i) {
        for (std::int64_t j = 0; j < shape[3]; ++j) out(b, h, i, j) = wide(b, h, i, j);
      }
    }
  }
  return out;
}

/// What comes back into a call: the gradients of its output and its log_sum_exp.
struct Flow {
  Tensor<double> d_output;
  Tensor<double> d_log_sum_exp;

  Flow(std::uint64_t seed, const AttentionCase& call) {
    Random random(seed, 6);
    const auto B = call.query.extent(0), H = call.query.extent(1), T = call.query.extent(2);
    d_output = random_tensor(random, {B, H, T, call.value.extent(3)});
    d_log_sum_exp = random_tensor(random, {B, H, T});
  }
  [[nodiscard]] lab::AttentionOutputGradients views() const {
    return {d_output.view<4>(), d_log_sum_exp.view<3>()};
  }
};

inline Result<lab::AttentionGradients> back(const AttentionCase& call, const Flow& flow) {
  return lab::attention_backward(call.inputs(), call.options(), flow.views());
}

}  // namespace attest::test
