// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <cstdio>

#include "attest/attention/attention_backward.h"
#include "attest/base/text.h"
#include "attest/check/gradients/judge.h"
#include "tests/check/gradients_dumps.h"
#include "tests/check/gradients_program.h"
#include "tests/support/draws.h"

/// Right gradients are never convicted, whoever computed them.
namespace attest::test {
namespace {

using check::Diagnosis;
using check::Judgement;
using check::Precision;

using Kind = GradientDump (*)(std::uint64_t, DType);
const Kind kinds[] = {wide_dump, square_dump, rope_dump, corner_dump};

/// The largest fraction of the tolerance that right gradients used, and how many there were.
struct Used {
  double most = 0;
  int dumps = 0;
  void take(const GradientDump& dump, const std::string& whose,
            Judgement worst = Judgement::right) {
    const auto out = check::diagnose_gradients(dump);
    ASSERT_TRUE(out) << out.failure().message;
    for (const auto& stage : out->stages) most = std::max(most, stage.used);
    ++dumps;
    ASSERT_LE(static_cast<int>(out->judgement), static_cast<int>(worst))
        << whose << ": " << out->first_wrong_stage << " "
        << (out->where.empty() ? "" : out->where.front()) << " used " << most;
  }
  void print(const char* whose) const {
    std::printf("%s: %d dumps, %.3f of the tolerance used at most\n", whose, dumps, most);
  }
};

template <class T>
Tensor<T> narrowed(const Tensor<double>& x) {
  Tensor<T> out(x.shape());
  for (std::size_t n = 0; n < x.size(); ++n) out.elements()[n] = rounded_to<T>(x.elements()[n]);
  return out;
}

template <class T>
Tensor<double> widened(const Tensor<T>& x) {
  Tensor<double> out(x.shape());
  for (std::size_t n = 0; n < x.size(); ++n) {
    if constexpr (std::is_same_v<T, float>) {
      out.elements()[n] = static_cast<double>(x.elements()[n]);
    } else {
      out.elements()[n] = to_double(x.elements()[n]);
    }
  }
  return out;
}

/// The exact tier's gradients, stored in a type.
template <class T>
void give_exact(GradientDump& dump) {
  const auto exact = check::gradients::exact_gradients(dump);
  ASSERT_TRUE(exact);
  for (std::size_t of = 0; of < exact->size(); ++of) {
    if ((*exact)[of].size() == 0) continue;
    dump.gradients.push_back({static_cast<GradientOf>(of), widened(narrowed<T>((*exact)[of])),
                              dtype_of<T>, std::string(name_of(static_cast<GradientOf>(of)))});
  }
}

TEST(DiagnoseGradients, NeverConvictsTheExactTierRounded) {
  Used f32, bf16, f16;
  for (std::uint64_t seed = 1; seed <= draws(12, 60); ++seed) {
    for (const Kind kind : kinds) {
      SCOPED_TRACE(sentence("seed ", seed));
      GradientDump a = kind(seed, DType::f32), b = kind(seed, DType::bf16),
                   c = kind(seed, DType::f16);
      b.claim.precision = Precision::bf16;
      c.claim.precision = Precision::f16;
      give_exact<float>(a);
      give_exact<BFloat16>(b);
      give_exact<Half>(c);
      f32.take(a, "exact f32");
      bf16.take(b, "exact bf16");
      f16.take(c, "exact f16");
    }
  }
  f32.print("exact tier, f32");
  bf16.print("exact tier, bf16");
  f16.print("exact tier, f16");
}

TEST(DiagnoseGradients, NeverConvictsPlainLoops) {
  Used f32, f64;
  for (std::uint64_t seed = 1; seed <= draws(24, 150); ++seed) {
    for (const Kind kind : kinds) {
      SCOPED_TRACE(sentence("seed ", seed));
      GradientDump dump = kind(seed, DType::f32);
      Program<float> narrow(dump);
      narrow.run();
      dump.gradients = narrow.gradients();
      f32.take(dump, "plain f32");
      Program<double> wide(dump);
      wide.run();
      GradientDump other = dump;
      other.gradients = wide.gradients(DType::f64);
      other.claim.precision = Precision::f64;
      f64.take(other, "plain f64");
    }
  }
  f32.print("plain loops, f32");
  f64.print("plain loops, f64");
}

template <class T>
void give_engine(GradientDump& dump) {
  const AttentionCase& call = dump.claim.call;
  const auto query = narrowed<T>(call.query), key = narrowed<T>(call.key),
             value = narrowed<T>(call.value);
  const auto d_output = narrowed<T>(dump.d_output);
  const AttentionInputs<T> in{query.template view<4>(), key.template view<4>(),
                              value.template view<4>()};
  const AttentionOptions<double> wide = call.options();
  Tensor<float> bias;
  if (call.bias) bias = narrowed<float>(*call.bias);
  const auto options =
      options_with<float>(wide, call.bias ? std::as_const(bias).view<4>() : View<const float, 4>{});
  const auto forward = attention(in.query, in.key, in.value, options);
  AttentionBackwardInputs<T> results{.output = forward.output(),
                                     .log_sum_exp = forward.log_sum_exp.template view<3>(),
                                     .d_output = d_output.template view<4>()};
  Tensor<float> flow;
  if (dump.d_log_sum_exp) {
    flow = narrowed<float>(*dump.d_log_sum_exp);
    results.d_log_sum_exp = std::as_const(flow).view<3>();
  }
  const auto out = attention_backward(in, results, options);
  dump.gradients.push_back({GradientOf::query, widened(out.d_query), dtype_of<T>, "d_query"});
  dump.gradients.push_back({GradientOf::key, widened(out.d_key), dtype_of<T>, "d_key"});
  dump.gradients.push_back({GradientOf::value, widened(out.d_value), dtype_of<T>, "d_value"});
  if (call.bias)
    dump.gradients.push_back({GradientOf::bias, widened(out.d_bias), DType::f32, "d_bias"});
  if (!call.sink.empty()) {
    dump.gradients.push_back({GradientOf::sink, widened(out.d_sink), DType::f32, "d_sink"});
  }
}

TEST(DiagnoseGradients, NeverConvictsTheEngine) {
  Used f32, bf16, f16;
  for (std::uint64_t seed = 1; seed <= draws(20, 80); ++seed) {
    for (const Kind kind : {wide_dump, square_dump}) {
      SCOPED_TRACE(sentence("seed ", seed));
      GradientDump a = kind(seed, DType::f32), b = kind(seed, DType::bf16),
                   c = kind(seed, DType::f16);
      b.claim.precision = Precision::bf16;
      c.claim.precision = Precision::f16;
      give_engine<float>(a);
      give_engine<BFloat16>(b);
      give_engine<Half>(c);
      f32.take(a, "engine f32");
      bf16.take(b, "engine bf16");
      f16.take(c, "engine f16");
    }
  }
  f32.print("engine, f32");
  bf16.print("engine, bf16");
  f16.print("engine, f16");
}

}  // namespace
}  // namespace attest::test
