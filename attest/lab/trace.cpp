// SPDX-License-Identifier: MIT
#include "attest/lab/trace.h"

#include <algorithm>

#include "attest/base/text.h"
#include "attest/lab/attention_row.h"

namespace attest::lab {
namespace {

/// A [B, H, N, W] tensor's plane (b, h) from row `first` on, `rows` of them.
Tensor<double> plane(const Tensor<double>& from, RowPlace at, std::int64_t first,
                     std::int64_t rows) {
  Tensor<double> out({rows, from.extent(3)});
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < from.extent(3); ++j) out(i, j) = from(at.b, at.h, first + i, j);
  }
  return out;
}

/// One stage of a query's row: its name, its axes behind the query's, and where a row holds it.
struct RowStage {
  const char* name;
  Shape axes;
  bool present;
  std::function<std::span<const double>(const AttentionRow&)> of;
};

/// The stages of a call's rows in order of computation; those that the call did not ask for are not
/// present. `bias` and `sink` are inputs and stand where they join.
std::vector<RowStage> row_stages(const AttentionCase& call, const AttentionShape& shape,
                                 const std::vector<double>& bias_row, const double& sink) {
  const auto table = [](std::vector<double> AttentionRow::*stage) {
    return [stage](const AttentionRow& row) { return std::span<const double>(row.*stage); };
  };
  const auto number = [](double AttentionRow::*stage) {
    return [stage](const AttentionRow& row) { return std::span(&(row.*stage), 1); };
  };
  const bool alibi = !call.alibi_slopes.empty();
  const bool sinks = !call.sink.empty();
  const Shape keys{shape.S};
  using Row = AttentionRow;
  return {{"products", {shape.S, shape.D}, true, table(&Row::products)},
          {"dot", keys, true, table(&Row::dot)},
          {"scaled", keys, true, table(&Row::scaled)},
          {"capped", keys, call.softcap.has_value(), table(&Row::capped)},
          {"bias", keys, call.bias.has_value(), [&](const Row&) { return std::span(bias_row); }},
          {"alibi", keys, alibi, table(&Row::alibi)},
          {"biased", keys, call.bias || alibi, table(&Row::biased)},
          {"masked", keys, true, table(&Row::masked)},
          {"sink", {}, sinks, [&](const Row&) { return std::span(&sink, 1); }},
          {"peak", {}, true, number(&Row::peak)},
          {"minus_peak", keys, true, table(&Row::minus_peak)},
          {"exp", keys, true, table(&Row::exp)},
          {"sink_exp", {}, sinks, number(&Row::sink_exp)},
          {"sum", {}, true, number(&Row::sum)},
          {"softmax", keys, call.dropout.rate != 0, table(&Row::softmax)},
          {"weights", keys, true, table(&Row::weights)},
          {"mix", {shape.S, shape.E}, true, table(&Row::mix)},
          {"output", {shape.E}, true, table(&Row::output)},
          {"log_sum_exp", {}, true, number(&Row::log_sum_exp)}};
}

Failure no_such(std::string id, std::string message) {
  return {ErrorKind::value, std::move(id), "[trace] " + std::move(message)};
}

}  // namespace

const Stage* Trace::find(std::string_view name) const noexcept {
  const auto found = std::ranges::find(stages_, name, &Stage::name);
  return found == stages_.end() ? nullptr : &*found;
}

std::vector<std::string> Trace::heads() const {
  std::vector<std::string> out;
  for (const Head& head : heads_) out.push_back(head.prefix);
  return out;
}

/// The head whose prefix begins this name (the longest such), and the stage name that is left.
const Trace::Head* Trace::head_of(std::string_view name, std::string& stage) const {
  for (const Head& head : heads_) {
    if (!name.starts_with(head.prefix)) continue;
    if (find(name) == nullptr) continue;
    stage = name.substr(head.prefix.size());
    return &head;
  }
  stage = name;
  return nullptr;
}

