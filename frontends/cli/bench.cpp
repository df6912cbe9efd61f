// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <optional>

#include "attest/io/bytes.h"
#include "frontends/cli/bench_report.h"
#include "frontends/cli/command.h"
#include "frontends/cli/options.h"
#include "frontends/cli/print.h"

namespace attest::cli {
namespace {

struct BenchOptions {
  std::string rows;
  std::vector<std::int64_t> threads;
  std::optional<std::int64_t> rounds;
  std::string isa;
  std::string json;
  std::string html;
  std::string svg;
  std::string peers;
  bool no_peers = false;
  std::vector<std::string> from;
  bool list = false;
};

/// Every word of the filter occurs in the row's name.
bool matches(const BenchRow& row, const std::string& filter) {
  const std::string name = name_of(row);
  std::size_t at = 0;
  while (at < filter.size()) {
    const std::size_t end = std::min(filter.find(' ', at), filter.size());
    if (name.find(filter.substr(at, end - at)) == std::string::npos) return false;
    at = end + 1;
  }
  return true;
}

Result<std::vector<BenchRow>> chosen_rows(const BenchOptions& o) {
  std::vector<BenchRow> out;
  for (const BenchRow& row : bench_rows()) {
    if (matches(row, o.rows)) out.push_back(row);
  }
  if (out.empty()) {
    return Failure{ErrorKind::value, "no-such-row",
                   "[bench] no row's name holds every word of \"" + o.rows +
                       "\"; attest bench --list prints them"};
  }
  return out;
}

Result<BenchPlan> plan_of(const BenchOptions& o) {
  BenchPlan plan;
  const auto isa = o.isa.empty() ? default_isa() : isa_of(o.isa);
  if (!isa) return isa.failure();
  plan.isa = *isa;
  if (o.rounds) plan.rounds = static_cast<int>(*o.rounds);
  if (!o.threads.empty()) plan.threads.clear();
  for (const std::int64_t count : o.threads) {
    if (count < 1 || count > 1024) {
      return Failure{ErrorKind::value, "bad-option",
                     fmt::format("[bench] threads must be from 1 to 1024, not {}", count)};
    }
    plan.threads.push_back(static_cast<int>(count));
  }
  const std::string folder = o.no_peers || !o.peers.empty() ? o.peers : built_peers();
  if (folder.empty()) return plan;
  auto programs = programs_in(folder);
  if (!programs) return programs.failure();
  plan.peers = std::move(*programs);
  return plan;
}

/// The processor's name, where Linux tells it.
std::string processor_name() {
  std::ifstream info("/proc/cpuinfo");
  std::string line;
  while (std::getline(info, line)) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) {
      return one_line(line.substr(colon + 2), 100);
    }
  }
  return "";
}

Result<void> write_text(const std::string& path, const std::string& text) {
  if (path.empty()) return {};
  return io::write_file(path, std::as_bytes(std::span(text)));
}

int list(const std::vector<BenchRow>& rows) {
  std::string out;
  for (const BenchRow& row : rows) out += name_of(row) + "\n";
  return write_out(out);
}

Result<BenchReport> measure(const std::vector<BenchRow>& rows, const BenchPlan& plan) {
  BenchReport report{processor_name(), plan.isa, this_build(), {}};
  Progress progress("bench");
  const auto total = static_cast<std::int64_t>(rows.size() * plan.threads.size());
  for (const BenchRow& row : rows) {
    for (const int threads : plan.threads) {
      auto result = run_row(row, threads, plan);
      if (!result) return result.failure();
      report.results.push_back(std::move(*result));
      progress.show(static_cast<std::int64_t>(report.results.size()), total);
    }
  }
  set_beside_one(report.results);
  return report;
}

/// What earlier runs wrote, one after another; of a row that is there twice, the later.
Result<BenchReport> join(const std::vector<std::string>& files) {
  BenchReport out;
  for (const std::string& file : files) {
    const auto bytes = io::read_file(file);
    if (!bytes) return bytes.failure();
    const std::string text(reinterpret_cast<const char*>(bytes->data()), bytes->size());
    auto part = read_bench_json(text, file);
    if (!part) return part.failure();
    if (&file == &files.front()) out = {part->processor, part->isa, part->build, {}};
    if (part->build != out.build) {
      return Failure{ErrorKind::value, "bad-bench",
                     fmt::format("[bench] {} was measured by {}, but {} by {}", file,
                                 build_text(part->build), files.front(), build_text(out.build))};
    }
    if (part->isa != out.isa || part->processor != out.processor) {
      return Failure{ErrorKind::value, "bad-bench",
                     fmt::format("[bench] {} was measured on another machine or instruction set "
                                 "than {}",
                                 file, files.front())};
    }
    for (BenchResult& result : part->results) {
      std::erase_if(out.results, [&](const BenchResult& known) {
        return known.threads == result.threads && name_of(known.row) == name_of(result.row);
      });
      out.results.push_back(std::move(result));
    }
  }
  const auto table = bench_rows();
  const auto place = [&](const BenchResult& result) {
    return std::find_if(table.begin(), table.end(),
                        [&](const BenchRow& row) { return name_of(row) == name_of(result.row); });
  };
  std::stable_sort(out.results.begin(), out.results.end(),
                   [&](const BenchResult& a, const BenchResult& b) {
                     return std::pair(place(a), a.threads) < std::pair(place(b), b.threads);
                   });
  set_beside_one(out.results);
  return out;
}

