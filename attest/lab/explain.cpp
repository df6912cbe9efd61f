// SPDX-License-Identifier: MIT
// Why a number is what it is: one rule for each stage, quoting the formula that made it.
#include <algorithm>

#include "attest/base/text.h"
#include "attest/lab/trace.h"

namespace attest::lab {
namespace {

std::string fill_in(const Explanation& explanation,
                    const std::function<std::string(const Operand&)>& print) {
  const std::string& formula = explanation.formula;
  std::string out;
  for (std::size_t n = 0; n < formula.size(); ++n) {
    if (formula[n] != '{') {
      out += formula[n];
      continue;
    }
    const std::size_t close = formula.find('}', n);
    std::size_t which = 0;
    for (++n; n < close; ++n) which = which * 10 + static_cast<std::size_t>(formula[n] - '0');
    out += print(explanation.operands[which]);
  }
  return out;
}

}  // namespace

std::string Explanation::with_addresses() const {
  return fill_in(*this, [](const Operand& operand) { return operand.address.text(); });
}

std::string Explanation::with_values(const std::function<std::string(double)>& print) const {
  return fill_in(*this, [&](const Operand& operand) {
    const std::string text = print(operand.value);
    return text.starts_with('-') ? "(" + text + ")" : text;
  });
}

/// Builds the explanation of one address from the trace's tables.
class Explainer {
 public:
  Explainer(const Trace& trace, const Address& address) : trace_(trace), address_(address) {
    head_ = trace.head_of(address.name, stage_);
  }

  Result<Explanation> explain() {
    const auto value = trace_.at(address_);
    if (!value) return value.failure();
    out_.result = {address_, *value};
    if (!(head_ != nullptr ? of_head() : of_block())) out_.note = "an input";
    number_in_order();
    return out_;
  }

 private:
  /// Numbers the operands as the formula names them. Compilers are free to evaluate the two sides of
  /// a `+` between strings in any order, and the explanation must not depend on it.
  void number_in_order() {
    std::string formula;
    std::vector<Operand> operands;
    for (std::size_t n = 0; n < out_.formula.size(); ++n) {
      if (out_.formula[n] != '{') {
        formula += out_.formula[n];
        continue;
      }
      std::size_t which = 0;
      for (++n; out_.formula[n] != '}'; ++n) {
        which = which * 10 + static_cast<std::size_t>(out_.formula[n] - '0');
      }
      formula += sentence("{", operands.size(), "}");
      operands.push_back(out_.operands[which]);
    }
    out_.formula = std::move(formula);
    out_.operands = std::move(operands);
  }

  /// Adds an operand and returns its placeholder. A name that begins with a dot-free word stands in
  /// the same head; "/" in front says the name is whole.
  std::string use(std::string name, std::vector<std::int64_t> index) {
    const bool whole = name.starts_with('/');
    if (whole) name.erase(0, 1);
    Address address{whole || head_ == nullptr ? name : head_->prefix + name, std::move(index)};
    const auto value = trace_.at(address);
    out_.operands.push_back({std::move(address), value ? *value : 0});
    return sentence("{", out_.operands.size() - 1, "}");
  }

  /// Σ over n < count of a product of two tables, spelled out.
  std::string sum(std::int64_t count, const std::function<std::string(std::int64_t)>& term) {
    std::string formula;
    for (std::int64_t n = 0; n < count; ++n) formula += (n == 0 ? "" : " + ") + term(n);
    return formula;
  }
  [[nodiscard]] std::int64_t width(const std::string& name, std::size_t axis) const {
    const Stage* stage = trace_.find(name);
    return stage == nullptr ? 0 : stage->values.extent(axis);
  }
  [[nodiscard]] bool has(const std::string& stage) const {
    return trace_.find(head_->prefix + stage) != nullptr;
  }
  std::string last_score() const {
    return has("biased") ? "biased" : has("capped") ? "capped" : "scaled";
  }

  bool of_head() {
    const auto& index = address_.index;
    std::string& f = out_.formula;
    const std::int64_t keys = head_->keys;
    if (head_->self_projected && (stage_ == "query" || stage_ == "key" || stage_ == "value")) {
      f = use("projection", index);
      out_.note = "this head uses its projection as query, key and value";
    } else if (stage_ == "projection") {
      const std::string matrix = head_->prefix == "h0." ? "/P1" : "/P2";
      f = product("/rows", matrix);
    } else if (stage_ == "products") {
      f = use("query", {index[0], index[2]}) + " * " + use("key", {index[1], index[2]});
    } else if (stage_ == "dot") {
      f = sum(head_->head_dim, [&](auto d) { return use("products", {index[0], index[1], d}); });
    } else if (stage_ == "scaled") {
      f = use("dot", index) + (head_->scale ? sentence(" * ", *head_->scale)
                                            : sentence(" / sqrt(", head_->head_dim, ")"));
    } else if (stage_ == "capped") {
      const double cap = *head_->softcap;
      f = sentence(cap, " * tanh(") + use("scaled", index) + sentence(" / ", cap, ")");
    } else if (stage_ == "biased") {
      f = use(has("capped") ? "capped" : "scaled", index);
      if (has("bias")) f += " + " + use("bias", index);
      if (has("alibi")) f += " + " + use("alibi", index);
    } else if (stage_ == "alibi") {
      out_.note = "minus the head's slope times the distance between query and key position";
    } else if (stage_ == "masked") {
      return masked();
    } else {
      return of_softmax(keys);
    }
    return true;
  }

