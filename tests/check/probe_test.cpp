// SPDX-License-Identifier: MIT
// attest probe's inputs: on none of them do two sizes, two lengths or a number and its opposite coincide.
#include "attest/check/probe/probe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "attest/base/conventions.h"
#include "attest/lab/attention.h"

namespace attest::test {
namespace {

using check::Probe;
using check::ProbeRequest;

ProbeRequest asking(std::string_view features, std::string convention = "") {
  return {.features = check::features_of(features).value(), .convention = std::move(convention)};
}

/// Every convention with every set of features that it has.
std::vector<ProbeRequest> many_requests() {
  std::vector<ProbeRequest> out;
  for (const char* features : {"",
                               "causal",
                               "top-left",
                               "bottom-right",
                               "window",
                               "causal,window",
                               "top-left,window",
                               "bottom-right,window",
                               "mask",
                               "causal,mask",
                               "bias",
                               "grouped",
                               "alibi",
                               "sink",
                               "softcap",
                               "scale",
                               "rope",
                               "rope-interleaved,causal",
                               "cache",
                               "causal,cache,rope",
                               "lengths",
                               "bottom-right,lengths,window",
                               "top-left,lengths,window",
                               "packed",
                               "causal,packed",
                               "bottom-right,packed,rope,window",
                               "dropout",
                               "gradients",
                               "mask,lengths,grouped,sink",
                               "alibi,lengths",
                               "window,lengths,rope"}) {
    out.push_back(asking(features));
    for (const Convention& convention : conventions()) {
      out.push_back(asking(features, std::string(convention.name)));
    }
  }
  return out;
}

/// What a request is called in the message of a failure.
std::string told(const ProbeRequest& request) {
  std::string out = request.convention;
  for (const auto name : names_of(request.features)) out += " " + std::string(name);
  return out;
}

bool power_of_two(std::int64_t n) { return (n & (n - 1)) == 0; }

TEST(Probe, NothingCoincides) {
  int made = 0;
  for (const ProbeRequest& request : many_requests()) {
    const auto probe = make_probe(request);
    if (!probe) continue;
    ++made;
    SCOPED_TRACE(told(request));
    const auto& [B, H, G, T, S, D, E] = probe->shape.call;
    EXPECT_NE(D, H * H);
    EXPECT_NE(D, H);
    EXPECT_NE(D, 2 * H);
    EXPECT_NE(E * E, D);
    EXPECT_FALSE(power_of_two(H));
    EXPECT_GE(B, probe->shape.without_batch ? 1 : 2);
    EXPECT_NE(B, H);
    if (request.features.grouped) {
      EXPECT_EQ(H % G, 0);
      EXPECT_NE(G, H / G);
      EXPECT_NE(G, H);
    }
    const bool square = probe->words.causal == "square";
    EXPECT_EQ(T == S, square);
    EXPECT_NE(T % 16, 0);
    EXPECT_NE(S % 16, 0);
    std::set<std::int64_t> all{B, T, S, D, H};
    EXPECT_EQ(all.size(), square ? 4U : 5U) << "two of B, T, S, D, H are equal";
    const auto& lengths = probe->claim.call.mask.key_lengths;
    EXPECT_EQ(std::set(lengths.begin(), lengths.end()).size(), lengths.size());
    for (const std::int64_t length : lengths) EXPECT_LT(length, S);
    const bool said = std::ranges::any_of(probe->remarks, [](const std::string& remark) {
      return remark.find("E = D") != std::string::npos;
    });
    EXPECT_EQ(E == D, said);
  }
  EXPECT_GT(made, 250);
}

TEST(Probe, EveryQuerySeesAKeyAndTheClaimIsComputable) {
  for (const ProbeRequest& request : many_requests()) {
    const auto probe = make_probe(request);
    if (!probe) continue;
    SCOPED_TRACE(told(request));
    const AttentionCase& call = probe->claim.call;
    const auto result = lab::attention(call.inputs(), call.options());
    ASSERT_TRUE(result) << result.failure().message;
    EXPECT_EQ(call.empty_row, EmptyRow::error);
    EXPECT_TRUE(
        std::ranges::all_of(result->output.elements(), [](double x) { return std::isfinite(x); }));
  }
}

/// The mean over rows of the largest weight, of the rows that see more than three keys.
double mean_peak(const Probe& probe) {
  const AttentionCase& call = probe.claim.call;
  const auto weights = lab::attention(call.inputs(), call.options()).value().weights;
  const std::int64_t S = probe.shape.call.S;
  double sum = 0;
  double rows = 0;
  for (std::size_t row = 0; row < weights.size() / static_cast<std::size_t>(S); ++row) {
    const auto begin =
        weights.elements().subspan(row * static_cast<std::size_t>(S), static_cast<std::size_t>(S));
    if (std::ranges::count_if(begin, [](double w) { return w > 0; }) <= 3) continue;
    sum += std::ranges::max(begin);
    ++rows;
  }
  return sum / rows;
}

TEST(Probe, TheSoftmaxIsNeitherFlatNorPeaked) {
  for (const char* features : {"", "causal", "scale", "softcap", "mask", "bias", "window"}) {
    for (const std::uint64_t seed : {1U, 2U, 3U}) {
      ProbeRequest request = asking(features);
      request.seed = seed;
      const Probe probe = make_probe(request).value();
      const double peak = mean_peak(probe);
      EXPECT_GT(peak, 2.0 / static_cast<double>(probe.shape.call.S))
          << features << " seed " << seed;
      EXPECT_LT(peak, 0.6) << features << " seed " << seed;
    }
  }
}

TEST(Probe, NumbersAreExactInTheTypeAskedFor) {
  for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16}) {
    ProbeRequest request = asking("bias,gradients");
    request.dtype = dtype;
    const Probe probe = make_probe(request).value();
    for (const char* name : {"query", "key", "value", "bias", "d_output"}) {
      ASSERT_NE(probe.file.find(name), nullptr) << name;
      EXPECT_EQ(probe.file.find(name)->dtype(), dtype) << name;
    }
    const AnyTensor* key = probe.file.find("key");
    for (std::size_t n = 0; n < key->size(); ++n) {
      ASSERT_EQ(key->number(n), probe.claim.call.key.elements()[n]) << name_of(dtype);
    }
    EXPECT_EQ(probe.words.precision, name_of(dtype));
  }
}

