// SPDX-License-Identifier: MIT
// The same bits, whatever a call is carried out with or beside.
#include <gtest/gtest.h>

#include "attest/base/threads.h"
#include "tests/attention/engine_cases_typed.h"

namespace attest::test {
namespace {

constexpr std::uint64_t seed = 20260801;

TEST(Determinism, SameBitsForAnyThreadCount) {
  ThreadPool one(1), two(2), three(3), five(5);
  for (std::uint64_t n = 0; n < 60; ++n) {
    const EngineCase c = engine_case(seed + n);
    for (const Isa isa : present_isas()) {
      SCOPED_TRACE(name_of_case(c, isa));
      for (const Reproducible kind : {Reproducible::per_call, Reproducible::per_row}) {
        const EngineForward alone = run_engine(c, {&one, isa, kind});
        ASSERT_FALSE(alone.failure);
        for (ThreadPool* pool : {&two, &three, &five}) {
          ASSERT_TRUE(same_bits(alone, run_engine(c, {pool, isa, kind}))) << pool->threads();
        }
      }
    }
  }
}

/// A long call with few rows is what a fast engine would cut along its keys.
TEST(Determinism, SameBitsForAnyThreadCountWhenOneQueryReadsManyKeys) {
  ThreadPool one(1), two(2), three(3), five(5);
  for (const DType storage : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
    Random random(seed, 1);
    EngineCase c{.seed = seed, .storage = storage};
    c.query = stored_tensor(random, {1, 4, 1, 16}, 2, storage);
    c.key = stored_tensor(random, {1, 2, 5001, 16}, 2, storage);
    c.value = stored_tensor(random, {1, 2, 5001, 8}, 2, storage);
    for (const Isa isa : present_isas()) {
      SCOPED_TRACE(name_of_case(c, isa));
      const EngineForward alone = run_engine(c, {.threads = &one, .isa = isa});
      for (ThreadPool* pool : {&two, &three, &five}) {
        ASSERT_TRUE(same_bits(alone, run_engine(c, {.threads = pool, .isa = isa})));
      }
    }
  }
}

template <class T>
Tensor<T> batch_of(const Tensor<T>& tensor, std::int64_t b) {
  Shape shape = tensor.shape();
  const std::size_t size = tensor.size() / static_cast<std::size_t>(shape[0]);
  const std::size_t first = shape[0] == 1 ? 0 : static_cast<std::size_t>(b) * size;
  shape[0] = 1;
  return Tensor<T>(shape, tensor.elements().subspan(first, size));
}

std::vector<std::int64_t> part_of(const std::vector<std::int64_t>& list, std::int64_t B,
                                  std::int64_t b, std::int64_t length) {
  const auto size = static_cast<std::int64_t>(list.size());
  if (size != B * length || B == 1) return list;
  return {list.begin() + b * length, list.begin() + (b + 1) * length};
}

/// The same rows alone.
EngineCase without_batch_mates(const EngineCase& c, std::int64_t b) {
  EngineCase out{.seed = c.seed,
                 .storage = c.storage,
                 .bias_storage = c.bias_storage,
                 .layout = c.layout,
                 .query = batch_of(c.query, b),
                 .key = batch_of(c.key, b),
                 .value = batch_of(c.value, b),
                 .chosen = c.chosen};
  if (c.visible) out.visible = batch_of(*c.visible, b);
  if (c.bias) out.bias = batch_of(*c.bias, b);
  const std::int64_t B = c.query.extent(0);
  Mask& mask = out.chosen.mask;
  mask.query_offset = part_of(mask.query_offset, B, b, 1);
  mask.key_lengths = part_of(mask.key_lengths, B, b, 1);
  mask.documents.query = part_of(mask.documents.query, B, b, c.query.extent(2));
  mask.documents.key = part_of(mask.documents.key, B, b, c.key.extent(2));
  return out;
}

TEST(Determinism, BatchMatesChangeNothing) {
  int compared = 0;
  for (std::uint64_t n = 0; n < 80; ++n) {
    EngineCase c = engine_case(seed + 500 + n);
    c.chosen.dropout = {};  // its bits are those of the place in the batch
    for (const Isa isa : present_isas()) {
      SCOPED_TRACE(name_of_case(c, isa));
      const EngineForward all = run_engine(c, {.isa = isa});
      ASSERT_FALSE(all.failure);
      for (std::int64_t b = 0; b < c.query.extent(0); ++b) {
        const EngineForward alone = run_engine(without_batch_mates(c, b), {.isa = isa});
        ASSERT_FALSE(alone.failure);
        ASSERT_TRUE(same_bits(batch_of(all.output, b).elements(), alone.output.elements())) << b;
        ASSERT_TRUE(
            same_bits(batch_of(all.log_sum_exp, b).elements(), alone.log_sum_exp.elements()));
        ++compared;
      }
    }
  }
  EXPECT_GT(compared, 100);
}

/// Rows [first, last) of a causal call, with the keys that exist by then.
EngineCase chunk_of(const EngineCase& whole, std::int64_t first, std::int64_t last) {
  const auto rows = [](const Tensor<double>& from, std::int64_t begin, std::int64_t end) {
    Tensor<double> out({from.extent(0), from.extent(1), end - begin, from.extent(3)});
    for_each_index(out.view<4>().extents, [&](const auto& i) {
      out(i[0], i[1], i[2], i[3]) = from(i[0], i[1], begin + i[2], i[3]);
    });
    return out;
  };
  EngineCase out{.seed = whole.seed, .storage = whole.storage, .chosen = whole.chosen};
  out.query = rows(whole.query, first, last);
  out.key = rows(whole.key, 0, last);
  out.value = rows(whole.value, 0, last);
  const auto window = out.chosen.mask.window;
  out.chosen.mask = Mask::causal_at(first);
  out.chosen.mask.window = window;
  return out;
}

void expect_rows(const EngineForward& whole, const EngineForward& chunk, std::int64_t first) {
  for_each_index(chunk.output.view<4>().extents, [&](const auto& i) {
    ASSERT_TRUE(same_bits(chunk.output(i[0], i[1], i[2], i[3]),
                          whole.output(i[0], i[1], first + i[2], i[3])))
        << "query " << first + i[2] << ", of a chunk from " << first;
  });
  for_each_index(chunk.log_sum_exp.view<3>().extents, [&](const auto& i) {
    ASSERT_TRUE(same_bits(chunk.log_sum_exp(i[0], i[1], i[2]),
                          whole.log_sum_exp(i[0], i[1], first + i[2])));
  });
}

TEST(Determinism, PerRowMakesPrefillChunksAndSingleTokensAgree) {
  constexpr std::int64_t length = 333;
  for (const DType storage : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
    for (const bool extras : {false, true}) {
      Random random(seed, extras ? 3 : 2);
      EngineCase c{.seed = seed, .storage = storage};
      c.query = stored_tensor(random, {1, 4, length, 20}, 2, storage);
      c.key = stored_tensor(random, {1, 2, length, 20}, 2, storage);
      c.value = stored_tensor(random, {1, 2, length, 11}, 2, storage);
      if (extras) {
        c.chosen.softcap = 5;
        c.chosen.alibi_slopes = {0.5, 0.25, 0.125, 0.0625};
        c.chosen.sink = {0, 1, -1, 2};
        c.chosen.mask.window.left = 200;
      }
      const EngineCase all = chunk_of(c, 0, length);
      for (const Isa isa : present_isas()) {
        SCOPED_TRACE(name_of_case(c, isa));
        const Execution execution{.isa = isa, .reproducible = Reproducible::per_row};
        const EngineForward whole = run_engine(all, execution);
        ASSERT_FALSE(whole.failure);
        for (const std::int64_t size : {std::int64_t{100}, std::int64_t{64}, std::int64_t{7}}) {
          for (std::int64_t first = 0; first < length; first += size * 2) {
            const std::int64_t last = std::min(first + size, length);
            expect_rows(whole, run_engine(chunk_of(c, first, last), execution), first);
          }
        }
        for (std::int64_t first = 0; first < length; first += 23) {
          expect_rows(whole, run_engine(chunk_of(c, first, first + 1), execution), first);
        }
        if (HasFailure()) return;
      }
    }
  }
}

}  // namespace
}  // namespace attest::test
