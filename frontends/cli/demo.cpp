// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include "attest/lab/workbook.h"
#include "frontends/cli/command.h"

namespace attest::cli {
namespace {

namespace workbook = lab::workbook;

/// The workbook's `show`: a label, then each row with a blank or a sign before every number.
void show(std::string& out, std::string_view label, const Tensor<double>& rows) {
  out += fmt::format("{}\n", label);
  for (std::int64_t i = 0; i < rows.extent(0); ++i) {
    for (std::int64_t j = 0; j < rows.extent(1); ++j) {
      out += fmt::format("{}{: .6f}", j == 0 ? "" : " ", rows(i, j));
    }
    out += '\n';
  }
}

int demo() {
  using workbook::fixture::query;
  using workbook::fixture::value;
  std::string out;
  for (const bool causal : {false, true}) {
    const auto result = workbook::attention(query(), query(), value(), {.causal = causal});
    if (!result) return fail(result.failure());
    show(out, causal ? "causal=True weights" : "causal=False weights", result->weights);
    show(out, "output", result->output);
  }
  const auto block = workbook::transformer_block(workbook::fixture::rows());
  if (!block) return fail(block.failure());
  show(out, "fixed block output", block->output);
  for (std::size_t head = 0; head < block->maps.size(); ++head) {
    show(out, fmt::format("head {}", head + 1), block->maps[head]);
  }
  return write_out(out);
}

}  // namespace

void add_demo(CLI::App& app, Action& action) {
  auto* command = app.add_subcommand(
      "demo", "Print the workbook's listing: both visibility modes, then the fixed block");
  command->footer(R"(
The numbers are rounded for the listing alone; `attest trace` shows where each comes from.

Examples:
  attest demo)");
  command->callback([&action] { action = demo; });
}

}  // namespace attest::cli
