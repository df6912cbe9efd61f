// SPDX-License-Identifier: MIT
// How a verification report reads: text for people, JSON for programs.
#include "attest/base/text.h"
#include "attest/check/verify.h"
#include "attest/io/json.h"

namespace attest::check {
namespace {

std::string line_of(const VerifyCheck& check) {
  std::string out = sentence("  ", check.failed == 0 && check.assertions > 0 ? "ok    " : "FAIL  ",
                             check.name, " (", check.about, "): ", check.assertions, " assertions");
  if (check.assertions == 0) out += ", so nothing was shown";
  if (check.failed > 0) out += sentence(", ", check.failed, " failed");
  if (check.used > 0) {
    out += sentence(", largest used fraction of the bound ", three_digits(check.used));
  }
  return out + "\n";
}

std::string line_of(const VerifyFailure& failure, std::uint64_t seed) {
  return sentence("        seed ", seed, ": ", failure.address, " is ", failure.found,
                  ", expected ", failure.expected, ", allowed ", failure.allowed, "\n");
}

void append_member(std::string& out, std::string_view name, double value) {
  out += sentence(",\"", name, "\":");
  io::append_json_number(out, value);
}

void append_check(std::string& out, const VerifyCheck& check) {
  out += "{\"name\":";
  io::append_json_string(out, check.name);
  out += ",\"about\":";
  io::append_json_string(out, check.about);
  out += sentence(",\"assertions\":", check.assertions, ",\"failed\":", check.failed);
  append_member(out, "used", check.used);
  out += ",\"used_at\":";
  io::append_json_string(out, check.used_at);
  out += ",\"failures\":[";
  for (std::size_t n = 0; n < check.failures.size(); ++n) {
    out += n > 0 ? ",{\"address\":" : "{\"address\":";
    io::append_json_string(out, check.failures[n].address);
    append_member(out, "found", check.failures[n].found);
    append_member(out, "expected", check.failures[n].expected);
    append_member(out, "allowed", check.failures[n].allowed);
    out += "}";
  }
  out += "]}";
}

}  // namespace

std::string to_text(const VerifyReport& report) {
  std::string out = sentence("verify: seed ", report.seed, ", ", report.cases,
                             " cases of the workbook's family, ", report.cases, " general ones\n");
  for (const VerifySection& section : report.sections) {
    out += sentence("\n", section.name, ": ", section.assertions(), " assertions\n");
    for (const VerifyCheck& check : section.checks) {
      out += line_of(check);
      for (const VerifyFailure& failure : check.failures) out += line_of(failure, report.seed);
    }
  }
  out += sentence("\n", report.passed() ? "passed" : "FAILED", ": ", report.assertions(),
                  " assertions, ", report.failed(), " failed (the release had ", release_assertions,
                  " in ", release_cases, " cases)\n");
  return out;
}

std::string to_json(const VerifyReport& report) {
  std::string out =
      sentence("{\"passed\":", report.passed() ? "true" : "false", ",\"seed\":", report.seed,
               ",\"cases\":", report.cases, ",\"assertions\":", report.assertions(),
               ",\"failed\":", report.failed(), ",\"sections\":[");
  for (std::size_t n = 0; n < report.sections.size(); ++n) {
    const VerifySection& section = report.sections[n];
    out += n > 0 ? ",{\"name\":" : "{\"name\":";
    io::append_json_string(out, section.name);
    out += sentence(",\"assertions\":", section.assertions(), ",\"failed\":", section.failed(),
                    ",\"checks\":[");
    for (std::size_t k = 0; k < section.checks.size(); ++k) {
      if (k > 0) out += ",";
      append_check(out, section.checks[k]);
    }
    out += "]}";
  }
  return out + "]}";
}

}  // namespace attest::check
