// SPDX-License-Identifier: MIT
// Sizes on which nothing coincides, and the claim in the words of the convention.
#include "attest/check/probe/probe_plan.h"

#include <algorithm>
#include <utility>

#include "attest/base/text.h"

namespace attest::check {
namespace {

Failure bad(std::string_view id, std::string message) {
  return {ErrorKind::value, std::string(id), "[probe] " + std::move(message)};
}

class Planner {
 public:
  explicit Planner(const ProbeRequest& request) : f_(request.features) {
    plan_.probe.request = request;
  }

  Result<ProbePlan> plan() {
    for (const auto step :
         {&Planner::check, &Planner::find_convention_and_layout, &Planner::place_corner,
          &Planner::choose_sizes, &Planner::hide_keys, &Planner::choose_positions,
          &Planner::choose_window, &Planner::choose_numbers, &Planner::choose_hostile}) {
      if (auto ok = (this->*step)(); !ok) return ok.failure();
    }
    return std::move(plan_);
  }

 private:
  // Names for what every step writes to.
  ProbeShape& shape() { return plan_.probe.shape; }
  lab::AttentionShape& n() { return plan_.probe.shape.call; }
  ClaimWords& words() { return plan_.probe.words; }
  AttentionCase& call() { return plan_.probe.claim.call; }
  Mask& mask() { return plan_.probe.claim.call.mask; }
  [[nodiscard]] bool conventional(std::string_view name) const {
    return plan_.convention && plan_.convention->name == name;
  }

  Result<void> check() {
    const ProbeRequest& request = plan_.probe.request;
    const std::pair<bool, std::string_view> conflicts[] = {
        {f_.cache && f_.lengths, "cache and lengths both say how many keys there are"},
        {f_.cache && f_.packed, "packed documents have no cache"},
        {f_.packed && f_.lengths, "packed and lengths both say where sequences end"},
        {f_.gradients && f_.cache, "gradients are of training, which has no cache"},
        {f_.gradients && f_.rope,
         "gradients are asked of query and key as they enter the scores: "
         "leave rope out, and give the turned ones"},
        {f_.cache && f_.corner == Corner::top_left,
         "with a cache the first query stands behind the cached keys, not top-left"}};
    for (const auto& [both, why] : conflicts) {
      if (both) return bad("features-conflict", std::string(why));
    }
    if (!is_floating(request.dtype)) {
      return bad("bad-option",
                 sentence("a probe is f64, f32, f16 or bf16; found ", name_of(request.dtype)));
    }
    if (request.head_dim < 0 || request.head_dim > 1024 || request.head_dim == 1 ||
        (f_.rope && request.head_dim % 2 != 0)) {
      return bad("bad-option", sentence("a head_dim is from 2 to 1024, and even for rope; found ",
                                        request.head_dim));
    }
    if (request.hostile && !f_.mask && !f_.lengths) {
      return bad("bad-option",
                 "hostile inputs need something that hides keys: the feature mask or lengths");
    }
    return {};
  }

  Result<void> find_convention_and_layout() {
    const ProbeRequest& request = plan_.probe.request;
    words().precision = name_of(request.dtype);
    if (!request.convention.empty()) {
      const auto found = find_convention(request.convention);
      if (!found) return found.failure();
      plan_.convention = *found;
      words().convention = request.convention;
    }
    shape().layout = request.layout.empty() ? layout_of_convention() : request.layout;
    constexpr std::string_view known[] = {"bhtd", "bthd", "packed", "lbe"};
    if (std::ranges::find(known, shape().layout) == std::end(known)) {
      return bad("bad-option",
                 sentence("a layout is bhtd, bthd, packed or lbe; found '", request.layout, "'"));
    }
    words().layout = shape().output_layout = shape().layout;
    const bool turns = plan_.convention && plan_.convention->layout == Layout::bhtd_to_bthd;
    if (turns && shape().layout == "bhtd") shape().output_layout = "bthd";
    return {};
  }

  [[nodiscard]] std::string layout_of_convention() const {
    if (!plan_.convention) return "bhtd";
    switch (plan_.convention->layout) {
      case Layout::bthd:
        return "bthd";
      case Layout::bt_hd:
        return "packed";
      case Layout::lbe:
        return "lbe";
      default:
        return "bhtd";
    }
  }