std::int64_t Trace::first_index(const Stage& stage) const {
  return stage.name.ends_with("key") || stage.name.ends_with("value") ? 0 : first_row_;
}

Result<std::size_t> Trace::place(const Stage& stage, const Address& address) const {
  const Shape& shape = stage.values.shape();
  if (address.index.size() != shape.size()) {
    return no_such("no-such-index", sentence(stage.name, " has ", shape.size(),
                                             " indices; the address has ", address.index.size()));
  }
  std::size_t offset = 0;
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    const std::int64_t from = axis == 0 ? first_index(stage) : 0;
    const std::int64_t place = address.index[axis] - from;
    if (place < 0 || place >= shape[axis]) {
      return no_such("no-such-index",
                     sentence(address.text(), ": index ", axis, " must lie between ", from, " and ",
                              from + shape[axis] - 1, "; it is ", address.index[axis]));
    }
    offset = offset * static_cast<std::size_t>(shape[axis]) + static_cast<std::size_t>(place);
  }
  return offset;
}

Result<double> Trace::at(const Address& address) const {
  const Stage* stage = find(address.name);
  if (stage == nullptr) {
    if (heads_.size() > 1 && find(heads_.front().prefix + address.name) != nullptr) {
      return no_such("no-such-stage",
                     sentence("'", address.name, "' stands in each of ", heads_.size(),
                              " heads: write ", heads_.front().prefix, address.text()));
    }
    std::string known;  // the stages of one head stand for those of all
    for (const Stage& each : stages_) {
      std::string rest;
      const Head* head = head_of(each.name, rest);
      if (head != nullptr && head != &heads_.front()) continue;
      known += (known.empty() ? "" : " ") + each.name;
    }
    return no_such("no-such-stage",
                   sentence("there is no stage '", address.name, "'; there are: ", known));
  }
  const auto offset = place(*stage, address);
  if (!offset) return offset.failure();
  return stage->values.elements()[*offset];
}

HiddenBy Trace::hidden_by(std::string_view prefix, std::int64_t i, std::int64_t j) const {
  const auto head = std::ranges::find(heads_, prefix, &Head::prefix);
  if (head == heads_.end()) return HiddenBy::nothing;
  return head->hidden[static_cast<std::size_t>((i - first_row_) * head->keys + j)];
}

bool Trace::dropped(std::string_view prefix, std::int64_t i, std::int64_t j) const {
  const auto head = std::ranges::find(heads_, prefix, &Head::prefix);
  if (head == heads_.end()) return false;
  return head->dropped[static_cast<std::size_t>((i - first_row_) * head->keys + j)];
}

