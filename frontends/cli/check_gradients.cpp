// SPDX-License-Identifier: MIT
// The backward pass in a dump: the gradient that came in, and those that went out.
#include "frontends/cli/check_gradients.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "attest/base/text.h"
#include "frontends/cli/print.h"

namespace attest::cli {
namespace {

using check::GradientOf;

Failure bad(std::string id, std::string message) {
  return {ErrorKind::value, std::move(id), "[check] " + std::move(message)};
}

struct GradientRole {
  const char* role;
  const char* flag;
  GradientOf of;
};
constexpr GradientRole roles[] = {{"d_query", "d-query", GradientOf::query},
                                  {"d_key", "d-key", GradientOf::key},
                                  {"d_value", "d-value", GradientOf::value},
                                  {"d_bias", "d-bias", GradientOf::bias},
                                  {"d_sink", "d-sink", GradientOf::sink}};

/// Of query, key and value, laid out as these are.
Result<Tensor<double>> placed_gradient(FoundGradients::Found& found, const ChosenLayout& layout) {
  if (found.of == GradientOf::sink || found.of == GradientOf::bias) {
    auto numbers = found.tensor.to_f64(found.name);
    if (!numbers || found.of == GradientOf::sink) return numbers;
    Shape shape = numbers->shape();
    if (shape.size() > 4) {
      return bad("bad-rank", sentence(found.name, " has shape ", to_string(shape),
                                      "; rank 4 at most is expected"));
    }
    shape.insert(shape.begin(), 4 - shape.size(), 1);
    return std::move(*numbers).reshaped(std::move(shape));
  }
  const std::int64_t heads = found.of == GradientOf::query ? layout.heads : layout.kv_heads;
  auto there = placed(std::move(found.tensor), layout.layout, heads, found.name);
  if (!there) return there.failure();
  return widened(*there, found.name);
}

bool is_right(check::Judgement judgement) {
  return judgement == check::Judgement::right || judgement == check::Judgement::right_by_rounding;
}

template <class T>
void append(std::vector<T>& to, std::vector<T>& from) {
  to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
}

/// The tables of both, and the explanation of what went wrong first.
check::Diagnosis joined(check::Diagnosis forward, check::Diagnosis backward) {
  const bool forward_first = !is_right(forward.judgement) || is_right(backward.judgement);
  check::Diagnosis& first = forward_first ? forward : backward;
  check::Diagnosis& other = forward_first ? backward : forward;
  if (!is_right(other.judgement)) {
    std::string names;
    if (!other.explanations.empty()) {
      for (const check::Made& made : other.explanations[0].mistakes) names += " " + made.label();
    }
    first.remarks.push_back(sentence("the gradients are ", check::name_of(other.judgement),
                                     names.empty() ? "" : ":", names));
  }
  append(forward.stages, backward.stages);
  if (!forward_first) std::swap(first.stages, other.stages);
  append(first.remarks, other.remarks);
  first.tried += other.tried;
  return std::move(first);
}

/// Cached keys come first. A gradient of the new keys alone is put behind them.
void behind_the_cache(check::ObservedGradient& found, const check::Claim& claim,
                      std::vector<std::string>& remarks) {
  const bool of_keys = found.of == GradientOf::key || found.of == GradientOf::value;
  if (!of_keys || claim.past == 0) return;
  const Shape shape = found.values.shape();
  const std::int64_t S = claim.shape.S, fresh = S - claim.past;
  if (shape[2] == S) {
    remarks.push_back(
        sentence(found.name, " has all ", S, " keys, the ", claim.past, " cached ones first"));
  }
  if (shape[2] != fresh || fresh == 0) return;
  Tensor<double> whole({shape[0], shape[1], S, shape[3]});
  const std::int64_t width = shape[3];
  for (std::int64_t row = 0; row < shape[0] * shape[1]; ++row) {
    std::copy_n(found.values.data() + row * fresh * width, fresh * width,
                whole.data() + (row * S + claim.past) * width);
  }
  found.values = std::move(whole);
  found.first_key = claim.past;
  remarks.push_back(sentence(found.name, " has ", fresh, " keys: the new ones, behind ", claim.past,
                             " cached ones"));
}

}  // namespace

Result<FoundGradients> find_gradients(Sources& sources) {
  FoundGradients out;
  auto d_output = sources.find("d_output", "d-output");
  if (!d_output) return d_output.failure();
  out.d_output = *std::move(d_output);
  if (out.d_output && !is_floating(out.d_output->dtype())) {
    return Failure{ErrorKind::type, "bad-dtype",
                   sentence("[check] d_output holds ", name_of(out.d_output->dtype()),
                            "; floating-point numbers are expected")};
  }
  for (const GradientRole& each : roles) {
    auto found = sources.find_named(each.role, each.flag);
    if (!found) return found.failure();
    if (!*found) continue;
    if (!is_floating((*found)->tensor.dtype())) {
      return Failure{
          ErrorKind::type, "bad-dtype",
          sentence("[check] ", (*found)->name, " holds ", name_of((*found)->tensor.dtype()),
                   "; floating-point numbers are expected")};
    }
    out.gradients.push_back({each.of, (*found)->tensor, (*found)->name});
  }
  if (!out.gradients.empty() && !out.d_output) {
    return bad("missing-tensor", sentence(out.gradients[0].name,
                                          " cannot be judged without d_output, the gradient that "
                                          "came in; there is ",
                                          sources.listing()));
  }
  return out;
}

Result<std::optional<check::GradientDump>> place_gradients(FoundGradients found,
                                                           const check::Claim& claim,
                                                           const ChosenLayout& layout,
                                                           std::vector<std::string>& remarks) {
  if (found.gradients.empty()) {
    if (found.d_output) remarks.emplace_back("d_output is not used: no gradient came of it");
    return std::optional<check::GradientDump>();
  }
  if (!claim.has_query_and_key() || !claim.has_value()) {
    return bad("missing-tensor", "gradients cannot be judged without query, key and value");
  }
  check::GradientDump out;
  out.claim = claim;
  const lab::AttentionShape& s = claim.shape;
  const auto came_in = found.d_output->to_f64("d_output");
  if (!came_in) return came_in.failure();
  const auto is_nan = [](double x) { return std::isnan(x); };
  if (came_in->size() != 0 && std::ranges::all_of(came_in->elements(), is_nan)) {
    return bad("no-numbers", "d_output holds nothing but NaN");
  }
  auto d_output =
      arranged(*came_in, {"d_output", {s.B, s.H, s.T, s.E}, layout.layout, {}}, remarks);
  if (!d_output) return d_output.failure();
  out.d_output = *std::move(d_output);
  for (FoundGradients::Found& each : found.gradients) {
    const DType dtype = each.tensor.dtype();
    auto numbers = placed_gradient(each, layout);
    if (!numbers) return numbers.failure();
    out.gradients.push_back({each.of, *std::move(numbers), dtype, one_line(each.name)});
    behind_the_cache(out.gradients.back(), claim, remarks);
  }
  return std::optional(std::move(out));
}

Result<check::Diagnosis> diagnose_both(const check::Dump& dump,
                                       const std::optional<check::GradientDump>& gradients,
                                       const check::DiagnoseOptions& options) {
  if (!gradients) return check::diagnose(dump, options);
  auto backward = check::diagnose_gradients(*gradients, options);
  if (!backward || dump.stages.empty()) return backward;
  auto forward = check::diagnose(dump, options);
  if (!forward) return forward;
  return joined(*std::move(forward), *std::move(backward));
}

}  // namespace attest::cli
