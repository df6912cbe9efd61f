// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "attest/io/json.h"
#include "frontends/cli/bench_report.h"

namespace attest::cli {
namespace {

// ---- writing

void number(std::string& out, const char* name, double value) {
  io::append_json_string(out, name);
  out += ": ";
  io::append_json_number(out, value);
}

void text(std::string& out, const char* name, std::string_view value) {
  io::append_json_string(out, name);
  out += ": ";
  io::append_json_string(out, value);
}

void calibration_json(std::string& out, const char* name, const Calibration& calibration) {
  io::append_json_string(out, name);
  out += ": {";
  number(out, "f32_flops", calibration.f32);
  out += ", ";
  number(out, "bf16_flops", calibration.bf16);
  out += ", ";
  number(out, "bytes", calibration.bandwidth);
  out += "}";
}

void rounds_json(std::string& out, const std::vector<BenchRound>& rounds) {
  out += "\"rounds\": [";
  for (const BenchRound& round : rounds) {
    if (&round != &rounds.front()) out += ", ";
    out += "{";
    number(out, "median_ms", round.timing.median_ms);
    out += ", ";
    number(out, "best_ms", round.timing.best_ms);
    out += fmt::format(", \"samples\": {}, \"steady\": {}, ", round.timing.samples, round.steady);
    calibration_json(out, "before", round.before);
    out += ", ";
    calibration_json(out, "after", round.after);
    out += "}";
  }
  out += "]";
}

void peers_json(std::string& out, const BenchResult& result) {
  out += "\"peers\": [";
  for (const PeerResult& peer : result.peers) {
    if (&peer != &result.peers.front()) out += ", ";
    out += "{";
    text(out, "peer", peer.peer);
    out += ", ";
    number(out, "median_ms", peer.timing.median_ms);
    out += ", ";
    number(out, "best_ms", peer.timing.best_ms);
    out += ", ";
    number(out, "max_error", peer.max_error);
    out += fmt::format(", \"right\": {}}}", is_right(peer, result.row));
  }
  out += "]";
}

void judgement_json(std::string& out, const char* name, const Judgement& judgement) {
  io::append_json_string(out, name);
  out += ": {";
  text(out, "wanted", judgement.wanted);
  out += ", ";
  text(out, "verdict", judgement.verdict);
  out += "}, ";
}

void result_json(std::string& out, const BenchResult& result, Isa isa) {
  const BenchRow& row = result.row;
  out += "    {";
  text(out, "row", name_of(row));
  out += fmt::format(", \"threads\": {}, ", result.threads);
  number(out, "median_ms", result.median_ms);
  out += ", ";
  number(out, "gflops", result.gflops);
  out += ", ";
  number(out, "share", result.share);
  out += ", ";
  text(out, "share_of", limit_of(row));
  out += fmt::format(", \"steady\": {}, ", result.steady);
  number(out, "max_error", result.max_error);
  if (result.beside_one) {
    out += ", ";
    number(out, "speedup", result.beside_one->speedup);
    out += ", ";
    number(out, "scaling", result.beside_one->scaling);
  }
  out += ",\n     ";
  judgement_json(out, "floor", judge_floor(result, isa));
  judgement_json(out, "against_peers", judge_peers(result, isa));
  judgement_json(out, "with_threads", judge_threads(result));
  out += "\n     ";
  calibration_json(out, "limits", result.calibration);
  out += ",\n     ";
  rounds_json(out, result.rounds);
  out += ",\n     ";
  peers_json(out, result);
  out += "}";
}

void build_json(std::string& out, const BenchBuild& build) {
  out += "\"build\": {";
  text(out, "version", build.version);
  out += ", ";
  text(out, "compiler", build.compiler);
  out += ", ";
  text(out, "type", build.type);
  out += ", ";
  text(out, "flags", build.flags);
  out += "}";
}

// ---- reading: the first thing that is missing ends it

class Reader {
 public:
  explicit Reader(std::string name) : name_(std::move(name)) {}

  [[nodiscard]] const std::optional<Failure>& failure() const { return failure_; }