int write_report(const BenchReport& report, const BenchOptions& o) {
  if (const auto ok = write_text(o.json, bench_json(report)); !ok) return fail(ok.failure());
  if (const auto ok = write_text(o.html, bench_html(report)); !ok) return fail(ok.failure());
  if (const auto ok = write_text(o.svg, bench_svg(report)); !ok) return fail(ok.failure());
  // Standard output has one thing alone.
  if (o.json == "-" || o.html == "-" || o.svg == "-") return Exit::done;
  std::string out = fmt::format("{}, instruction set {}\n{}\n", report.processor,
                                name_of(report.isa), build_text(report.build));
  out += bench_heading();
  for (const BenchResult& result : report.results) out += bench_line(result, report.isa);
  return write_out(out + bench_summary(report));
}

int bench(const BenchOptions& o) {
  for (const auto& [option, path] :
       {std::pair("--json", &o.json), {"--html", &o.html}, {"--svg", &o.svg}}) {
    if (path->empty()) continue;
    if (const auto ok = can_write(option, *path); !ok) return fail(ok.failure());
  }
  if (!o.from.empty()) {
    const auto report = join(o.from);
    return report ? write_report(*report, o) : fail(report.failure());
  }
  const auto rows = chosen_rows(o);
  if (!rows) return fail(rows.failure());
  if (o.list) return list(*rows);
  const auto plan = plan_of(o);
  if (!plan) return fail(plan.failure());
  const auto report = measure(*rows, *plan);
  return report ? write_report(*report, o) : fail(report.failure());
}

constexpr const char* footer = R"(
Every row is measured beside the limits of the machine that it is a share of; docs/performance.md
tells how. A row is unsteady, and claims nothing, if those limits changed by more than 10 % around
each of its rounds. Floors are for one thread; with more, large shapes are to scale as the limit
does. bfloat16 shares have floors where there are matrix tiles. The error is the largest on sampled
rows, against the exact tier.

A peer is a program that is called with SHAPE B H G T S D MASK DTYPE PASS THREADS and prints
  peer,shape,pass,dtype,mask,threads,median_ms,best_ms,gflops,maxerr
Those in bench/peers beside this program, where `cmake --build … --target peers` puts them, are asked
unless --peers or --no-peers says otherwise. Without any, peers are not compared.

Examples:
  attest bench
  attest bench --rows '4096x64 causal f32' --threads 1 --rounds 5
  attest bench --isa avx2 --json bench.json --html bench.html
  attest bench --from monday.json,tuesday.json --svg bench.svg)";

}  // namespace

void add_bench(CLI::App& app, Action& action) {
  auto o = std::make_shared<BenchOptions>();
  auto* command = app.add_subcommand("bench", "Measure the engine against this machine's limits");
  command->footer(footer);
  add_word(*command, "--rows", o->rows, "Only rows whose name holds each of these words");
  add_integers(*command, "--threads", o->threads, "Numbers of threads (default 1,2)");
  add_integer(*command, "--rounds", o->rounds, "Rounds of each row (default 3)",
              {.least = 1, .most = 1000});
  add_word(*command, "--isa", o->isa,
           "Instruction set (default: the preferred one, or ATTEST_ISA)");
  add_word(*command, "--json", o->json, "Write every number there (\"-\": to standard output)");
  add_word(*command, "--html", o->html, "Write a page with table and plot there");
  add_word(*command, "--svg", o->svg, "Write the plot alone there");
  add_word(*command, "--peers", o->peers, "Compare with the programs in this folder");
  command->add_flag("--no-peers", o->no_peers, "Compare with none")->excludes("--peers");
  command->add_option("--from", o->from, "Measure nothing: report what --json wrote before")
      ->delimiter(',')
      ->excludes("--rows", "--threads", "--rounds", "--isa", "--peers", "--no-peers");
  command->add_flag("--list", o->list, "Print the names of the rows, measure nothing");
  command->callback([&action, o] { action = [o] { return bench(*o); }; });
}

}  // namespace attest::cli
