// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include <charconv>
#include <memory>

#include "frontends/cli/case_options.h"
#include "frontends/cli/command.h"
#include "frontends/cli/options.h"
#include "frontends/cli/trace_print.h"

namespace attest::cli {
namespace {

namespace workbook = lab::workbook;

struct TraceOptions {
  CaseOptions inputs;
  NumberStyle style;
  std::string workbook;  ///< "two-position" or "block"; "" when files are given
  std::optional<std::int64_t> row;
  std::vector<std::string> set;
  bool json = false;
  bool csv = false;
  std::string address;  ///< why
  std::optional<std::int64_t> depth;
};

/// The source of a trace: the workbook's fixtures unless files are named.
class Source {
 public:
  static Result<Source> open(const TraceOptions& o) {
    Source out;
    out.wants_files_ = !o.inputs.file.empty() || !o.inputs.names.empty();
    if (out.wants_files_ && !o.workbook.empty()) {
      return Failure{ErrorKind::value, "two-sources",
                     "[trace] give a file or --workbook, not both"};
    }
    out.name_ = out.wants_files_ ? (o.inputs.file.empty() ? "separate files" : o.inputs.file)
                                 : "workbook/" + (o.workbook.empty() ? "two-position" : o.workbook);
    if (out.name_ == "workbook/block") {
      out.block_ = true;
      out.rows_ = workbook::fixture::rows();
      out.causal_ = o.inputs.causal != "none";
      const bool known = o.inputs.causal.empty() || o.inputs.causal == "square" || !out.causal_;
      if (!known || !only_causal(o.inputs)) {
        return Failure{
            ErrorKind::value, "not-for-block",
            "[trace] the workbook's block takes --causal, --causal none and --set alone"};
      }
      return out;
    }
    if (!out.wants_files_ && out.name_ != "workbook/two-position") {
      return Failure{ErrorKind::value, "unknown-case",
                     "[trace] --workbook is two-position or block; found '" + o.workbook + "'"};
    }
    auto loaded = out.wants_files_ ? load_case(o.inputs) : load_case(o.inputs, two_position());
    if (!loaded) return loaded.failure();
    if (auto ok = widen(*loaded); !ok) return ok.failure();
    for (const std::string& remark : loaded->remarks) note(remark);
    out.call_ = std::move(loaded->call);
    return out;
  }

  Result<void> set(const std::string& assignment) {
    const std::size_t equals = assignment.find('=');
    const auto bad = [&](const char* what) {
      return Failure{ErrorKind::value, "bad-value",
                     fmt::format("[trace] --set {}: {}; write ADDRESS=VALUE", assignment, what)};
    };
    if (equals == std::string::npos) return bad("there is no =");
    const auto address = lab::parse_address(assignment.substr(0, equals));
    if (!address) return address.failure();
    const std::string text = assignment.substr(equals + 1);
    double value = 0;
    if (text == "true") {
      value = 1;
    } else if (text != "false") {
      const char* end = text.data() + text.size();
      const auto [rest, error] = std::from_chars(text.data(), end, value);
      if (error != std::errc{} || rest != end) return bad("the value is not a number");
    }
    return block_ ? lab::set_input(rows_, parameters_, *address, value)
                  : lab::set_input(call_, *address, value);
  }

  Result<lab::Trace> trace(std::optional<std::int64_t> row) const {
    if (!block_) return lab::Trace::of(call_, row);
    if (row && *row >= rows_.extent(0)) {
      return Failure{
          ErrorKind::value, "no-such-row",
          fmt::format("[trace] there is no row {}; the block has {}", *row, rows_.extent(0))};
    }
    return lab::Trace::of(rows_, parameters_, {.causal = causal_});
  }
  [[nodiscard]] TraceTitle title() const {
    if (block_) {
      return {name_, causal_ ? "causal" : "all visible",
              fmt::format("rows {}  features {}  heads 2", rows_.extent(0), rows_.extent(1))};
    }
    return {name_, describe(call_.mask, call_.visible.has_value()), describe(call_)};
  }

 private:
  static io::NamedTensors two_position() {
    io::NamedTensors out;
    out.add("query", workbook::fixture::query());
    out.add("key", workbook::fixture::query());
    out.add("value", workbook::fixture::value());
    return out;
  }

