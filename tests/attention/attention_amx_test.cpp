// SPDX-License-Identifier: MIT
// The attention kernel on matrix tiles, with tiles of plain C++: all but four instructions of what runs
// on machines that have tiles. Needs AVX512-BF16, which its vector code is made of.
#include <gtest/gtest.h>

#include "attest/attention/call.h"
#include "attest/attention/forward_call.h"
#include "tests/attention/engine_cases_judge.h"
#include "tests/attention/engine_cases_window.h"

namespace attest::kernels::emulated {
ForwardKernel<float> forward_bf16();
int refused();
int begun();
}  // namespace attest::kernels::emulated

namespace attest::test {
namespace {

/// As try_attention, on emulated tiles, by blocks of rows.
EngineForward run_on_tiles(const EngineCase& c) {
  EngineForward out;
  const auto run = [&]<class Bias>() {
    using T = BFloat16;
    const TypedCase<T, Bias> typed(c);
    Placed<T, 4> output = place_for<T>(c.output_shape(), c.layout);
    Tensor<float> sums({c.query.extent(0), c.query.extent(1), c.query.extent(2)});
    const AttentionOutputs<T> outputs{output.view, sums.view<3>()};
    const auto call = engine::checked_call(typed.inputs(), typed.options);
    ASSERT_TRUE(call) << call.failure().message;
    const engine::Ranges ranges(*call);
    engine::FirstEmptyRow empty(call->shape);
    const engine::RowBlocks blocks(*call);
    const engine::ForwardCall<T> forward{*call,  ranges, outputs, kernels::emulated::forward_bf16(),
                                         blocks, empty};
    for (std::int64_t piece = 0; piece < forward.pieces(); ++piece) forward.piece(piece);
    const View<const T, 4> written = output.view;
    out.output = widened_tensor(written);
    out.log_sum_exp = widened_tensor(sums);
    out.gaps_untouched = output.gaps_are_untouched();
    EXPECT_EQ(kernels::emulated::refused(), 0) << "tile operations that a machine refuses";
  };
  if (c.bias_storage == DType::bf16) {
    run.operator()<BFloat16>();
  } else {
    run.operator()<float>();
  }
  return out;
}

class AttentionTiles : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const IsaState& state : instruction_sets()) {
      if (state.isa == Isa::avx512bf16 && state.present) return;
    }
    GTEST_SKIP() << "this machine has no dot products of bfloat16 pairs";
  }
};

TEST_F(AttentionTiles, StayWithinTheBound) {
  Summary summary;
  for (std::uint64_t n = 0; n < 300; ++n) {
    const EngineCase c = engine_case(20261101 + n, DType::bf16);
    SCOPED_TRACE(name_of_case(c, Isa::amx));
    const auto exact = lab::attention(c.inputs(), c.options(), lab::Weights::drop);
    ASSERT_TRUE(exact) << exact.failure().message;
    const auto bound = check::engine_bound(c.inputs(), c.options(), {c.storage, Isa::amx});
    ASSERT_TRUE(bound) << bound.failure().message;
    const EngineForward found = run_on_tiles(c);
    ASSERT_TRUE(found.gaps_untouched);
    ASSERT_TRUE(within_bound(found.output, exact->output, bound->output, summary.output));
    ASSERT_TRUE(within_bound(found.log_sum_exp, exact->log_sum_exp, bound->log_sum_exp,
                             summary.log_sum_exp));
    PlainErrors plain(c, true);
    ASSERT_TRUE(no_worse_than_twice(c, found.output, plain, exact->output, bound->output, summary));
    ++summary.cases;
  }
  summary.print("bf16, amx (emulated)");
  EXPECT_LE(summary.engine_share, 4 * summary.plain_share);
  EXPECT_GT(kernels::emulated::begun(), 300);
}

/// Shapes at which keys are read in place, and those just beside them.
TEST_F(AttentionTiles, ReadKeysInPlaceOrCopied) {
  for (const std::int64_t S : {31, 32, 128, 160, 257}) {
    for (const std::int64_t D : {1, 31, 32, 33, 64}) {
      for (const std::int64_t E : {1, 16, 17, 32, 48, 65}) {
        Random random(static_cast<std::uint64_t>(S * 10000 + D * 100 + E), 12);
        EngineCase c{.seed = 0, .storage = DType::bf16};
        c.query = stored_tensor(random, {1, 1, 17, D}, 2, DType::bf16);
        c.key = stored_tensor(random, {1, 1, S, D}, 2, DType::bf16);
        c.value = stored_tensor(random, {1, 1, S, E}, 2, DType::bf16);
        SCOPED_TRACE(name_of_case(c, Isa::amx));
        const auto exact = lab::attention(c.inputs(), c.options(), lab::Weights::drop);
        const auto bound = check::engine_bound(c.inputs(), c.options(), {c.storage, Isa::amx});
        const EngineForward found = run_on_tiles(c);
        double used = 0;
        ASSERT_TRUE(within_bound(found.output, exact->output, bound->output, used));
      }
    }
  }
}

TEST_F(AttentionTiles, AreThoseOfAbsolutePlaces) { expect_rows_alone_as_together(run_on_tiles); }

/// NaN and infinities in a hidden value reach nobody; in a visible one they reach those whom they reach
/// when numbers are widened.
TEST_F(AttentionTiles, HiddenNaNNeverLeaks) {
  int reached = 0;
  for (std::uint64_t n = 0; n < 60; ++n) {
    EngineCase c = engine_case(20261401 + n, DType::bf16);
    Random random(n, 14);
    for (double& x : c.value.elements()) {
      if (one_in(random, 40)) x = one_in(random, 2) ? engine_infinity : std::nan("");
    }
    SCOPED_TRACE(name_of_case(c, Isa::amx));
    const EngineForward expected =
        run_engine(c, {.isa = Isa::avx512, .reproducible = Reproducible::per_row});
    const EngineForward found = run_on_tiles(c);
    for (std::size_t k = 0; k < found.output.size(); ++k) {
      const double a = found.output.elements()[k];
      const double b = expected.output.elements()[k];
      ASSERT_TRUE(std::isfinite(b) ? std::isfinite(a) : same_bits(a, b))
          << k << ": " << a << ", " << b;
      reached += std::isfinite(b) ? 0 : 1;
    }
  }
  EXPECT_GT(reached, 1000);
}

}  // namespace
}  // namespace attest::test