Result<void> Trace::add_head(const AttentionCase& call, Head head, RowPlace first,
                             std::int64_t rows) {
  const std::int64_t S = call.key.extent(2);
  const std::int64_t g = first.h / (call.query.extent(1) / call.key.extent(1));
  const std::string& p = head.prefix;
  stages_.push_back({p + "query", plane(call.query, first, first.i, rows)});
  stages_.push_back({p + "key", plane(call.key, {first.b, g, 0}, 0, S)});
  stages_.push_back({p + "value", plane(call.value, {first.b, g, 0}, 0, S)});

  const auto options = call.options();
  const auto shape = check_attention(call.inputs(), options);
  if (!shape) return shape.failure();
  const Visibility visibility(options, *shape);
  std::vector<double> bias_row(static_cast<std::size_t>(S));
  const double sink = call.sink.empty() ? 0 : call.sink[static_cast<std::size_t>(first.h)];
  const auto stages = row_stages(call, *shape, bias_row, sink);
  std::vector<std::vector<double>> numbers(stages.size());
  for (std::int64_t i = first.i; i < first.i + rows; ++i) {
    const RowPlace at{first.b, first.h, i};
    const auto row = attention_row(call.inputs(), options, at);
    if (!row) return row.failure();
    if (row->empty && call.empty_row == EmptyRow::error) return no_visible_key(at);
    for (std::size_t j = 0; j < bias_row.size(); ++j) {
      bias_row[j] = visibility.bias(at, static_cast<std::int64_t>(j));
    }
    for (std::size_t n = 0; n < stages.size(); ++n) {
      const auto part = stages[n].of(*row);
      if (stages[n].present) numbers[n].insert(numbers[n].end(), part.begin(), part.end());
    }
    head.hidden.insert(head.hidden.end(), row->hidden.begin(), row->hidden.end());
    head.dropped.insert(head.dropped.end(), row->dropped.begin(), row->dropped.end());
  }
  for (std::size_t n = 0; n < stages.size(); ++n) {
    if (!stages[n].present) continue;
    Shape whole{rows};
    whole.insert(whole.end(), stages[n].axes.begin(), stages[n].axes.end());
    stages_.push_back({p + stages[n].name, Tensor<double>(whole, numbers[n])});
  }
  head.keys = S;
  head.head_dim = call.query.extent(3);
  head.scale = call.scale;
  head.softcap = call.softcap;
  head.dropout_rate = call.dropout.rate;
  heads_.push_back(std::move(head));
  return {};
}

Result<void> Trace::add_heads(const AttentionCase& call, const std::string& outer,
                              std::optional<std::int64_t> only) {
  const auto options = call.options();
  const auto shape = check_attention(call.inputs(), options);
  if (!shape) return shape.failure();
  const auto [B, H, G, T, S, D, E] = *shape;
  if (only && (*only < 0 || *only >= T)) {
    return no_such("no-such-row", sentence("there is no query ", *only, "; T is ", T));
  }
  for (std::int64_t b = 0; b < B; ++b) {
    for (std::int64_t h = 0; h < H; ++h) {
      Head head;
      head.prefix = outer;
      if (B > 1) head.prefix += sentence("batch", b, ".");
      if (H > 1) head.prefix += sentence("h", h, ".");
      auto ok = add_head(call, std::move(head), {b, h, only.value_or(0)}, only ? 1 : T);
      if (!ok) return ok;
    }
  }
  return {};
}

Result<Trace> Trace::of(const AttentionCase& call, std::optional<std::int64_t> only) {
  Trace trace;
  trace.first_row_ = only.value_or(0);
  if (auto ok = trace.add_heads(call, "", only); !ok) return ok.failure();
  return trace;
}

Result<Trace> Trace::of(const Tensor<double>& rows, const workbook::BlockParameters& parameters,
                        const workbook::BlockOptions& options) {
  auto block = workbook::transformer_block(rows, parameters, options);
  if (!block) return block.failure();
  Trace trace;
  trace.epsilon_ = parameters.epsilon;
  trace.stages_ = {{"rows", rows},        {"P1", parameters.P1}, {"P2", parameters.P2},
                   {"WO", parameters.WO}, {"W1", parameters.W1}, {"W2", parameters.W2}};
  for (Stage& stage : block->stages) {
    const bool of_head = stage.name.starts_with("h0.") || stage.name.starts_with("h1.");
    if (!of_head || stage.name.ends_with(".projection")) trace.stages_.push_back(stage);
    if (!stage.name.ends_with(".projection")) continue;
    // The head's attention, from the same numbers, with all its stages.
    const Tensor<double>& projected = stage.values;
    const Shape one_head{1, 1, projected.extent(0), projected.extent(1)};
    AttentionCase call;
    call.query = call.key = call.value = Tensor<double>(projected).reshaped(one_head);
    if (options.causal) call.mask = Mask::causal();
    auto ok = trace.add_heads(call, stage.name.substr(0, 3), std::nullopt);
    if (!ok) return ok.failure();
    trace.heads_.back().self_projected = true;
  }
  return trace;
}

}  // namespace attest::lab
