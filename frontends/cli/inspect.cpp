// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "attest/base/text.h"
#include "attest/io/json.h"
#include "attest/linalg/isa.h"
#include "frontends/cli/attend_tiers.h"
#include "frontends/cli/command.h"
#include "frontends/cli/print.h"

namespace attest::cli {
namespace {

struct InspectOptions {
  bool isa = false;
  bool json = false;
};

/// The number types whose kernels are those of `row`, when calls use the set `used`.
std::vector<std::string> used_for(Isa row, std::optional<Isa> used) {
  if (!used) return {};
  std::vector<std::string> out;
  for (const DType type : {DType::f32, DType::f64, DType::f16, DType::bf16}) {
    if (kernels_of(type, *used) == row) out.emplace_back(name_of(type));
  }
  return out;
}

std::string joined(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : " ") + word;
  return out;
}

std::string remark_on(const IsaState& row) {
  if (!row.built) return row.remark.empty() ? "not in this build" : std::string(row.remark);
  if (row.preferred) return "preferred here";
  return std::string(row.remark);
}

/// What ATTEST_ISA says, if it says anything.
std::optional<std::string> said_by_environment() {
  const char* said = std::getenv("ATTEST_ISA");
  if (said == nullptr || *said == '\0') return std::nullopt;
  return std::string(said);
}

std::string as_text(const Result<Isa>& used) {
  const std::optional<Isa> isa = used ? std::optional(*used) : std::nullopt;
  std::string out = left("set", 12) + left("present", 9) + left("used for", 18) + "remark\n";
  for (const IsaState& row : instruction_sets()) {
    std::string line = left(std::string(name_of(row.isa)), 12) +
                       left(row.present ? "yes" : "no", 9) +
                       left(joined(used_for(row.isa, isa)), 18) + remark_on(row);
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  const auto said = said_by_environment();
  if (!isa) {
    return out +
           "a call that names no set fails: ATTEST_ISA says what this machine has not; --isa NAME "
           "goes before it\n";
  }
  return out + sentence("calls use ", name_of(*isa),
                        said ? ", as ATTEST_ISA says\n" : "; ATTEST_ISA is not set\n");
}

std::string as_json(const Result<Isa>& used) {
  const std::optional<Isa> isa = used ? std::optional(*used) : std::nullopt;
  std::string out = "{\"sets\": [";
  for (const IsaState& row : instruction_sets()) {
    if (out.back() != '[') out += ", ";
    out +=
        sentence("{\"name\": \"", name_of(row.isa), "\", \"built\": ", row.built ? "true" : "false",
                 ", \"present\": ", row.present ? "true" : "false",
                 ", \"preferred\": ", row.preferred ? "true" : "false", ", \"used_for\": [");
    for (const std::string& type : used_for(row.isa, isa)) {
      out += sentence(out.back() == '[' ? "\"" : ", \"", type, "\"");
    }
    out += "], \"remark\": ";
    io::append_json_string(out, row.remark);
    out += "}";
  }
  out += "], \"calls_use\": ";
  out += isa ? sentence("\"", name_of(*isa), "\"") : "null";
  out += ", \"ATTEST_ISA\": ";
  if (const auto said = said_by_environment()) {
    io::append_json_string(out, one_line(*said));
  } else {
    out += "null";
  }
  return out + "}\n";
}

int inspect(const InspectOptions& o) {
  const auto used = default_isa();
  const int written = write_out(o.json ? as_json(used) : as_text(used));
  if (written != Exit::done) return written;
  return used ? int{Exit::done} : fail(used.failure());
}

constexpr const char* footer = R"(
Lists the instruction sets that the engine has kernels for: whether this machine and its system run
them, why not if they do not, and which number types each is used for by a call that says nothing.
What avx512bf16 and amx add to avx512 is products of bf16: their kernels of the other types are
those of avx512. ATTEST_ISA in the environment forces one; so does --isa of attend and bench, which goes
before it. Exit 0, or 2 if ATTEST_ISA says what cannot be had.

Examples:
  attest inspect --isa
  attest inspect --isa --json
  ATTEST_ISA=avx2 attest inspect --isa)";

}  // namespace

void add_inspect(CLI::App& app, Action& action) {
  auto o = std::make_shared<InspectOptions>();
  auto* command = app.add_subcommand("inspect", "Say what this machine gives the engine");
  command->footer(footer);
  command->add_flag("--isa", o->isa, "Instruction sets")->required();
  command->add_flag("--json", o->json, "The list as JSON");
  command->callback([&action, o] { action = [o] { return inspect(*o); }; });
}

}  // namespace attest::cli