  Result<void> place_corner() {
    // Said, too: a file that says nothing at all claims nothing.
    if (!f_.causal) words().causal = "none";
    if (!f_.causal) return {};
    Corner corner = f_.cache ? Corner::at_offset : Corner::square;
    if (f_.corner) {
      corner = *f_.corner;
    } else if (plan_.convention) {
      const auto of = corner_of(*plan_.convention, f_.cache ? Cache::present : Cache::none);
      if (!of) return of.failure();
      corner = *of;
    }
    if (f_.cache && corner == Corner::square) corner = Corner::at_offset;
    if (f_.cache && corner == Corner::top_left) {
      return bad("features-conflict", sentence(words().convention,
                                               " stands the first query at the first key; give the "
                                               "feature bottom-right for a call with a cache"));
    }
    mask().future_hidden = true;
    mask().corner = corner;
    return {};
  }

  /// No two of them equal, none twice, half or the square of another: each such pair makes two mistakes one.
  /// What remains is measured (separation.h). S leaves 6, 6 and 2 keys behind blocks of 16, 8 and 4.
  Result<void> choose_sizes() {
    choose_widths();
    choose_heads();
    const std::int64_t more = plan_.probe.request.long_lengths ? 128 : 0;
    n().S = 22 + more;
    n().T = 13 + more;
    if (mask().future_hidden && mask().corner == Corner::square) n().T = n().S;
    // More queries than keys, so that every key is seen; few more, for the sake of windows.
    if (mask().future_hidden && mask().corner == Corner::top_left) n().T = 27 + more;
    if (n().T == n().S) {
      plan_.probe.remarks.push_back(
          sentence("T = S = ", n().T, ": ", plan_.convention ? words().convention : "attest",
                   " is causal on equal lengths alone; top-left and bottom-right are one there"));
    }
    if (f_.cache) shape().past = plan_.probe.claim.past = n().S - n().T;
    if (shape().layout == "packed" || shape().layout == "lbe") {
      words().heads = n().H;
      if (f_.grouped) words().kv_heads = n().G;
    }
    plan_.probe.claim.shape = n();
    return {};
  }

  void choose_widths() {
    const std::int64_t asked = plan_.probe.request.head_dim;
    const bool equal = asked != 0 || conventional("pytorch-mha") || conventional("jax");
    const bool wide = conventional("flash-attention") || conventional("onnxruntime-gqa") ||
                      conventional("mlx");  // their kernels want E = D, and eights
    n().D = asked != 0 ? asked : wide ? 24 : 14;
    n().E = equal || wide ? n().D : 11;
    if (n().E != n().D) return;
    const std::string wants = asked != 0 ? std::string("the head_dim asked for")
                                         : words().convention + " wants values as wide as keys";
    plan_.probe.remarks.push_back(sentence("E = D = ", n().D, ": ", wants));
  }

  /// Three key/value heads, so that the next one is not the one before.
  void choose_heads() {
    const auto fits = [&](std::int64_t heads) {
      return n().D != heads && n().D != 2 * heads && n().D != heads * heads;
    };
    n().H = f_.grouped ? (fits(12) ? 12 : 18) : fits(6) ? 6 : 10;
    n().G = f_.grouped ? 3 : n().H;
    n().B = f_.packed || f_.grouped ? 2 : 3;
    if (!f_.packed || !conventional("flash-attention")) return;
    n().B = 1;  // its packed tensors are [T, H, D]
    shape().without_batch = true;
  }

  Result<void> hide_keys() {
    const bool top_left = mask().future_hidden && mask().corner == Corner::top_left;
    const std::int64_t T = n().T, S = n().S;
    if (f_.lengths) {
      // One shorter than the queries, so that padded queries show; but where the last query stands at the
      // last key of its length, that would leave the first ones nothing to see.
      const bool short_one = !ends_at_the_last_key();
      mask().key_lengths = {S - 5, short_one ? std::min(T, S) - 4 : S - 8, S - 1};
      if (top_left) mask().key_lengths = {S - 2, S - 3, S - 1};
      mask().key_lengths.resize(static_cast<std::size_t>(n().B));
    }
    if (f_.packed) {
      mask().packing.key_starts = {0, 8, 11, S};
      mask().packing.query_starts = top_left ? std::vector<std::int64_t>{0, 9, 14, T}
                                    : T == S ? mask().packing.key_starts
                                             : std::vector<std::int64_t>{0, 5, 7, T};
    }
    return {};
  }

  /// In the corner, or because the convention counts windows and distances so.
  [[nodiscard]] bool ends_at_the_last_key() const {
    const bool counts_so =
        plan_.convention && plan_.convention->causal == CausalCorner::bottom_right;
    return plan_.probe.claim.call.mask.corner == Corner::bottom_right || (!f_.causal && counts_so);
  }

