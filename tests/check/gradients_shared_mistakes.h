// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "tests/check/gradients_mistake_tools.h"

/// Mistakes in what heads share: d_bias and d_sink.
namespace attest::test {

inline std::vector<Made> shared_mistakes() {
  using I = std::int64_t;
  const auto sinks = [](std::string name, std::string after, auto f) {
    return Made{"gradient." + name, after, f};
  };
  std::vector<Made> out{
      {"gradient.scale_on_d_bias", "bias",
       [](Mine& m) {
         for (std::size_t n = 0; n < m.d_s.size(); ++n)
           m.d_bias_all[n] = m.d_s[n] * m.slope[n] * m.scale;
       }},
      {"gradient.d_bias_after_softcap", "bias",
       [](Mine& m) {
         for (std::size_t n = 0; n < m.d_s.size(); ++n) m.d_bias_all[n] = m.d_s[n] * m.slope[n];
       }},
      {"gradient.d_bias_before_softmax", "bias",
       [](Mine& m) {
         for (std::size_t n = 0; n < m.d_s.size(); ++n)
           m.d_bias_all[n] = m.seen[n] != 0 ? m.d_p[n] : 0;
       }},
      {"gradient.d_bias_sign", "results",
       [](Mine& m) {
         for (float& x : m.d_bias) x = -x;
       }},
      {"gradient.d_bias_not_summed", "results", [](Mine& m) { m.d_bias = m.d_bias_all; }},
      sinks("sink_zero", "results", [](Mine& m) { m.d_sink.assign(m.d_sink.size(), 0); }),
      sinks("sink_sign", "results",
            [](Mine& m) {
              for (float& x : m.d_sink) x = -x;
            }),
      sinks("sink_unweighted", "bias",
            [](Mine& m) {
              m.each_row([&](I b, I h, I i) {
                m.sink_w[m.row(b, h, i)] = m.empty[m.row(b, h, i)] ? 0 : 1;
              });
            }),
      sinks("sink_without_flow", "bias", [](Mine& m) { m.d_lse.assign(m.d_lse.size(), 0); }),
      sinks("sink_last_batch", "bias",
            [](Mine& m) {
              m.each_row([&](I b, I h, I i) {
                if (b != m.B - 1) m.sink_w[m.row(b, h, i)] = 0;
              });
            }),
      sinks("sink_batch_mean", "results",
            [](Mine& m) {
              for (float& x : m.d_sink) x /= static_cast<float>(m.B);
            }),
  };
  const char* axes[] = {"batch", "head", "query"};
  const char* many[] = {"batch", "heads", "queries"};
  for (std::size_t axis = 0; axis < 3; ++axis) {
    const auto extent = [axis](const Mine& m) { return axis == 0 ? m.B : axis == 1 ? m.H : m.T; };
    const auto keep = [axis, extent](auto share) {
      return [axis, extent, share](Mine& m) {
        if (!m.call.bias || m.call.bias->extent(axis) != 1) return;
        keep_bias(m, axis, [&](I n) { return share(n, extent(m)); });
      };
    };
    out.push_back({std::string("gradient.d_bias_last_") + axes[axis], "bias",
                   keep([](I n, I of) { return n == of - 1 ? 1.0F : 0.0F; })});
    out.push_back({std::string("gradient.d_bias_first_") + axes[axis], "bias",
                   keep([](I n, I) { return n == 0 ? 1.0F : 0.0F; })});
    out.push_back({std::string("gradient.d_bias_") + many[axis] + "_averaged", "bias",
                   keep([](I, I of) { return 1 / static_cast<float>(of); })});
  }
  return out;
}

}  // namespace attest::test
