// SPDX-License-Identifier: MIT
#include <cstdio>
#include <memory>

#include "attest/base/text.h"
#include "attest/io/json.h"
#include "attest/lab/workbook.h"
#include "frontends/cli/command.h"
#include "frontends/cli/json_arguments.h"

namespace attest::cli {
namespace {

namespace workbook = lab::workbook;

/// An answer is the text of one JSON object.
using Answer = Result<std::string>;

void append_member(std::string& out, std::string_view name, const Tensor<double>& values) {
  out += out.empty() ? "{" : ", ";
  io::append_json_string(out, name);
  out += ": ";
  io::append_json_tensor(out, values);
}

Answer matmul(const JsonArguments& arguments) {
  const auto left = arguments.matrix("left");
  if (!left) return left.failure();
  const auto right = arguments.matrix("right");
  if (!right) return right.failure();
  const auto product = workbook::matmul(*left, *right);
  if (!product) return product.failure();
  std::string out;
  append_member(out, "product", *product);
  return out + "}";
}

Answer softmax(const JsonArguments& arguments) {
  const auto scores = arguments.scores("scores");
  if (!scores) return scores.failure();
  const auto weights = workbook::softmax(*scores);
  if (!weights) return weights.failure();
  std::string out;
  append_member(out, "weights", *weights);
  return out + "}";
}

Answer attention(const JsonArguments& arguments) {
  const auto query = arguments.matrix("query");
  if (!query) return query.failure();
  const auto key = arguments.matrix("key");
  if (!key) return key.failure();
  const auto value = arguments.matrix("value");
  if (!value) return value.failure();
  const auto causal = arguments.boolean("causal", false);
  if (!causal) return causal.failure();
  auto allow = arguments.mask("allow");
  if (!allow) return allow.failure();
  const auto result =
      workbook::attention(*query, *key, *value, {.causal = *causal, .allow = *std::move(allow)});
  if (!result) return result.failure();
  std::string out;
  append_member(out, "output", result->output);
  append_member(out, "weights", result->weights);
  return out + "}";
}

Answer block(const JsonArguments& arguments) {
  const auto rows = arguments.matrix("rows");
  if (!rows) return rows.failure();
  const auto causal = arguments.boolean("causal", true);
  if (!causal) return causal.failure();
  workbook::BlockParameters parameters;
  const std::pair<const char*, Tensor<double>*> matrices[] = {{"P1", &parameters.P1},
                                                              {"P2", &parameters.P2},
                                                              {"WO", &parameters.WO},
                                                              {"W1", &parameters.W1},
                                                              {"W2", &parameters.W2}};
  for (const auto& [name, target] : matrices) {
    if (!arguments.has(name)) continue;
    auto given = arguments.matrix(name);
    if (!given) return given.failure();
    *target = *std::move(given);
  }
  const auto epsilon = arguments.positive("epsilon", parameters.epsilon);
  if (!epsilon) return epsilon.failure();
  parameters.epsilon = *epsilon;
  const auto result = workbook::transformer_block(*rows, parameters, {.causal = *causal});
  if (!result) return result.failure();
  std::string out;
  append_member(out, "output", result->output);
  out += ", \"maps\": [";
  for (std::size_t head = 0; head < result->maps.size(); ++head) {
    if (head > 0) out += ", ";
    io::append_json_tensor(out, result->maps[head]);
  }
  return out + "]}";
}

struct Operation {
  const char* name;
  std::vector<std::string> keys;  ///< beside op, expect and error, which are ignored
  Answer (*answer)(const JsonArguments&);
};

const Operation operations[] = {
    {"matmul", {"left", "right"}, matmul},
    {"softmax", {"scores"}, softmax},
    {"attention", {"query", "key", "value", "causal", "allow"}, attention},
    {"block", {"rows", "causal", "P1", "P2", "WO", "W1", "W2", "epsilon"}, block}};

/// Lines of standard input, of bounded length: 64 rows and columns need far less than a mebibyte, so
/// what is longer is no case, and is passed over without being kept.
class LineReader {
 public:
  static constexpr std::size_t longest = std::size_t{1} << 20U;

  bool next(std::string& line) {
    line.clear();
    too_long_ = false;
    bool any = false;
    for (int c = std::getc(stdin); c != EOF; c = std::getc(stdin)) {
      any = true;
      if (c == '\n') return true;
      if (line.size() < longest) {
        line.push_back(static_cast<char>(c));
      } else {
        too_long_ = true;
      }
    }
    return any;
  }
  [[nodiscard]] bool too_long() const { return too_long_; }
  [[nodiscard]] bool failed() const { return std::ferror(stdin) != 0; }

 private:
  bool too_long_ = false;
};

Failure too_long(std::size_t number) {
  return {ErrorKind::value, "line-too-long",
          sentence("[exact] line ", number, " has more than ", LineReader::longest, " bytes")};
}

Answer answer(const Operation& operation, const std::string& line, std::size_t number) {
  const auto json = io::parse_json(line, "line " + std::to_string(number));
  if (!json) return json.failure();
  const auto arguments = JsonArguments::read(*json, operation.name, operation.keys);
  if (!arguments) return arguments.failure();
  return operation.answer(*arguments);
}

int exact(const std::string& name) {
  const Operation* chosen = nullptr;
  for (const Operation& operation : operations) {
    if (name == operation.name) chosen = &operation;
  }
  if (chosen == nullptr) {
    return fail({ErrorKind::value, "unknown-operation",
                 "[exact] there is no operation '" + name +
                     "'; there are: matmul softmax attention block"});
  }
  bool any_error = false;
  std::size_t number = 0;
  LineReader lines;
  for (std::string line; lines.next(line);) {
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    std::string out;
    const auto result = lines.too_long() ? Answer(too_long(number)) : answer(*chosen, line, number);
    if (result) {
      out = *result;
    } else {
      any_error = true;
      out = "{\"error\": {\"id\": ";
      io::append_json_string(out, result.failure().id);
      out += ", \"message\": ";
      io::append_json_string(out, result.failure().message);
      out += "}}";
    }
    if (const int code = write_out(out + "\n"); code != Exit::done) return code;
  }
  if (lines.failed()) {
    return fail({ErrorKind::file, "cannot-read", "[exact] standard input cannot be read"});
  }
  return any_error ? Exit::bad_input : Exit::done;
}

}  // namespace

void add_exact(CLI::App& app, Action& action) {
  auto* command = app.add_subcommand(
      "exact",
      "Calculate with the workbook's contracts: one JSON object a line on standard input, one "
      "answer a line on standard output");
  command->footer(R"(
Keys of a line (op, expect and error are ignored, any other unknown key is an error):
  matmul     left right
  softmax    scores (null means -inf)
  attention  query key value [causal] [allow]
  block      rows [causal] [P1 P2 WO W1 W2 epsilon]

A line that cannot be answered gives {"error": {"id": ..., "message": ...}} and the next one is
read. Blank lines are passed over. Exit 0 if every line was answered, 2 if any was an error.

Examples:
  echo '{"left": [[1, 2]], "right": [[3, 4], [5, 6]]}' | attest exact matmul
  echo '{"scores": [0, null, 1]}' | attest exact softmax
  attest exact attention < cases.jsonl)");
  auto name = std::make_shared<std::string>();
  command->add_option("OP", *name, "matmul, softmax, attention or block")->required();
  command->callback([&action, name] { action = [name] { return exact(*name); }; });
}

}  // namespace attest::cli