  std::string name_;
  bool wants_files_ = false;
  bool block_ = false;
  bool causal_ = true;
  AttentionCase call_;
  Tensor<double> rows_;
  workbook::BlockParameters parameters_;
};

Result<lab::Trace> traced(const TraceOptions& o, TraceTitle& title) {
  auto source = Source::open(o);
  if (!source) return source.failure();
  for (const std::string& assignment : o.set) {
    if (auto ok = source->set(assignment); !ok) return ok.failure();
  }
  title = source->title();
  const Progress progress("trace");
  return source->trace(o.row);
}

int trace(const TraceOptions& o) {
  TraceTitle title;
  const auto result = traced(o, title);
  if (!result) return fail(in_words_of_options(result.failure()));
  if (o.json) return write_out(trace_as_json(*result, title));
  if (o.csv) return write_out(trace_as_csv(*result));
  return write_out(trace_as_text(*result, title, o.style, o.row));
}

int why(const TraceOptions& o) {
  const auto address = lab::parse_address(o.address);
  if (!address) return fail(address.failure());
  TraceTitle title;
  const auto result = traced(o, title);
  if (!result) return fail(in_words_of_options(result.failure()));
  const auto text = why_as_text(*result, *address, o.style, static_cast<int>(o.depth.value_or(1)));
  if (!text) return fail(text.failure());
  return write_out(*text);
}

std::vector<CLI::Option*> add_common(CLI::App& command, TraceOptions& o) {
  add_case_options(command, o.inputs);
  auto styles = add_number_options(command, o.style);
  add_word(command, "--workbook", o.workbook,
           "two-position (default when no file is given) or block: the workbook's fixtures");
  command
      .add_option("--set", o.set,
                  "ADDRESS=VALUE: change an input number, a mask cell (0/1) or a parameter first; "
                  "may be repeated")
      ->allow_extra_args(false);
  return styles;
}

constexpr const char* trace_footer = R"(
Addresses are [batchN.][hN.]stage[i,j,...], counted from 0; docs/notation.md lists the stages.
Inputs that --set may change: query key value mask bias; for the block rows P1 P2 WO W1 W2.

Examples:
  attest trace
  attest trace --workbook two-position --causal --row 1
  attest trace --workbook block --json
  attest trace --set 'query[0,1]=2' --set 'mask[1,0]=0' --full
  attest trace dump.safetensors --causal bottom-right --row 7 --csv)";

constexpr const char* why_footer = R"(
Examples:
  attest why 'weights[0,1]'
  attest why 'h0.weights[2,2]' --workbook block
  attest why 'norm2[2,0]' --workbook block --depth 3
  attest why 'batch0.h2.output[4,0]' dump.safetensors --full)";

}  // namespace

void add_trace(CLI::App& app, Action& action) {
  auto o = std::make_shared<TraceOptions>();
  auto* command = app.add_subcommand("trace", "Show every intermediate number of a calculation");
  command->footer(trace_footer);
  const auto styles = add_common(*command, *o);
  add_integer(*command, "--row", o->row, "Only this query's row: large calls are traced row by row",
              {.least = 0});
  auto* json = command->add_flag("--json", o->json, "One JSON object a stage, a line each");
  auto* csv = command->add_flag("--csv", o->csv, "One line address,value for each number");
  csv->excludes(json);
  for (auto* style : styles) style->excludes(json)->excludes(csv);
  command->callback([&action, o] { action = [o] { return trace(*o); }; });

  auto w = std::make_shared<TraceOptions>();
  auto* explain = app.add_subcommand("why", "Say why one number is what it is");
  explain->footer(why_footer);
  explain->add_option("ADDRESS", w->address, "The number, such as 'h0.weights[2,0]'")->required();
  add_common(*explain, *w);
  add_integer(*explain, "--row", w->row, "Trace only this query's row (for large calls)",
              {.least = 0});
  add_integer(*explain, "--depth", w->depth,
              "How many steps back to explain the operands too (default 1)",
              {.least = 0, .most = 12});
  explain->callback([&action, w] { action = [w] { return why(*w); }; });
}

}  // namespace attest::cli
