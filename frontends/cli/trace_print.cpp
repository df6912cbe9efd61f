// SPDX-License-Identifier: MIT
#include "frontends/cli/trace_print.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "attest/base/text.h"
#include "attest/check/row_laws.h"
#include "attest/io/json.h"

namespace attest::cli {
namespace {

/// The column headings of a head's rows, in order of computation, and the stages below them.
constexpr std::pair<const char*, const char*> columns[] = {
    {"dot", "dot"},     {"scaled", "scaled"},   {"capped", "capped"}, {"bias", "bias"},
    {"alibi", "alibi"}, {"biased", "biased"},   {"masked", "masked"}, {"minus_peak", "minus_peak"},
    {"exp", "exp"},     {"softmax", "softmax"}, {"weights", "weight"}};

/// A row of cells, each as wide as the widest of its column.
class Grid {
 public:
  void add(std::vector<std::string> cells) {
    if (widths_.size() < cells.size()) widths_.resize(cells.size());
    for (std::size_t n = 0; n < cells.size(); ++n)
      widths_[n] = std::max(widths_[n], cells[n].size());
    rows_.push_back(std::move(cells));
  }
  [[nodiscard]] std::string text() const {
    std::string out;
    for (const auto& cells : rows_) {
      std::string line = " ";
      for (std::size_t n = 0; n < cells.size(); ++n) {
        line += " " +
                (left_[std::min<std::size_t>(n, 3)] ? left(cells[n], widths_[n])
                                                    : right(cells[n], widths_[n])) +
                " ";
      }
      line.erase(line.find_last_not_of(' ') + 1);
      out += line + "\n";
    }
    return out;
  }

 private:
  static constexpr bool left_[] = {true, true, true, false};  // key, products, visible, numbers …
  std::vector<std::vector<std::string>> rows_;
  std::vector<std::size_t> widths_;
};

/// Prints one head's rows from its tables.
class HeadPrinter {
 public:
  HeadPrinter(const lab::Trace& trace, std::string prefix, const NumberStyle& style)
      : trace_(trace), prefix_(std::move(prefix)), style_(style) {}

  [[nodiscard]] std::string row(std::int64_t i) const {
    const auto& queries = stage("query")->values;
    const std::int64_t keys = stage("key")->values.extent(0);
    const std::int64_t width = stage("value")->values.extent(1);
    std::string out = fmt::format("{}query {}  [", prefix_, i);
    for (std::int64_t d = 0; d < queries.extent(1); ++d) {
      out += (d == 0 ? "" : ", ") + short_number(at("query", {i, d}));
    }
    out += "]\n";

    Grid grid;
    std::vector<std::string> head{"key", "products", "visible"};
    for (const auto& [name, title] : columns) {
      if (stage(name) != nullptr) head.emplace_back(title);
    }
    grid.add(head);
    for (std::int64_t j = 0; j < keys; ++j) grid.add(key_row(i, j));
    if (stage("sink") != nullptr) grid.add(sink_row(i));
    std::vector<std::string> total(head.size());
    total[0] = "sum";
    total[static_cast<std::size_t>(std::ranges::find(head, "exp") - head.begin())] =
        style_(at("sum", {i}));
    grid.add(total);
    out += grid.text();
    for (std::int64_t e = 0; e < width; ++e) out += mix_line(i, e, keys);
    out += fmt::format("  log_sum_exp  {}\n", style_(at("log_sum_exp", {i})));
    return out;
  }

