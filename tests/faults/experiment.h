// SPDX-License-Identifier: MIT
#pragma once

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/faults/mutations.h"

/// One experiment: a copy of the source with one mistake in it, built, tested and looked at.
namespace attest::faults {

/// How things are built and where, as CMake wrote it down: lines `key=value`, a key once for each
/// word of a list.
struct Setup {
  std::vector<std::string> compile;      ///< the compiler and its flags, for a source of the tier
  std::vector<std::string> link;         ///< the compiler and its flags, for a program
  std::vector<std::string> tests;        ///< the objects of the test programs
  std::vector<std::string> signature;    ///< the object of fixture_signature; none: not looked at
  std::vector<std::string> libraries;    ///< what both are linked with; the unmutated tier is in it
  std::vector<std::string> environment;  ///< NAME=VALUE for the tests
  std::filesystem::path source;          ///< the folder of what is mutated, attest or one below it
  std::filesystem::path table;           ///< the table of mistakes
  std::filesystem::path work;            ///< where copies, programs and logs go
};

/// Reads what CMake wrote; throws std::runtime_error for an unknown key.
[[nodiscard]] Setup read_setup(const std::filesystem::path& file);

[[nodiscard]] std::string read_text(const std::filesystem::path& file);

enum class Verdict {
  killed,            ///< tests failed by assertion: the only good end of a mistake
  survived,          ///< all tests passed
  not_applied,       ///< the text was not there, or more than once
  not_compiled,      ///< by the compiler or the linker
  not_by_assertion,  ///< only a crash, a time-out or an exception: that proves no test
  no_signature,      ///< fixture_signature did not run to its end
};

/// "killed", "SURVIVED", …
[[nodiscard]] std::string name_of(Verdict verdict);

/// What each fixture gives, in the order of fixture_signature.
using Signature = std::vector<std::pair<std::string, std::string>>;

struct Outcome {
  Verdict verdict = Verdict::survived;
  std::string detail{};             ///< one line more, where there is something to say
  std::set<std::string> killers{};  ///< the tests that failed by assertion
  std::set<std::string> ran{};      ///< the tests that came to an end, well or not
  Signature signature{};
};

/// What a GoogleTest log says: the tests that ended, and those in which an expectation failed. A
/// test that ended by an exception, before any expectation did, is not among the latter.
void read_test_log(const std::string& log, Outcome& out);

/// Carries out one experiment below `setup.work / mutation.name`; logs stay there.
[[nodiscard]] Outcome try_mutation(const Setup& setup, const Mutation& mutation);

/// The same steps on unmutated copies of `files`. Only `survived` is a good end.
[[nodiscard]] Outcome try_control(const Setup& setup, const std::set<std::string>& files);

}  // namespace attest::faults