  bool masked() {
    const auto& index = address_.index;
    const HiddenBy rule = trace_.hidden_by(head_->prefix, index[0], index[1]);
    if (rule == HiddenBy::nothing) {
      out_.formula = use(last_score(), index);
      out_.note = "the key is visible";
    } else {
      out_.formula = "-inf";
      out_.note = "hidden by " + reason(rule) + ": excluded before the softmax, whatever its score";
    }
    return true;
  }

  bool of_softmax(std::int64_t keys) {
    const auto& index = address_.index;
    std::string& f = out_.formula;
    if (stage_ == "peak") {
      f = "max(";
      for (std::int64_t j = 0; j < keys; ++j)
        f += (j == 0 ? "" : ", ") + use("masked", {index[0], j});
      if (has("sink")) f += ", " + use("sink", {index[0]});
      f += ")";
    } else if (stage_ == "minus_peak") {
      f = use("masked", index) + " - " + use("peak", {index[0]});
    } else if (stage_ == "exp") {
      f = "exp(" + use("minus_peak", index) + ")";
    } else if (stage_ == "sink_exp") {
      f = "exp(" + use("sink", index) + " - " + use("peak", index) + ")";
    } else if (stage_ == "sum") {
      f = sum(keys, [&](auto j) { return use("exp", {index[0], j}); });
      if (has("sink_exp")) f += " + " + use("sink_exp", index);
    } else if (stage_ == (has("softmax") ? "softmax" : "weights")) {
      f = use("exp", index) + " / " + use("sum", {index[0]});
    } else if (stage_ == "weights" || stage_ == "mix") {
      of_dropout();
    } else if (stage_ == "output") {
      f = sum(keys, [&](auto j) { return use("mix", {index[0], j, index[1]}); });
    } else if (stage_ == "log_sum_exp") {
      f = use("peak", index) + " + log(" + use("sum", index) + ")";
    } else {
      return false;
    }
    return true;
  }

  /// What is left of a weight, and of what it brings.
  void of_dropout() {
    const auto& index = address_.index;
    if (trace_.dropped(head_->prefix, index[0], index[1])) {
      out_.formula = "0";
      out_.note = stage_ == "mix" ? "the weight is dropped, and its value not read" : "dropped";
    } else if (stage_ == "mix") {
      out_.formula =
          use("weights", {index[0], index[1]}) + " * " + use("value", {index[1], index[2]});
    } else {
      out_.formula = use("softmax", index) + sentence(" / (1 - ", head_->dropout_rate, ")");
    }
  }

  /// One entry of a matrix product: Σ_n left[i,n]·right[n,j].
  std::string product(const std::string& left, const std::string& right) {
    const std::int64_t i = address_.index[0];
    const std::int64_t j = address_.index[1];
    return sum(width(right.substr(1), 0), [&](auto n) {
      const std::string a = use(left, {i, n});
      return a + "*" + use(right, {n, j});
    });
  }

  bool of_block() {
    const auto& index = address_.index;
    std::string& f = out_.formula;
    if (stage_ == "concat") {
      const std::int64_t first = width("h0.output", 1);
      const bool in_first = index[1] < first;
      f = in_first ? use("/h0.output", index) : use("/h1.output", {index[0], index[1] - first});
      out_.note =
          sentence("head ", in_first ? 0 : 1, ", feature ", in_first ? index[1] : index[1] - first);
    } else if (stage_ == "output_projection") {
      f = product("/concat", "/WO");
    } else if (stage_ == "residual1") {
      f = use("/rows", index) + " + " + use("/output_projection", index);
    } else if (stage_ == "ffn.up") {
      f = product("/norm1", "/W1");
    } else if (stage_ == "ffn.relu") {
      f = "max(0, " + use("/ffn.up", index) + ")";
    } else if (stage_ == "ffn.down") {
      f = product("/ffn.relu", "/W2");
    } else if (stage_ == "residual2") {
      f = use("/norm1", index) + " + " + use("/ffn.down", index);
    } else if (stage_.starts_with("norm")) {
      return of_norm(stage_.substr(0, 5), stage_.starts_with("norm1") ? "residual1" : "residual2");
    } else {
      return false;
    }
    return true;
  }

  bool of_norm(const std::string& norm, const std::string& residual) {
    const std::int64_t i = address_.index[0];
    const std::int64_t features = width(residual, 1);
    std::string& f = out_.formula;
    if (stage_ == norm + ".mean") {
      f = "(" +
          sum(features,
              [&](auto c) {
                return use("/" + residual, {i, c});
              }) +
          sentence(") / ", features);
    } else if (stage_ == norm + ".variance") {
      f = "(" +
          sum(features,
              [&](auto c) {
                const std::string x = use("/" + residual, {i, c});
                return "(" + x + " - " + use("/" + norm + ".mean", {i}) + ")^2";
              }) +
          sentence(") / ", features);
    } else {
      f = "(" + use("/" + residual, address_.index) + " - " + use("/" + norm + ".mean", {i}) +
          ") / sqrt(" + use("/" + norm + ".variance", {i}) + sentence(" + ", trace_.epsilon_, ")");
    }
    return true;
  }

  const Trace& trace_;
  Address address_;
  std::string stage_;
  const Trace::Head* head_ = nullptr;
  Explanation out_;
};

Result<Explanation> Trace::why(const Address& address) const {
  return Explainer(*this, address).explain();
}

}  // namespace attest::lab