 private:
  [[nodiscard]] const lab::Stage* stage(const std::string& name) const {
    return trace_.find(prefix_ + name);
  }
  [[nodiscard]] double at(const std::string& name, std::vector<std::int64_t> index) const {
    const auto value = trace_.at({prefix_ + name, std::move(index)});
    return value ? *value : 0;
  }
  /// Inputs in the shortest form where that is short, so that whole numbers look like themselves.
  [[nodiscard]] std::string short_number(double value) const {
    const std::string text = shortest(value);
    return text.size() <= 8 ? text : style_(value);
  }
  [[nodiscard]] std::vector<std::string> key_row(std::int64_t i, std::int64_t j) const {
    const std::int64_t D = stage("query")->values.extent(1);
    std::string products;
    for (std::int64_t d = 0; d < std::min<std::int64_t>(D, 4); ++d) {
      products += (d == 0 ? "" : " + ") + short_number(at("query", {i, d})) + "*" +
                  short_number(at("key", {j, d}));
    }
    if (D > 4) products += fmt::format(" + … {} more", D - 4);
    const lab::HiddenBy rule = trace_.hidden_by(prefix_, i, j);
    std::string visible = "no: " + lab::reason(rule);
    if (rule == lab::HiddenBy::nothing) {
      visible = trace_.dropped(prefix_, i, j) ? "yes, dropped" : "yes";
    }
    std::vector<std::string> cells{sentence(j), products, visible};
    for (const auto& [name, title] : columns) {
      if (stage(name) != nullptr) cells.push_back(style_(at(name, {i, j})));
    }
    return cells;
  }
  /// The sink joins where the softmax begins: a score and its exponential, and no value.
  [[nodiscard]] std::vector<std::string> sink_row(std::int64_t i) const {
    std::vector<std::string> cells{"sink", "", "no value"};
    for (const auto& [name, title] : columns) {
      if (stage(name) == nullptr) continue;
      const bool masked = std::string_view(name) == "masked";
      const bool exp = std::string_view(name) == "exp";
      cells.push_back(masked ? style_(at("sink", {i})) : exp ? style_(at("sink_exp", {i})) : "");
    }
    return cells;
  }
  [[nodiscard]] std::string mix_line(std::int64_t i, std::int64_t e, std::int64_t keys) const {
    std::string terms;
    std::int64_t shown = 0;
    std::int64_t mixed = 0;
    bool any_visible = false;
    for (std::int64_t j = 0; j < keys; ++j) {
      if (trace_.hidden_by(prefix_, i, j) != lab::HiddenBy::nothing) continue;
      any_visible = true;
      if (trace_.dropped(prefix_, i, j) || ++mixed > 6) continue;
      terms += (shown++ == 0 ? "" : " + ") + style_(at("weights", {i, j})) + "*" +
               short_number(at("value", {j, e}));
    }
    if (mixed > shown) terms += fmt::format(" + … {} more", mixed - shown);
    if (mixed == 0) terms = any_visible ? "everything is dropped" : "nothing is visible";
    return fmt::format("  mix  {}  {} = {}\n", e, terms, style_(at("output", {i, e})));
  }