TEST(Probe, TheFileSaysTheClaim) {
  const Probe probe = make_probe(asking("top-left,lengths,softcap,scale", "jax")).value();
  const check::ClaimWords words = check::read_claim(probe.file).value();
  EXPECT_EQ(words, probe.words);
  EXPECT_EQ(words.convention, "jax");
  EXPECT_EQ(words.causal, "top-left");
  EXPECT_EQ(words.layout, "bthd");
  EXPECT_EQ(words.softcap, 1.7);
  EXPECT_EQ(words.scale, 0.37);
  EXPECT_EQ(probe.file.find("query")->shape(), (Shape{3, 27, 6, 14}));
}

TEST(Probe, LaysTensorsOutAsTheConventionDoes) {
  const auto shape_of = [](const ProbeRequest& request, const char* name) {
    return make_probe(request).value().file.find(name)->shape();
  };
  EXPECT_EQ(shape_of(asking("grouped", "pytorch-sdpa"), "key"), (Shape{2, 3, 22, 14}));
  EXPECT_EQ(shape_of(asking("grouped", "jax"), "key"), (Shape{2, 22, 3, 14}));
  EXPECT_EQ(shape_of(asking("grouped", "onnxruntime-gqa"), "key"), (Shape{2, 22, 72}));
  EXPECT_EQ(shape_of(asking("", "pytorch-mha"), "query"), (Shape{13, 3, 84}));
  EXPECT_EQ(shape_of(asking("packed,bottom-right", "flash-attention"), "query"),
            (Shape{13, 6, 24}));
  EXPECT_EQ(shape_of(asking("cache,causal", "onnx-24"), "past_key"), (Shape{3, 6, 9, 14}));
  EXPECT_EQ(shape_of(asking("cache,causal", "onnx-24"), "key"), (Shape{3, 6, 13, 14}));

  const Probe plain = make_probe(asking("grouped")).value();
  ProbeRequest turned = asking("grouped");
  turned.layout = "lbe";
  const AnyTensor packed = *make_probe(turned).value().file.find("query");  // [T, B, H·D]
  const Tensor<double>& query = plain.claim.call.query;
  for (std::int64_t b = 0; b < 2; ++b) {
    for (std::int64_t h = 0; h < 12; ++h) {
      for (std::int64_t i = 0; i < 13; ++i) {
        for (std::int64_t d = 0; d < 14; ++d) {
          ASSERT_EQ(packed.number(static_cast<std::size_t>(((i * 2 + b) * 12 + h) * 14 + d)),
                    query(b, h, i, d));
        }
      }
    }
  }
}

TEST(Probe, MasksHaveThePolarityOfTheConvention) {
  const Probe sdpa = make_probe(asking("mask", "pytorch-sdpa")).value();
  const Probe mha = make_probe(asking("mask", "pytorch-mha")).value();
  ASSERT_EQ(sdpa.file.find("mask")->size(), mha.file.find("mask")->size());
  for (std::size_t n = 0; n < sdpa.file.find("mask")->size(); ++n) {
    EXPECT_NE(sdpa.file.find("mask")->number(n), mha.file.find("mask")->number(n));
  }
}

