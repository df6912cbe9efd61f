// SPDX-License-Identifier: MIT
#include "tests/faults/experiment.h"

#include <fstream>
#include <iterator>
#include <sstream>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "tests/faults/process.h"

namespace attest::faults {
namespace {

namespace fs = std::filesystem;

constexpr int seconds_to_build = 300;
constexpr int seconds_to_test = 240;
/// Left out, because they need files that not every machine has: the verdicts must be the same.
constexpr const char* not_everywhere = "-*.AgreesWithThePublished*:*.TheReleaseRecording*";
constexpr int most_broken = 40;                    // suites, before one gives up
constexpr std::uintmax_t longest_log = 1U << 20U;  // a bad mistake fails in every random case

void write_text(const fs::path& file, const std::string& text) {
  std::ofstream(file, std::ios::binary) << text;
}

std::vector<std::string> operator+(std::vector<std::string> a, const std::vector<std::string>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

/// Logs are kept as evidence, but not without end.
void shorten(const fs::path& log) {
  if (fs::file_size(log) <= longest_log) return;
  fs::resize_file(log, longest_log);
  std::ofstream(log, std::ios::app) << "\n... the rest is left out\n";
}

/// The suite of the test that a log ends in.
std::string broken_suite(const std::string& log) {
  constexpr std::string_view begins = "[ RUN      ] ";
  const std::size_t place = log.rfind(begins);
  if (place == std::string::npos) return "";
  const std::size_t start = place + begins.size();
  return log.substr(start, log.find('.', start) - start);
}

Signature parse_signature(const std::string& text) {
  Signature out;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("== "))
      out.emplace_back(line.substr(3), "");
    else if (!out.empty())
      out.back().second += line + '\n';
  }
  return out;
}

/// The steps that a mistake and the control have in common.
class Bench {
 public:
  Bench(const Setup& setup, const std::string& name) : setup_(setup), folder_(setup.work / name) {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  ~Bench() {  // programs are large, and can be built again
    for (const std::string& object : objects_) fs::remove(object);
    for (const char* program : {"tests", "fixture_signature"}) fs::remove(folder_ / program);
  }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  /// Puts `text` in the place of a source file, or of a header of the source `unit`; the difference from
  /// it is kept.
  bool compile(const std::string& file, const std::string& unit, const std::string& text) {
    const fs::path copy = folder_ / setup_.source.filename() / file;
    fs::create_directories(copy.parent_path());
    write_text(copy, text);
    const std::string original = (setup_.source / file).string();
    (void)run({"diff", "-u", original, copy.string()}, folder_ / "diff", seconds_to_build);
    const std::string object = copy.string() + ".o";
    objects_.push_back(object);
    // The copy of a header is found before the original.
    std::vector<std::string> command = setup_.compile;
    command.insert(command.begin() + 1, "-I" + folder_.string());
    const fs::path source = file == unit ? copy : setup_.source / unit;
    return built(command +
                 std::vector{std::string("-c"), source.string(), std::string("-o"), object});
  }

  /// The compiled copies stand before the library, whose own versions are then never asked for.
  bool link() {
    return link("tests", setup_.tests) &&
           (setup_.signature.empty() || link("fixture_signature", setup_.signature));
  }

  /// Runs both programs and judges.
  Outcome judge() {
    Outcome out;
    const Ending tested = run_tests(out);
    const bool whole = out.detail.empty();  // no suite broke off
    if (tested.exited_with(0) && whole) {
      out.verdict = Verdict::survived;
    } else if (tested.exited_with(1) && !out.killers.empty()) {
      out.verdict = Verdict::killed;
    } else {
      out.verdict = Verdict::not_by_assertion;
      if (whole) out.detail = describe(tested);
    }
    if (setup_.signature.empty()) return out;
    const fs::path signature = folder_ / "signature.txt";
    const Ending printed =
        run({(folder_ / "fixture_signature").string()}, signature, seconds_to_test);
    out.signature = parse_signature(read_text(signature));
    const bool judged = out.verdict == Verdict::killed || out.verdict == Verdict::survived;
    if (judged && !(printed.exited_with(0) && !out.signature.empty())) {
      out.verdict = Verdict::no_signature;
      out.detail = describe(printed);
    }
    return out;
  }

 private:
  /// Runs the tests until a run comes to its end. A suite in which the program breaks off proves
  /// nothing: it is noted and left out of the next run, so that the others can judge.
  Ending run_tests(Outcome& out) {
    const fs::path last = folder_ / "last.log";
    std::string filter = not_everywhere;
    for (int broken = 0;; ++broken) {
      const Ending ending = run({(folder_ / "tests").string(), "--gtest_color=no",
                                 "--gtest_print_time=0", "--gtest_filter=" + filter},
                                last, seconds_to_test);
      const std::string said = read_text(last);
      shorten(last);
      std::ofstream(folder_ / "test.log", std::ios::app)
          << read_text(last) << describe(ending) << '\n';
      fs::remove(last);
      read_test_log(said, out);
      const std::string suite = ending.signal != 0 ? broken_suite(said) : "";
      if (ending.timed_out || suite.empty() || broken == most_broken) return ending;
      out.detail += (out.detail.empty() ? "breaks off in " : ", ") + suite;
      filter += ":" + suite + ".*";
    }
  }
  bool built(const std::vector<std::string>& command) {
    const Ending ending = run(command, folder_ / "last.log", seconds_to_build);
    std::ofstream log(folder_ / "build.log", std::ios::app);
    for (const std::string& word : command) log << word << ' ';
    log << '\n' << read_text(folder_ / "last.log") << describe(ending) << "\n\n";
    fs::remove(folder_ / "last.log");
    return ending.exited_with(0);
  }
  bool link(const std::string& program, const std::vector<std::string>& objects) {
    const std::vector<std::string> to{"-o", (folder_ / program).string()};
    return built(setup_.link + to + objects_ + objects + setup_.libraries);
  }

  const Setup& setup_;
  fs::path folder_;
  std::vector<std::string> objects_;
};

}  // namespace

Setup read_setup(const fs::path& file) {
  Setup out;
  std::istringstream lines(read_text(file));
  for (std::string line; std::getline(lines, line);) {
    const std::size_t equals = line.find('=');
    if (equals == std::string::npos) continue;
    const std::string key = line.substr(0, equals);
    const std::string value = line.substr(equals + 1);
    if (value.empty()) continue;  // an empty list
    if (key == "compile")
      out.compile.push_back(value);
    else if (key == "link")
      out.link.push_back(value);
    else if (key == "tests")
      out.tests.push_back(value);
    else if (key == "signature")
      out.signature.push_back(value);
    else if (key == "environment")
      out.environment.push_back(value);
    else if (key == "library")
      out.libraries.push_back(value);
    else if (key == "source")
      out.source = value;
    else if (key == "table")
      out.table = value;
    else if (key == "work")
      out.work = value;
    else
      throw std::runtime_error(file.string() + ": unknown key " + key);
  }
  return out;
}

std::string read_text(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

std::string name_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::killed:
      return "killed";
    case Verdict::survived:
      return "SURVIVED";
    case Verdict::not_applied:
      return "DID NOT APPLY";
    case Verdict::not_compiled:
      return "DID NOT COMPILE";
    case Verdict::not_by_assertion:
      return "FAILED, BUT NOT BY ASSERTION";
    case Verdict::no_signature:
      return "HAS NO SIGNATURE";
  }
  return "";
}

