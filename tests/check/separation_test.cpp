// SPDX-License-Identifier: MIT
// What a probe tells apart is measured, and probes tell more apart than other inputs.
#include "attest/check/probe/separation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

namespace attest::test {
namespace {

using check::Separation;

check::ProbeRequest asking(std::string_view features) {
  return {.features = check::features_of(features).value()};
}

Separation of(std::string_view features) {
  return check::separation(make_probe(asking(features)).value().claim);
}

bool holds(const std::vector<std::string>& labels, std::string_view wanted) {
  return std::ranges::find(labels, wanted) != labels.end();
}

/// Whether these two have one output.
bool same(const Separation& separation, std::string_view first, std::string_view second) {
  return std::ranges::any_of(separation.same, [&](const std::vector<std::string>& labels) {
    return holds(labels, first) && holds(labels, second);
  });
}

TEST(Separation, FindsWhatIsEqualInExactArithmetic) {
  const Separation mask = of("mask");
  EXPECT_TRUE(same(mask, "mask.zero_scores", "mask.k_zeroed_only"));
  EXPECT_TRUE(same(mask, "mask.after_softmax_no_renorm", "mask.v_zeroed_only"));
  EXPECT_FALSE(same(mask, "mask.ignored", "mask.inverted"));
  EXPECT_TRUE(holds(of("").unseen, "kv.sequence_reversed")) << "no position matters";
}

TEST(Separation, SeesWhatASquareCausalCallHides) {
  EXPECT_TRUE(holds(of("causal").unseen, "causal.last_row_open"));
  EXPECT_FALSE(holds(of("bottom-right").unseen, "causal.top_left"));
}

TEST(Separation, HostileInputsShowWhatOthersCannot) {
  check::ProbeRequest request = asking("mask");
  EXPECT_TRUE(holds(of("mask").unseen, "empty_rows.uniform"));
  EXPECT_TRUE(holds(of("mask").unseen, "mask.nan_behind_leaks"));
  request.hostile = true;
  const Separation hostile = check::separation(make_probe(request).value().claim);
  EXPECT_FALSE(holds(hostile.unseen, "empty_rows.uniform"));
  EXPECT_FALSE(holds(hostile.unseen, "mask.nan_behind_leaks"));
}

TEST(Separation, SizesThatCoincideHideMistakesAndAProbesDoNot) {
  check::Claim claim = make_probe(asking("")).value().claim;
  EXPECT_FALSE(same(check::separation(claim), "scale.sqrt_heads", "scale.sqrt_half_width"));
  // The same call with D = 2 H.
  const lab::AttentionShape& n = claim.shape;
  for (Tensor<double>* x : {&claim.call.query, &claim.call.key}) {
    Tensor<double> narrow({n.B, n.H, x->extent(2), 12});
    for (std::int64_t b = 0; b < n.B; ++b) {
      for (std::int64_t h = 0; h < n.H; ++h) {
        for (std::int64_t i = 0; i < x->extent(2); ++i) {
          for (std::int64_t d = 0; d < 12; ++d) narrow(b, h, i, d) = (*x)(b, h, i, d);
        }
      }
    }
    *x = std::move(narrow);
  }
  claim.shape.D = 12;
  EXPECT_TRUE(same(check::separation(claim), "scale.sqrt_heads", "scale.sqrt_half_width"));
}

/// What no input of moderate size can tell at f16: a cap far above every score, a fill that is not far
/// below them, and a fill of 1e-9, which is 0.
bool cannot_be_told(const std::string& label) {
  return label.starts_with("softcap.unclaimed") || label.find("fill") != std::string::npos ||
         label == "mask.pos1e_9_instead_of_neg1e9";
}

TEST(Separation, ProbesTellAllOtherPairsApartAtF16) {
  for (const char* features :
       {"", "causal", "top-left", "bottom-right", "window,causal", "mask", "lengths", "bias",
        "grouped,causal", "alibi,causal", "sink", "softcap", "scale", "rope,causal",
        "cache,causal,rope", "packed,causal"}) {
    const Separation separation = of(features);
    EXPECT_GT(separation.mistakes, 120) << features;
    for (const check::MistakePair& pair : separation.near) {
      if (pair.apart >= check::told_apart * unit_of(check::Precision::f16)) continue;
      EXPECT_TRUE(cannot_be_told(pair.first) || cannot_be_told(pair.second))
          << features << ": " << pair.first << " and " << pair.second << " are " << pair.apart
          << " apart";
    }
  }
}

/// Small calls, measured as if some rows of them had to stand for all.
TEST(Separation, WhatSampledRowsDoNotShowIsMeasuredOnAll) {
  for (const char* features : {"", "causal", "mask", "lengths,grouped", "rope,causal", "sink"}) {
    const check::Claim claim = make_probe(asking(features)).value().claim;
    const lab::AttentionShape& n = claim.shape;
    const auto row = static_cast<double>(n.B * n.H * n.S * (n.D + n.E));
    const Separation whole = check::separation(claim, std::numeric_limits<double>::infinity());
    for (const double rows : {1.0, 3.0}) {  // of each head
      const Separation sampled = check::separation(claim, rows * row);
      EXPECT_EQ(sampled.mistakes, whole.mistakes) << features;
      EXPECT_EQ(sampled.unseen, whole.unseen) << features;
      EXPECT_EQ(sampled.same, whole.same) << features;
      EXPECT_LE(sampled.smallest, whole.smallest * (1 + 1e-9)) << features;
      ASSERT_EQ(sampled.near.size(), whole.near.size()) << features;
      for (std::size_t k = 0; k < whole.near.size(); ++k) {
        EXPECT_EQ(sampled.near[k].first, whole.near[k].first) << features;
        EXPECT_EQ(sampled.near[k].second, whole.near[k].second) << features;
        EXPECT_NEAR(sampled.near[k].apart, whole.near[k].apart, 1e-9) << features;
      }
    }
  }
}

/// One key is hidden from one query, in the middle of a head: no sample has that row.
TEST(Separation, AMistakeInOneRowIsSeen) {
  check::Claim claim = make_probe(asking("")).value().claim;
  const lab::AttentionShape& n = claim.shape;
  claim.call.visible = Tensor<bool>({n.B, n.H, n.T, n.S});
  for (bool& each : claim.call.visible->elements()) each = true;
  (*claim.call.visible)(1, 2, n.T - 3, 4) = false;
  const Separation sampled = check::separation(claim, 1);
  EXPECT_FALSE(holds(sampled.unseen, "mask.ignored"));
}

TEST(Separation, TheProbeDrawnIsTheBestOfThoseTried) {
  std::int64_t tried = 0;
  const auto best = check::decisive_probe(asking("causal"), 3, [&](std::int64_t n) { tried = n; });
  ASSERT_TRUE(best);
  EXPECT_EQ(tried, 3);
  for (const std::uint64_t seed : {1U, 2U, 3U}) {
    check::ProbeRequest request = asking("causal");
    request.seed = seed;
    const Separation other = check::separation(make_probe(request).value().claim);
    EXPECT_LE(best->separation.untold_at(check::Precision::f16),
              other.untold_at(check::Precision::f16));
  }
  EXPECT_EQ(check::decisive_probe(asking("cache,lengths"), 1).failure().id, "features-conflict");
}

}  // namespace
}  // namespace attest::test
