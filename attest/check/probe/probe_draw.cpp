// SPDX-License-Identifier: MIT
// The numbers of a probe, and where they lie in its file.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "attest/base/dropout.h"
#include "attest/base/random.h"
#include "attest/base/text.h"
#include "attest/check/probe/probe_plan.h"
#include "attest/lab/positions.h"

namespace attest::check {
namespace {

/// Of the scores: their softmax over a dozen keys is then neither flat nor all on one of them.
constexpr double score_deviation = 1.8;
constexpr double visible_share =
    0.65;  ///< of a mask: not a half, so that it is not its own opposite
constexpr std::int64_t least_visible = 3;  ///< keys of a row that the mask leaves, where there are

/// A stream of random numbers for each tensor, so that no feature changes the numbers of another.
enum Stream : std::uint64_t { of_query, of_key, of_value, of_mask, of_bias, of_sink, of_d_output };

class Drawer {
 public:
  explicit Drawer(ProbePlan plan)
      : plan_(std::move(plan)),
        p_(plan_.probe),
        f_(p_.request.features),
        n_(p_.shape.call),
        call_(p_.claim.call) {}

  Result<Probe> draw() {
    draw_operands();
    add_operands();
    if (f_.mask) draw_mask();
    if (auto ok = add_mask(); !ok) return ok.failure();
    if (f_.bias) {
      call_.bias = bell({n_.B, n_.H, n_.T, n_.S}, of_bias, 0.8);
      add("bias", *call_.bias);
    }
    add_numbers_of_heads();
    add_lists();
    if (f_.rope) add_positions();
    if (f_.dropout) add_kept_weights();
    if (f_.gradients) {
      add("d_output",
          laid_out(bell({n_.B, n_.H, n_.T, n_.E}, of_d_output, 1), p_.shape.output_layout));
    }
    write_claim(p_.words, p_.file);
    p_.file.metadata.emplace_back("attest.made_by", command_of(p_.request));
    return std::move(p_);
  }

 private:
  /// Numbers that are exact in the number type of the probe.
  Tensor<double> rounded(const Tensor<double>& numbers, DType dtype) const {
    const AnyTensor narrow = AnyTensor::from_f64(numbers, dtype);
    Tensor<double> out(numbers.shape());
    for (std::size_t n = 0; n < out.size(); ++n) out.elements()[n] = narrow.number(n);
    return out;
  }

  Tensor<double> bell(Shape shape, Stream stream, double deviation) const {
    Random random(p_.request.seed, stream);
    Tensor<double> out(std::move(shape));
    for (double& x : out.elements()) x = deviation * random.bell();
    return rounded(out, p_.request.dtype);
  }

  void add(const char* name, const Tensor<double>& numbers) {
    p_.file.add(name, AnyTensor::from_f64(numbers, p_.request.dtype));
  }
  void add_list(const char* name, const std::vector<std::int64_t>& numbers) {
    if (numbers.empty()) return;
    Tensor<std::int32_t> list({static_cast<std::int64_t>(numbers.size())});
    for (std::size_t n = 0; n < numbers.size(); ++n) {
      list.elements()[n] = static_cast<std::int32_t>(numbers[n]);
    }
    p_.file.add(name, list);
  }

  void draw_operands() {
    const double scale = call_.scale.value_or(1 / std::sqrt(static_cast<double>(n_.D)));
    const double deviation = score_deviation / (scale * std::sqrt(static_cast<double>(n_.D)));
    call_.query = bell({n_.B, n_.H, n_.T, n_.D}, of_query, deviation);
    call_.key = bell({n_.B, n_.G, n_.S, n_.D}, of_key, 1);
    call_.value = bell({n_.B, n_.G, n_.S, n_.E}, of_value, 1);
    if (!plan_.hidden_nan) return;
    const double nan = std::numeric_limits<double>::quiet_NaN();
    for (std::int64_t g = 0; g < n_.G; ++g) {
      for (std::int64_t d = 0; d < n_.D; ++d) call_.key(0, g, hidden_key(), d) = nan;
      for (std::int64_t e = 0; e < n_.E; ++e) call_.value(0, g, hidden_key(), e) = nan;
    }
  }

  /// The key of batch 0 that nobody may see, in a hostile probe.
  [[nodiscard]] std::int64_t hidden_key() const { return n_.S - (f_.lengths ? 1 : 2); }