void read_test_log(const std::string& log, Outcome& out) {
  constexpr std::string_view begins = "[ RUN      ] ";
  constexpr std::string_view passed = "[       OK ] ";
  constexpr std::string_view failed = "[  FAILED  ] ";
  out.ran.clear();
  out.killers.clear();
  std::istringstream lines(log);
  std::string test;
  bool asserted = false;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(begins)) {
      test = line.substr(begins.size());
      asserted = false;
    } else if (line.ends_with(": Failure") && !line.starts_with("unknown file")) {
      asserted = true;
    } else if (line.starts_with(passed) || line.starts_with(failed)) {
      if (test.empty()) continue;  // the list at the end
      out.ran.insert(test);
      if (asserted) out.killers.insert(test);
      test.clear();
    }
  }
}

Outcome try_mutation(const Setup& setup, const Mutation& mutation) {
  Bench bench(setup, mutation.name);
  std::string source = read_text(setup.source / mutation.file);
  for (const Edit& edit : mutation.edits) {
    const std::string why = apply(edit, source);
    if (!why.empty()) return {.verdict = Verdict::not_applied, .detail = why};
  }
  if (!bench.compile(mutation.file, mutation.unit, source) || !bench.link()) {
    return {.verdict = Verdict::not_compiled, .detail = "see build.log"};
  }
  return bench.judge();
}

Outcome try_control(const Setup& setup, const std::set<std::string>& files) {
  Bench bench(setup, "control");
  for (const std::string& file : files) {
    if (!bench.compile(file, file, read_text(setup.source / file))) {
      return {.verdict = Verdict::not_compiled, .detail = "see build.log"};
    }
  }
  if (!bench.link()) return {.verdict = Verdict::not_compiled, .detail = "see build.log"};
  return bench.judge();
}

}  // namespace attest::faults
