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

/// Grows a table row by row, in the order in which rows are computed.
class Table {
 public:
  explicit Table(std::string name) : name_(std::move(name)) {}
  void append(std::span<const double> row) {
    numbers_.insert(numbers_.end(), row.begin(), row.end());
  }
  void append(double number) { numbers_.push_back(number); }
  [[nodiscard]] Stage finish(Shape shape) && {
    return {name_, Tensor<double>(std::move(shape), numbers_)};
  }

 private:
  std::string name_;
  std::vector<double> numbers_;
};

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
    std::string known;
    for (const Stage& each : stages_) known += (known.empty() ? "" : " ") + each.name;
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

Result<void> Trace::add_head(const AttentionCase& call, Head head, RowPlace first,
                             std::int64_t rows) {
  const std::int64_t S = call.key.extent(2);
  const std::int64_t D = call.query.extent(3);
  const std::int64_t E = call.value.extent(3);
  const std::int64_t g = first.h / (call.query.extent(1) / call.key.extent(1));
  const std::string& p = head.prefix;
  stages_.push_back({p + "query", plane(call.query, first, first.i, rows)});
  stages_.push_back({p + "key", plane(call.key, {first.b, g, 0}, 0, S)});
  stages_.push_back({p + "value", plane(call.value, {first.b, g, 0}, 0, S)});

  Table products(p + "products"), dot(p + "dot"), scaled(p + "scaled"), capped(p + "capped"),
      bias(p + "bias"), alibi(p + "alibi"), biased(p + "biased"), masked(p + "masked"),
      peak(p + "peak"), minus_peak(p + "minus_peak"), exp(p + "exp"), sink(p + "sink"),
      sink_exp(p + "sink_exp"), sum(p + "sum"), weights(p + "weights"), mix(p + "mix"),
      output(p + "output"), log_sum_exp(p + "log_sum_exp");
  const auto options = call.options();
  const auto shape = check_attention(call.inputs(), options);
  if (!shape) return shape.failure();
  const Visibility visibility(options, *shape);
  for (std::int64_t i = first.i; i < first.i + rows; ++i) {
    const RowPlace at{first.b, first.h, i};
    const auto row = attention_row(call.inputs(), options, at);
    if (!row) return row.failure();
    if (row->empty && call.empty_row == EmptyRow::error) return no_visible_key(at);
    products.append(row->products);
    dot.append(row->dot);
    scaled.append(row->scaled);
    capped.append(row->capped);
    for (std::int64_t j = 0; j < S; ++j) bias.append(visibility.bias(at, j));
    alibi.append(row->alibi);
    biased.append(row->biased);
    masked.append(row->masked);
    peak.append(row->peak);
    minus_peak.append(row->minus_peak);
    exp.append(row->exp);
    if (!call.sink.empty()) sink.append(call.sink[static_cast<std::size_t>(at.h)]);
    sink_exp.append(row->sink_exp);
    sum.append(row->sum);
    weights.append(row->weights);
    mix.append(row->mix);
    output.append(row->output);
    log_sum_exp.append(row->log_sum_exp);
    head.hidden.insert(head.hidden.end(), row->hidden.begin(), row->hidden.end());
  }
  const auto add = [&](Table table, const Shape& of) {
    stages_.push_back(std::move(table).finish(of));
  };
  const Shape table{rows, S};
  add(std::move(products), {rows, S, D});
  add(std::move(dot), table);
  add(std::move(scaled), table);
  if (call.softcap) add(std::move(capped), table);
  if (call.bias) add(std::move(bias), table);
  if (!call.alibi_slopes.empty()) add(std::move(alibi), table);
  if (call.bias || !call.alibi_slopes.empty()) add(std::move(biased), table);
  add(std::move(masked), table);
  if (!call.sink.empty()) add(std::move(sink), {rows});
  add(std::move(peak), {rows});
  add(std::move(minus_peak), table);
  add(std::move(exp), table);
  if (!call.sink.empty()) add(std::move(sink_exp), {rows});
  add(std::move(sum), {rows});
  add(std::move(weights), table);
  add(std::move(mix), {rows, S, E});
  add(std::move(output), {rows, E});
  add(std::move(log_sum_exp), {rows});
  head.keys = S;
  head.head_dim = D;
  head.scale = call.scale;
  head.softcap = call.softcap;
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
                        bool causal) {
  auto block = workbook::transformer_block(rows, parameters, causal);
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
    if (causal) call.mask = Mask::causal();
    auto ok = trace.add_heads(call, stage.name.substr(0, 3), std::nullopt);
    if (!ok) return ok.failure();
    trace.heads_.back().self_projected = true;
  }
  return trace;
}

}  // namespace attest::lab