  void add_operands() {
    const std::int64_t past = p_.shape.past;
    add("query", in_layout(call_.query));
    add("key", in_layout(keys(call_.key, past, n_.S)));
    add("value", in_layout(keys(call_.value, past, n_.S)));
    if (past == 0) return;
    add("past_key", cache_in_layout(keys(call_.key, 0, past)));
    add("past_value", cache_in_layout(keys(call_.value, 0, past)));
  }

  /// The rows from `begin` to before `end` of every head.
  static Tensor<double> keys(const Tensor<double>& all, std::int64_t begin, std::int64_t end) {
    const Shape& shape = all.shape();
    Tensor<double> out({shape[0], shape[1], end - begin, shape[3]});
    for (std::int64_t b = 0; b < shape[0]; ++b) {
      for (std::int64_t g = 0; g < shape[1]; ++g) {
        for (std::int64_t j = begin; j < end; ++j) {
          for (std::int64_t d = 0; d < shape[3]; ++d) out(b, g, j - begin, d) = all(b, g, j, d);
        }
      }
    }
    return out;
  }

  /// [B, H, T, D] as the layout has it.
  Tensor<double> in_layout(const Tensor<double>& x) const { return laid_out(x, p_.shape.layout); }
  Tensor<double> laid_out(const Tensor<double>& x, const std::string& layout) const {
    const std::int64_t B = x.shape()[0], H = x.shape()[1], T = x.shape()[2], D = x.shape()[3];
    if (layout == "bhtd") {
      return p_.shape.without_batch ? Tensor<double>(x).reshaped({H, T, D}) : x;
    }
    const bool batch_inside = layout == "lbe";
    Tensor<double> out({batch_inside ? T : B, batch_inside ? B : T, H, D});
    for (std::int64_t b = 0; b < B; ++b) {
      for (std::int64_t h = 0; h < H; ++h) {
        for (std::int64_t i = 0; i < T; ++i) {
          for (std::int64_t d = 0; d < D; ++d) {
            (batch_inside ? out(i, b, h, d) : out(b, i, h, d)) = x(b, h, i, d);
          }
        }
      }
    }
    if (layout == "bthd") {
      return p_.shape.without_batch ? std::move(out).reshaped({T, H, D}) : out;
    }
    const Shape shape{out.shape()[0], out.shape()[1], H * D};
    return std::move(out).reshaped(shape);
  }

  /// A cache has its heads apart even where the new rows are packed.
  Tensor<double> cache_in_layout(const Tensor<double>& x) const {
    return p_.shape.layout == "bthd" ? in_layout(x) : x;
  }

  void draw_mask() {
    Random random(p_.request.seed, of_mask);
    Tensor<bool> visible({n_.B, 1, n_.T, n_.S});
    const AttentionOptions<double> options = call_.options();
    const lab::Visibility others(options, n_);
    for (std::int64_t b = 0; b < n_.B; ++b) {
      for (std::int64_t i = 0; i < n_.T; ++i) {
        std::vector<std::int64_t> candidates;
        for (std::int64_t j = 0; j < n_.S; ++j) {
          const bool never = plan_.hidden_nan && b == 0 && j == hidden_key();
          visible(b, 0, i, j) = random.uniform() < visible_share && !never;
          if (!never && others.visible({b, 0, i}, j)) candidates.push_back(j);
        }
        leave_enough(visible, b, i, candidates, random);
        if (!plan_.empty_query || b != 1 || i != 2) continue;
        for (std::int64_t j = 0; j < n_.S; ++j) visible(b, 0, i, j) = false;
      }
    }
    call_.visible = std::move(visible);
  }

  /// Shows more of the keys that the other rules let be seen, until there are enough.
  static void leave_enough(Tensor<bool>& visible, std::int64_t b, std::int64_t i,
                           const std::vector<std::int64_t>& candidates, Random& random) {
    const auto count = static_cast<std::int64_t>(candidates.size());
    const auto seen = [&] {
      return std::ranges::count_if(candidates, [&](std::int64_t j) { return visible(b, 0, i, j); });
    };
    while (seen() < std::min(least_visible, count)) {
      visible(b, 0, i, candidates[static_cast<std::size_t>(random.between(0, count - 1))]) = true;
    }
  }

