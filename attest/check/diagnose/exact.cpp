// SPDX-License-Identifier: MIT
#include "attest/check/diagnose/exact.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

#include "attest/base/text.h"
#include "attest/check/at_index.h"
#include "attest/lab/environment.h"
#include "attest/lab/exact_sum.h"
#include "attest/lab/positions.h"
#include "attest/lab/softmax.h"

namespace attest::check {
namespace {

constexpr std::size_t most_terms = 4;

std::string five_digits(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.5g", value);
  return text;
}

/// Every row turned to its own position. [B, H, T, D]
Result<Tensor<double>> rotated(const Tensor<double>& x, const RopeConfig& config,
                               std::span<const std::int64_t> positions) {
  const std::int64_t batches = x.extent(0), rows = x.extent(2);
  const auto count = static_cast<std::int64_t>(positions.size());
  const bool each_batch = count == batches * rows && batches > 1;
  if (count != rows && !each_batch) {
    return Failure{
        ErrorKind::shape, "shape-mismatch",
        sentence("[check] rope positions must be ", rows, " or ", batches * rows, "; got ", count)};
  }
  auto table = lab::rope_table(config, x.extent(3), {.T = 1, .offsets = positions});
  if (!table) return table.failure();
  const std::int64_t pairs = table->cos.extent(2);
  const Shape shape{each_batch ? batches : 1, rows, pairs};
  const Tensor<double> cos = std::move(table->cos).reshaped(shape);
  const Tensor<double> sin = std::move(table->sin).reshaped(shape);
  return lab::rope_turn(x.view<4>(),
                        {.cos = cos.view<3>(), .sin = sin.view<3>(), .pairing = config.pairing});
}

/// The largest parts of a sum, in words: "0.61 * value[0,0] + … + 5 more".
struct Part {
  std::int64_t n = 0;
  double size = 0;
};
std::vector<Part> largest_parts(std::vector<Part> parts) {
  std::stable_sort(parts.begin(), parts.end(),
                   [](const Part& a, const Part& b) { return a.size > b.size; });
  if (parts.size() > most_terms) parts.resize(most_terms);
  std::sort(parts.begin(), parts.end(), [](const Part& a, const Part& b) { return a.n < b.n; });
  return parts;
}

}  // namespace

Result<ExactRows> ExactRows::make(const Dump& dump) {
  ExactRows out(dump);
  const Claim& claim = dump.claim;
  out.shape_ = claim.shape;
  if (!claim.has_query_and_key()) return out;
  if (claim.rope) {
    auto query = rotated(claim.call.query, claim.rope->config, claim.rope->query_positions);
    if (!query) return query.failure();
    auto key = rotated(claim.call.key, claim.rope->config, claim.rope->key_positions);
    if (!key) return key.failure();
    out.query_ = std::move(*query);
    out.key_ = std::move(*key);
  }
  if (!claim.has_value()) {
    out.value_ = Tensor<double>({claim.shape.B, claim.shape.G, claim.shape.S, 1});
  }
  const AttentionInputs<double> in{
      claim.rope ? std::as_const(out.query_).view<4>() : claim.call.query.view<4>(),
      claim.rope ? std::as_const(out.key_).view<4>() : claim.call.key.view<4>(),
      claim.has_value() ? claim.call.value.view<4>() : std::as_const(out.value_).view<4>()};
  auto shape = lab::check_attention(in, claim.call.options());
  if (!shape) return shape.failure();
  out.shape_ = *shape;
  return out;
}

ExactRows::Row ExactRows::row(lab::RowPlace at, const StageRow& evaluated) const {
  const lab::ExactEnvironment exact;
  const Claim& claim = dump_->claim;
  Row out;
  if (claim.has_query_and_key()) {
    const AttentionInputs<double> in{
        claim.rope ? query_.view<4>() : claim.call.query.view<4>(),
        claim.rope ? key_.view<4>() : claim.call.key.view<4>(),
        claim.has_value() ? claim.call.value.view<4>() : value_.view<4>()};
    const AttentionOptions<double> options = claim.call.options();
    const lab::AttentionCall call{in, options, shape_, lab::Visibility(options, shape_)};
    lab::AttentionRow row = lab::compute_row(call, at, lab::Record::stages);
    out.stages.dot = row.dot;
    out.stages.scaled = row.scaled;
    out.stages.capped = row.capped;
    out.stages.biased = row.biased;
    out.stages.masked = row.masked;
    out.stages.weights = row.weights;
    if (claim.has_value()) out.stages.output = row.output;
    out.stages.log_sum_exp = row.log_sum_exp;
    out.all = std::move(row);
    return out;
  }
  out.stages = evaluated;
  const bool from_scores = dump_->stages.front().stage < Stage::weights;
  const bool empty = RowView(evaluated).empty();
  if (from_scores && !empty && claim.call.dropout.rate == 0) {
    std::optional<double> sink;
    if (!claim.call.sink.empty()) sink = claim.call.sink[at_index(at.h)];
    const lab::SoftmaxRow softmax = lab::softmax_row(evaluated.masked, sink);
    out.stages.weights = softmax.weights;
    out.stages.log_sum_exp = softmax.log_sum_exp;
  }
  if (!claim.has_value() || empty) return out;
  const lab::AttentionShape& shape = claim.shape;
  const std::int64_t group = at.h / std::max<std::int64_t>(1, shape.H / shape.G);
  const View<const double, 4> value = claim.call.value.view<4>();
  for (std::int64_t e = 0; e < shape.E; ++e) {
    std::vector<double> mix;
    for (std::int64_t j = 0; j < shape.S; ++j) {
      const double weight = out.stages.weights[at_index(j)];
      if (weight != 0) mix.push_back(weight * value(at.b, group, j, e));
    }
    out.stages.output[at_index(e)] = lab::exact_sum(mix);
  }
  return out;
}

std::string ExactRows::prefix(lab::RowPlace at) const {
  std::string out;
  if (shape_.B > 1) out += sentence("batch", at.b, ".");
  if (shape_.H > 1) out += sentence("h", at.h, ".");
  return out;
}

std::string ExactRows::address(Stage stage, lab::RowPlace at, std::int64_t n) const {
  const std::string name = prefix(at) + std::string(name_of(stage));
  if (stage == Stage::log_sum_exp) return sentence(name, "[", at.i, "]");
  return sentence(name, "[", at.i, ",", n, "]");
}

std::string ExactRows::terms_of_output(lab::RowPlace at, std::int64_t e, const Row& row) const {
  const lab::AttentionShape& shape = dump_->claim.shape;
  const std::int64_t group =
      at.h / std::max<std::int64_t>(1, shape.H / std::max<std::int64_t>(1, shape.G));
  const View<const double, 4> value = dump_->claim.call.value.view<4>();
  std::vector<Part> parts;
  for (std::int64_t j = 0; j < shape.S; ++j) {
    const double weight = row.stages.weights[at_index(j)];
    if (weight != 0) parts.push_back({j, std::fabs(weight * value(at.b, group, j, e))});
  }
  const std::size_t all = parts.size();
  std::string out;
  for (const Part& part : largest_parts(parts)) {
    out += sentence(out.empty() ? "" : " + ", five_digits(row.stages.weights[at_index(part.n)]),
                    " * value[", part.n, ",", e, "] (", five_digits(value(at.b, group, part.n, e)),
                    ")");
  }
  if (all > most_terms) out += sentence(" + ", all - most_terms, " more");
  const std::int64_t hidden = shape.S - static_cast<std::int64_t>(all);
  if (all == 0) return "0: the query sees no key";
  if (hidden > 0) out += sentence("; ", hidden, " of ", shape.S, " keys have no share");
  return out;
}

std::string ExactRows::terms_of_dot(lab::RowPlace at, std::int64_t j) const {
  const View<const double, 4> query =
      dump_->claim.rope ? query_.view<4>() : dump_->claim.call.query.view<4>();
  const View<const double, 4> key =
      dump_->claim.rope ? key_.view<4>() : dump_->claim.call.key.view<4>();
  const std::int64_t group = at.h / std::max<std::int64_t>(1, shape_.H / shape_.G);
  std::vector<Part> parts;
  for (std::int64_t d = 0; d < shape_.D; ++d) {
    parts.push_back({d, std::fabs(query(at.b, at.h, at.i, d) * key(at.b, group, j, d))});
  }
  std::string out;
  for (const Part& part : largest_parts(parts)) {
    out += sentence(out.empty() ? "" : " + ", five_digits(query(at.b, at.h, at.i, part.n)), " * ",
                    five_digits(key(at.b, group, j, part.n)));
  }
  if (shape_.D > static_cast<std::int64_t>(most_terms)) {
    out += sentence(" + ", shape_.D - static_cast<std::int64_t>(most_terms), " more");
  }
  return out;
}

std::string ExactRows::sentence_of(Stage stage, lab::RowPlace at, std::int64_t n,
                                   const Row& row) const {
  const std::size_t k = at_index(n);
  const StageRow& s = row.stages;
  const std::string name = address(stage, at, n) + " = ";
  const auto has = [&](const std::vector<double>& table) { return k < table.size(); };
  const bool all = row.all.has_value();
  if (stage == Stage::output) return name + terms_of_output(at, n, row);
  if (stage == Stage::log_sum_exp) {
    if (!all) return name + "the logarithm of the sum of exp(score)";
    return sentence(name, "peak ", five_digits(row.all->peak), " + log(", five_digits(row.all->sum),
                    ")");
  }
  if (all && stage >= Stage::masked && row.all->hidden[k] != lab::HiddenBy::nothing) {
    return sentence(name, stage == Stage::masked ? "-inf" : "0", ": key ", n, " is hidden by ",
                    lab::reason(row.all->hidden[k]));
  }
  if (stage == Stage::weights && all) {
    return sentence(name, "exp(", five_digits(s.masked[k]), " - ", five_digits(row.all->peak),
                    ") / ", five_digits(row.all->sum));
  }
  if (stage == Stage::weights && has(s.masked)) {
    return sentence(name, "exp(", five_digits(s.masked[k]), " - log_sum_exp ",
                    five_digits(s.log_sum_exp), ")");
  }
  if (stage == Stage::dot && all) return name + terms_of_dot(at, n);
  if (stage == Stage::scaled && has(s.dot)) {
    const std::optional<double>& scale = dump_->claim.call.scale;
    return sentence(name, five_digits(s.dot[k]),
                    scale ? " * " + five_digits(*scale) : sentence(" / sqrt(", shape_.D, ")"));
  }
  if (stage == Stage::capped && has(s.scaled) && dump_->claim.call.softcap) {
    const std::string cap = five_digits(*dump_->claim.call.softcap);
    return sentence(name, cap, " * tanh(", five_digits(s.scaled[k]), " / ", cap, ")");
  }
  if (stage == Stage::biased && has(s.capped)) {
    return sentence(name, five_digits(s.capped[k]), " + bias ",
                    five_digits(s.biased[k] - s.capped[k]));
  }
  if (stage == Stage::masked && has(s.biased)) return sentence(name, five_digits(s.biased[k]));
  return name + five_digits(s.of(stage)[k]);
}

}  // namespace attest::check