  /// The first query's key position, and how the claim says it.
  Result<void> choose_positions() {
    if (f_.cache) plan_.query_offset = shape().past;
    if (!f_.cache && ends_at_the_last_key()) plan_.query_offset = n().S - n().T;
    if (mask().corner == Corner::at_offset) mask().query_offset = {plan_.query_offset};
    if (f_.causal) {
      words().causal = mask().corner == Corner::top_left       ? "top-left"
                       : mask().corner == Corner::bottom_right ? "bottom-right"
                       : mask().corner == Corner::square       ? "square"
                                                               : sentence(plan_.query_offset);
      return {};
    }
    const bool counted = f_.window || f_.alibi;
    if (!counted || plan_.query_offset == 0) return {};
    if (f_.packed) {
      return bad("features-conflict",
                 "packed documents of unlike lengths have no one offset: add causal");
    }
    mask().corner = Corner::at_offset;
    mask().query_offset = {plan_.query_offset};
    if (f_.lengths) {
      mask().query_offset.clear();
      for (const std::int64_t length : mask().key_lengths) {
        mask().query_offset.push_back(length - n().T);
      }
    }
    words().query_offset = mask().query_offset;
    return {};
  }

  /// As narrow as leaves every query a key.
  Result<void> choose_window() {
    if (!f_.window) return {};
    std::int64_t left = 5;
    while (left < n().T && some_query_sees_nothing(left)) ++left;
    const Convention& convention = plan_.convention ? *plan_.convention : conventions().front();
    const bool one_number = convention.window == WindowCounts::width_with_self ||
                            convention.window == WindowCounts::width_beside_self ||
                            convention.window == WindowCounts::width_with_self_each_way;
    if (one_number) {
      const std::int64_t width =
          convention.window == WindowCounts::width_beside_self ? left : left + 1;
      const auto window = to_window(width, convention);
      if (!window) return window.failure();
      mask().window = *window;
      words().window = sentence(width);
      return {};
    }
    const auto window = to_window(left, 2, convention);
    if (!window) return window.failure();
    mask().window = *window;
    if (f_.causal) mask().window.right.reset();
    words().window = f_.causal ? sentence(left, ",") : sentence(left, ",2");
    return {};
  }

  /// By the corner, the lengths, the documents and this window.
  bool some_query_sees_nothing(std::int64_t left) {
    AttentionOptions<double> options = call().options();
    options.mask.window = {.left = left, .right = f_.causal ? std::nullopt : std::optional(2)};
    const lab::Visibility visibility(options, n());
    for (std::int64_t b = 0; b < n().B; ++b) {
      for (std::int64_t i = 0; i < n().T; ++i) {
        bool any = false;
        for (std::int64_t j = 0; j < n().S && !any; ++j) any = visibility.visible({b, 0, i}, j);
        if (!any) return true;
      }
    }
    return false;
  }

  Result<void> choose_numbers() {
    const bool must_say =
        plan_.convention && plan_.convention->scale == DefaultScale::must_be_given;
    if (f_.scale || must_say) words().scale = 0.37;
    if (f_.softcap) words().softcap = 1.7;
    if (f_.dropout) {
      words().dropout = 0.25;
      words().seed = plan_.probe.request.seed;
      call().dropout = {.rate = 0.25, .seed = plan_.probe.request.seed};
    }
    if (f_.rope) {
      words().rope = f_.interleaved ? "interleaved" : "half";
      words().rope_base = 10000;
    }
    call().scale = words().scale;
    if (plan_.convention && !call().scale && plan_.convention->scale == DefaultScale::one) {
      call().scale = 1.0;
    }
    call().softcap = words().softcap;
    plan_.probe.claim.precision = precision_of(plan_.probe.request.dtype);
    return {};
  }

  static Precision precision_of(DType dtype) {
    switch (dtype) {
      case DType::f64:
        return Precision::f64;
      case DType::f16:
        return Precision::f16;
      case DType::bf16:
        return Precision::bf16;
      default:
        return Precision::f32;
    }
  }

  Result<void> choose_hostile() {
    if (!plan_.probe.request.hostile) return {};
    plan_.hidden_nan = true;
    EmptyRow policy = EmptyRow::zero;
    if (plan_.convention && plan_.convention->empty_row != EmptyRowGives::error) {
      const auto of = empty_row_of(*plan_.convention);
      if (!of) {
        plan_.probe.remarks.push_back("every query sees a key: " + of.failure().message);
        return {};
      }
      policy = *of;
    }
    call().empty_row = policy;
    words().empty_row = policy == EmptyRow::zero ? "zero" : "nan";
    plan_.empty_query = f_.mask;
    if (!f_.mask) mask().key_lengths.back() = 0;
    return {};
  }

  const ProbeFeatures f_;
  ProbePlan plan_;
};

}  // namespace

Result<ProbePlan> plan_of(const ProbeRequest& request) { return Planner(request).plan(); }

}  // namespace attest::check