  const lab::Trace& trace_;
  std::string prefix_;
  NumberStyle style_;
};

/// Stages of the block that belong to no head.
bool of_a_head(const lab::Trace& trace, const std::string& name) {
  for (const std::string& prefix : trace.heads()) {
    if (name.starts_with(prefix)) return true;
  }
  return false;
}

/// Every index of a shape, in row-major order.
std::vector<std::int64_t> index_of(const Shape& shape, std::size_t offset, std::int64_t first_row) {
  std::vector<std::int64_t> out(shape.size());
  auto rest = static_cast<std::int64_t>(offset);
  for (std::size_t axis = shape.size(); axis-- > 0; rest /= shape[axis])
    out[axis] = rest % shape[axis];
  if (!out.empty()) out[0] += first_row;
  return out;
}

}  // namespace

std::string describe(const Mask& mask, bool has_visible) {
  std::string out = mask.future_hidden ? "causal" : "";
  const auto add = [&](std::string_view what) {
    out += (out.empty() ? "" : " and ") + std::string(what);
  };
  if (mask.window.left || mask.window.right) add("window");
  if (!mask.key_lengths.empty()) add("key lengths");
  if (!mask.packing.query_starts.empty()) add("packed documents");
  if (!mask.documents.query.empty()) add("document names");
  if (has_visible) add("mask");
  return out.empty() ? "all visible" : out;
}

std::string describe(const AttentionCase& call) {
  std::string out;
  if (call.query.extent(0) > 1) out += sentence("B ", call.query.extent(0), "  ");
  if (call.query.extent(1) > 1) {
    out += sentence("H ", call.query.extent(1), "  G ", call.key.extent(1), "  ");
  }
  out += sentence("T ", call.query.extent(2), "  S ", call.key.extent(2), "  D ",
                  call.query.extent(3), "  E ", call.value.extent(3), "  scale ");
  out += call.scale ? shortest(*call.scale) : std::string("1/sqrt(D)");
  if (call.softcap) out += sentence("  softcap ", *call.softcap);
  if (!call.alibi_slopes.empty()) out += "  ALiBi";
  if (!call.sink.empty()) out += "  sink";
  if (!call.mask.packing.query_starts.empty()) {
    out += sentence("  documents ", call.mask.packing.query_starts.size() - 1);
  }
  if (call.dropout.rate != 0) {
    out += sentence("  dropout ", call.dropout.rate, " seed ", call.dropout.seed);
  }
  return out;
}

std::string trace_as_text(const lab::Trace& trace, const TraceTitle& title,
                          const NumberStyle& style, std::optional<std::int64_t> only) {
  std::string out =
      fmt::format("attest-trace 1\ncase {}   mode {}   {}\n", title.name, title.mode, title.sizes);
  for (const std::string& prefix : trace.heads()) {
    const lab::Stage* projection = trace.find(prefix + "projection");
    if (projection != nullptr) out += table(projection->name, projection->values, style);
    const HeadPrinter printer(trace, prefix, style);
    const std::int64_t rows = trace.find(prefix + "query")->values.extent(0);
    for (std::int64_t i = trace.first_row(); i < trace.first_row() + rows; ++i) {
      if (!only || *only == i) out += printer.row(i);
    }
    out += fmt::format("check {}{}{}\n", prefix, prefix.empty() ? "" : " ",
                       to_text(check::row_laws(trace, prefix)));
  }
  for (const lab::Stage& stage : trace.stages()) {
    const bool input = stage.name.find('.') == std::string::npos && stage.name.size() <= 2;
    if (!of_a_head(trace, stage.name) && !input) out += table(stage.name, stage.values, style);
  }
  return out;
}

std::string trace_as_json(const lab::Trace& trace, const TraceTitle& title) {
  std::string out = "{\"attest-trace\": 1, \"case\": ";
  io::append_json_string(out, title.name);
  out += ", \"mode\": ";
  io::append_json_string(out, title.mode);
  out += ", \"sizes\": ";
  io::append_json_string(out, title.sizes);
  out += "}\n";
  for (const lab::Stage& stage : trace.stages()) {
    out += "{\"id\": ";
    io::append_json_string(out, stage.name);
    out += fmt::format(", \"shape\": {}, \"first_row\": {}, \"values\": [",
                       to_string(stage.values.shape()), trace.first_index(stage));
    bool first = true;
    for (const double value : stage.values.elements()) {
      if (!first) out += ", ";
      first = false;
      io::append_json_number(out, value);
    }
    out += "]}\n";
  }
  return out;
}

std::string trace_as_csv(const lab::Trace& trace) {
  std::string out = "address,value\n";
  for (const lab::Stage& stage : trace.stages()) {
    for (std::size_t n = 0; n < stage.values.size(); ++n) {
      const lab::Address address{stage.name,
                                 index_of(stage.values.shape(), n, trace.first_index(stage))};
      out += fmt::format("\"{}\",{}\n", address.text(),
                         shortest_with_point(stage.values.elements()[n]));
    }
  }
  return out;
}

Result<std::string> why_as_text(const lab::Trace& trace, const lab::Address& address,
                                const NumberStyle& style, int depth) {
  std::string out;
  std::set<std::string> said;
  std::vector<std::pair<lab::Address, int>> waiting{{address, 0}};
  for (std::size_t n = 0; n < waiting.size(); ++n) {
    const auto [next, level] = waiting[n];
    if (!said.insert(next.text()).second) continue;
    const auto reason = trace.why(next);
    if (!reason) return reason.failure();
    const std::string print = style(reason->result.value);
    out += std::string(static_cast<std::size_t>(2 * level), ' ') + next.text();
    if (!reason->formula.empty()) {
      const std::string names = reason->with_addresses();
      const std::string values = reason->with_values(style);
      out += " = " + names;
      if (!reason->operands.empty() && values != print) out += " = " + values;
    }
    if (reason->formula != print) out += " = " + print;
    if (!reason->note.empty()) out += "   (" + reason->note + ")";
    out += '\n';
    if (level == depth) continue;
    for (const auto& operand : reason->operands) waiting.push_back({operand.address, level + 1});
  }
  return out;
}

}  // namespace attest::cli