TEST(Probe, AHostileOneHasAnEmptyRowAndNaNBehindTheMask) {
  for (const char* features : {"mask", "lengths", "mask,lengths", "causal,mask,window"}) {
    ProbeRequest request = asking(features);
    request.hostile = true;
    const Probe probe = make_probe(request).value();
    AttentionCase call = probe.claim.call;
    EXPECT_EQ(call.empty_row, EmptyRow::zero) << features;
    const auto result = lab::attention(call.inputs(), call.options());
    ASSERT_TRUE(result) << result.failure().message;
    EXPECT_TRUE(
        std::ranges::none_of(result->output.elements(), [](double x) { return std::isnan(x); }))
        << features << ": the NaN is not behind the mask";
    EXPECT_TRUE(std::ranges::any_of(call.value.elements(), [](double x) { return std::isnan(x); }));
    EXPECT_TRUE(std::ranges::any_of(call.key.elements(), [](double x) { return std::isnan(x); }));
    call.empty_row = EmptyRow::error;
    EXPECT_EQ(lab::attention(call.inputs(), call.options()).failure().id, "no-visible-key");
  }
  ProbeRequest made_up = asking("mask", "jax");  // no claim can say what JAX makes up there
  made_up.hostile = true;
  const Probe probe = make_probe(made_up).value();
  EXPECT_EQ(probe.claim.call.empty_row, EmptyRow::error);
  EXPECT_FALSE(probe.remarks.empty());
}

TEST(Probe, AFeatureChangesNoNumberOfAnother) {
  const Probe plain = make_probe(asking("")).value();
  const Probe more = make_probe(asking("bias,mask,sink,gradients")).value();
  ProbeRequest other = asking("");
  other.seed = 2;
  const auto query = [](const Probe& probe) {
    const auto numbers = probe.claim.call.query.elements();
    return std::vector<double>(numbers.begin(), numbers.end());
  };
  EXPECT_EQ(query(plain), query(more));
  EXPECT_NE(query(plain), query(make_probe(other).value()));
}

TEST(Probe, CountsPositionsAsTheMaskDoes) {
  const Probe cached = make_probe(asking("causal,cache,rope")).value();
  EXPECT_EQ(cached.words.causal, "9");
  EXPECT_EQ(cached.claim.past, 9);
  EXPECT_EQ(cached.claim.rope->query_positions.front(), 9);
  EXPECT_EQ(cached.claim.rope->key_positions.back(), 21);
  const Probe packed = make_probe(asking("bottom-right,packed,rope")).value();
  EXPECT_EQ(packed.claim.rope->key_positions,
            (std::vector<std::int64_t>{0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2,
                                       0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}));
  EXPECT_EQ(packed.claim.rope->query_positions,
            (std::vector<std::int64_t>{3, 4, 5, 6, 7, 1, 2, 5, 6, 7, 8, 9, 10}));
}

TEST(Probe, TakesAHeadDimAndLengthsBeyondABlock) {
  for (const std::int64_t head_dim : {36, 64, 128}) {
    ProbeRequest request = asking("causal,grouped");
    request.head_dim = head_dim;
    request.long_lengths = true;
    const Probe probe = make_probe(request).value();
    EXPECT_EQ(probe.shape.call.D, head_dim);
    EXPECT_EQ(probe.shape.call.E, head_dim);
    EXPECT_NE(probe.shape.call.H * probe.shape.call.H, head_dim);
    EXPECT_GT(probe.shape.call.T, 128);
    EXPECT_NE(probe.shape.call.S % 16, 0);
  }
  ProbeRequest odd = asking("rope");
  odd.head_dim = 7;
  EXPECT_EQ(make_probe(odd).failure().id, "bad-option");
}

TEST(Probe, RefusesWhatNoCallIs) {
  const auto id = [](const ProbeRequest& request) {
    const auto probe = make_probe(request);
    return probe ? std::string("made") : probe.failure().id;
  };
  EXPECT_EQ(id(asking("cache,lengths")), "features-conflict");
  EXPECT_EQ(id(asking("packed,lengths")), "features-conflict");
  EXPECT_EQ(id(asking("top-left,cache")), "features-conflict");
  EXPECT_EQ(id(asking("mask,bias", "ggml")), "features-conflict");
  EXPECT_EQ(id(asking("window", "pytorch-sdpa")), "not-stated");
  EXPECT_EQ(id(asking("window", "onnx-23")), "not-offered");
  EXPECT_EQ(id(asking("causal", "pytorch-mha")), "not-offered");
  EXPECT_EQ(id(asking("causal", "torch")), "unknown-convention");
  EXPECT_EQ(check::features_of("causal,maks").failure().id, "unknown-feature");
  EXPECT_EQ(check::features_of("causal,,mask").failure().id, "unknown-feature");
  ProbeRequest hostile = asking("causal");
  hostile.hostile = true;
  EXPECT_EQ(id(hostile), "bad-option");
  ProbeRequest layout = asking("");
  layout.layout = "bhdt";
  EXPECT_EQ(id(layout), "bad-option");
  ProbeRequest dtype = asking("");
  dtype.dtype = DType::i8;
  EXPECT_EQ(id(dtype), "bad-option");
}

}  // namespace
}  // namespace attest::test