  Result<void> add_mask() {
    if (!call_.visible) return {};
    const Convention& convention = plan_.convention ? *plan_.convention : conventions().front();
    auto mask = from_visible(*call_.visible, convention);
    if (!mask) return mask.failure();
    if (f_.bias && is_floating(mask->dtype())) {
      return Failure{ErrorKind::value, "features-conflict",
                     sentence("[probe] ", convention.name,
                              " adds its mask to the scores, so mask and bias are one there")};
    }
    p_.file.add("mask", *std::move(mask));
    return {};
  }

  /// Sinks and slopes are parameters: single precision at least.
  void add_numbers_of_heads() {
    const DType dtype = p_.request.dtype == DType::f64 ? DType::f64 : DType::f32;
    if (f_.sink) {
      Random random(p_.request.seed, of_sink);
      call_.sink.resize(static_cast<std::size_t>(n_.H));
      for (double& logit : call_.sink) logit = random.uniform(-0.5, 1.5);
      add_heads("sink", call_.sink, dtype);
    }
    if (f_.alibi) {
      call_.alibi_slopes = lab::alibi_slopes(n_.H);
      add_heads("alibi_slopes", call_.alibi_slopes, dtype);
    }
  }
  void add_heads(const char* name, std::vector<double>& numbers, DType dtype) {
    const Tensor<double> exact =
        rounded(Tensor<double>({n_.H}, std::span<const double>(numbers)), dtype);
    std::ranges::copy(exact.elements(), numbers.begin());
    p_.file.add(name, AnyTensor::from_f64(exact, dtype));
  }

  void add_lists() {
    add_list("key_lengths", call_.mask.key_lengths);
    add_list("query_starts", call_.mask.packing.query_starts);
    add_list("key_starts", call_.mask.packing.key_starts);
  }

  /// Positions for rope, counted as the mask counts them: within documents, and from where the lengths
  /// put the first query.
  void add_positions() {
    RopeClaim rope;
    rope.config.pairing = f_.interleaved ? RopePairing::interleaved : RopePairing::half;
    rope.config.base = p_.words.rope_base.value_or(rope.config.base);
    const bool by_length = f_.lengths && plan_.query_offset != 0;
    const std::int64_t batches = by_length ? n_.B : 1;
    const AttentionOptions<double> options = call_.options();
    const lab::Visibility visibility(options, n_);
    for (std::int64_t b = 0; b < batches; ++b) {
      for (std::int64_t i = 0; i < n_.T; ++i) {
        rope.query_positions.push_back(query_position(visibility, b, i));
      }
    }
    const auto& starts = call_.mask.packing.key_starts;
    for (std::int64_t j = 0; j < n_.S; ++j) {
      const auto next = std::ranges::upper_bound(starts, j);
      rope.key_positions.push_back(next == starts.begin() ? j : j - *(next - 1));
    }
    add_list("query_positions", rope.query_positions);
    add_list("key_positions", rope.key_positions);
    p_.claim.rope = std::move(rope);
  }
  [[nodiscard]] std::int64_t query_position(const lab::Visibility& visibility, std::int64_t b,
                                            std::int64_t i) const {
    if (f_.packed) {
      const auto& [queries, keys] = call_.mask.packing;
      const auto document = std::ranges::upper_bound(queries, i) - queries.begin() - 1;
      return visibility.position_of({b, 0, i}) - keys[static_cast<std::size_t>(document)];
    }
    const bool placed = call_.mask.corner != Corner::top_left;
    return placed ? visibility.position_of({b, 0, i}) : plan_.query_offset + i;
  }

  void add_kept_weights() {
    Tensor<bool> kept({n_.B, n_.H, n_.T, n_.S});
    const std::uint32_t threshold = dropout_threshold(call_.dropout.rate);
    const auto u = [](std::int64_t index) { return static_cast<std::uint32_t>(index); };
    for (std::int64_t b = 0; b < n_.B; ++b) {
      for (std::int64_t h = 0; h < n_.H; ++h) {
        for (std::int64_t i = 0; i < n_.T; ++i) {
          for (std::int64_t j = 0; j < n_.S; ++j) {
            kept(b, h, i, j) = !dropped(call_.dropout.seed, threshold, {u(b), u(h), u(i), u(j)});
          }
        }
      }
    }
    p_.file.add("dropout_keep", kept);
  }

  ProbePlan plan_;
  Probe& p_;
  const ProbeFeatures& f_;
  const lab::AttentionShape& n_;
  AttentionCase& call_;
};

}  // namespace

Result<Probe> drawn(ProbePlan plan) { return Drawer(std::move(plan)).draw(); }

}  // namespace attest::check