  Failure wrong(const std::string& what) {
    return {ErrorKind::value, "bad-bench", fmt::format("[bench] {}: {}", name_, what)};
  }
  std::string text(const io::Json& of, const char* member) {
    const io::Json* found = of.find(member);
    const std::string* value = found == nullptr ? nullptr : found->string_if();
    if (value == nullptr) fail(member, "a string");
    return value == nullptr ? "" : *value;
  }
  double number(const io::Json& of, const char* member) {
    const io::Json* found = of.find(member);
    if (found != nullptr) {
      if (const double* value = found->double_if()) return *value;
      if (const std::int64_t* value = found->integer_if()) return static_cast<double>(*value);
      if (const std::string* value = found->string_if(); value != nullptr && *value == "nan") {
        return std::numeric_limits<double>::quiet_NaN();
      }
    }
    fail(member, "a number");
    return 0;
  }
  int count(const io::Json& of, const char* member) {
    const double value = number(of, member);
    if (!failure_ && !(value >= 0 && value <= 1024 && value == std::floor(value))) {
      fail(member, "a whole number from 0 to 1024");
    }
    return failure_ ? 0 : static_cast<int>(value);
  }
  BenchBuild build(const io::Json& of, const char* member) {
    const io::Json* found = of.find(member);
    if (found == nullptr) return {};
    return {.version = text(*found, "version"),
            .compiler = text(*found, "compiler"),
            .type = text(*found, "type"),
            .flags = text(*found, "flags")};
  }
  const io::Json& member(const io::Json& of, const char* member) {
    static const io::Json none;
    const io::Json* found = of.find(member);
    if (found == nullptr) fail(member, "there");
    return found == nullptr ? none : *found;
  }

 private:
  void fail(const char* member, const char* wanted) {
    if (!failure_) failure_ = wrong(fmt::format("\"{}\" is not {}", member, wanted));
  }

  std::string name_;
  std::optional<Failure> failure_;
};

Calibration read_calibration(Reader& reader, const io::Json& from) {
  return {reader.number(from, "f32_flops"), reader.number(from, "bf16_flops"),
          reader.number(from, "bytes")};
}

Timing read_timing(Reader& reader, const io::Json& from) {
  return {reader.number(from, "median_ms"), reader.number(from, "best_ms"), 0};
}

Result<BenchResult> read_result(Reader& reader, const io::Json& from) {
  BenchResult out;
  const std::string row = reader.text(from, "row");
  for (const BenchRow& known : bench_rows()) {
    if (name_of(known) == row) out.row = known;
  }
  if (!reader.failure() && out.row.shape.empty()) {
    return reader.wrong("no row of the table is named \"" + row + "\"");
  }
  out.threads = reader.count(from, "threads");
  out.max_error = reader.number(from, "max_error");
  for (const io::Json& round : reader.member(from, "rounds").items()) {
    BenchRound& added = out.rounds.emplace_back();
    added.before = read_calibration(reader, reader.member(round, "before"));
    added.timing = read_timing(reader, round);
    added.timing.samples = reader.count(round, "samples");
    added.after = read_calibration(reader, reader.member(round, "after"));
  }
  for (const io::Json& peer : reader.member(from, "peers").items()) {
    out.peers.push_back(
        {reader.text(peer, "peer"), read_timing(reader, peer), reader.number(peer, "max_error")});
  }
  if (reader.failure()) return *reader.failure();
  if (out.rounds.empty()) return reader.wrong("\"" + row + "\" has no rounds");
  summarise(out);
  return out;
}

}  // namespace

std::string bench_json(const BenchReport& report) {
  std::string out = "{\n  ";
  text(out, "processor", report.processor);
  out += ",\n  ";
  text(out, "isa", name_of(report.isa));
  out += ",\n  ";
  build_json(out, report.build);
  out += ",\n  \"results\": [\n";
  for (const BenchResult& result : report.results) {
    if (&result != &report.results.front()) out += ",\n";
    result_json(out, result, report.isa);
  }
  return out + "\n  ]\n}\n";
}

Result<BenchReport> read_bench_json(const std::string& text, const std::string& name) {
  const auto json = io::parse_json(text, name);
  if (!json) return json.failure();
  Reader reader(name);
  BenchReport out;
  out.processor = reader.text(*json, "processor");
  const std::string isa_name = reader.text(*json, "isa");
  out.build = reader.build(*json, "build");
  const io::Json& results = reader.member(*json, "results");
  if (reader.failure()) return *reader.failure();
  bool known = false;
  for (const IsaState& state : instruction_sets()) {  // present here or not
    if (isa_name != name_of(state.isa)) continue;
    out.isa = state.isa;
    known = true;
  }
  if (!known) return reader.wrong("\"" + isa_name + "\" is no instruction set");
  for (const io::Json& one : results.items()) {
    auto result = read_result(reader, one);
    if (!result) return result.failure();
    out.results.push_back(std::move(*result));
  }
  set_beside_one(out.results);
  return out;
}

}  // namespace attest::cli
