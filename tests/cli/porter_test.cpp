// SPDX-License-Identifier: MIT
// docs/porter.md does what it says: every command in it is run, and its output compared.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "python.h"
#include "run_program.h"

namespace attest::test {
namespace {

namespace files = std::filesystem;

/// A command of the page with what it prints, or a function that is put into the snippet.
struct Step {
  std::string command;
  std::vector<std::string> printed;
  std::string function;
};

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> out;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) out.push_back(line);
  return out;
}

/// Blocks of the page that begin with "$ " or "def ".
std::vector<Step> steps_of(const std::string& page) {
  constexpr std::string_view indent = "    ";
  std::vector<Step> out;
  bool inside = false;
  for (const std::string& line : lines_of(page)) {
    const bool indented = line.starts_with(indent);
    const std::string text = indented ? line.substr(indent.size()) : "";
    if (text.starts_with("$ ")) {
      out.push_back({.command = text.substr(2), .printed = {}, .function = ""});
      inside = true;
    } else if (text.starts_with("def ")) {
      out.push_back({.command = "", .printed = {}, .function = text + "\n"});
      inside = true;
    } else if (!indented) {
      inside = false;
    } else if (inside && out.back().function.empty()) {
      out.back().printed.push_back(text);
    } else if (inside) {
      out.back().function.append(text).append("\n");
    }
  }
  return out;
}

/// Whether these lines are those of the page, "…" being any lines, and any rest of a line at its end.
bool same_lines(std::span<const std::string> page, std::span<const std::string> found) {
  constexpr std::string_view any = "…";
  if (page.empty()) return found.empty();
  if (page[0] == any) {
    for (std::size_t n = 0; n <= found.size(); ++n) {
      if (same_lines(page.subspan(1), found.subspan(n))) return true;
    }
    return false;
  }
  if (found.empty()) return false;
  const bool open = page[0].ends_with(any);
  const bool same = open ? found[0].starts_with(page[0].substr(0, page[0].size() - any.size()))
                         : found[0] == page[0];
  return same && same_lines(page.subspan(1), found.subspan(1));
}

TEST(PorterPage, ComparesLines) {
  const std::vector<std::string> found{"one", "two", "three"};
  using Page = std::vector<std::string>;
  EXPECT_TRUE(same_lines(Page{"one", "…", "three"}, found));
  EXPECT_TRUE(same_lines(Page{"o…", "…"}, found));
  EXPECT_FALSE(same_lines(Page{"one", "three"}, found));
  EXPECT_FALSE(same_lines(Page{"one", "…", "four"}, found));
  EXPECT_FALSE(same_lines(Page{"one", "two"}, found));
}

class Walk {
 public:
  explicit Walk(const std::string& interpreter) {
    files::create_directory(scratch_.file("bin"));
    files::create_symlink(ATTEST_PROGRAM, scratch_.file("bin/attest"));
    write_text(scratch_.file("bin/python3"),
               "#!/bin/sh\nexec " + quoted(interpreter) + " \"$@\"\n");
    files::permissions(scratch_.file("bin/python3"), files::perms::owner_all);
  }

  std::string run(const std::string& command) {
    const std::string setting = "cd " + quoted(scratch_.file("")) +
                                " && ATTEST=" + quoted(ATTEST_SOURCE_DIR) +
                                " && PATH=" + quoted(scratch_.file("bin")) + ":$PATH && ";
    const int ignored = std::system((setting + "{ " + command + "\n} >out 2>err").c_str());
    (void)ignored;  // what it prints is compared
    return read_text(scratch_.file("out"));
  }

  /// Puts the function in place of the snippet's, up to the two blank lines after it.
  void put_in(const std::string& function) {
    std::string text = read_text(scratch_.file("probe_numpy.py"));
    const std::size_t begin = text.find("def attention(");
    const std::size_t end = text.find("\n\n\n", begin);
    ASSERT_NE(end, std::string::npos);
    text.replace(begin, end + 1 - begin, function);
    write_text(scratch_.file("probe_numpy.py"), text);
  }

  [[nodiscard]] std::string errors() const { return read_text(scratch_.file("err")); }

 private:
  ScratchFolder scratch_;
};

TEST(PorterPage, EveryCommandPrintsWhatThePageSays) {
  const std::string interpreter = python();
  if (interpreter.empty()) GTEST_SKIP() << "no Python with NumPy";
  const auto steps = steps_of(read_text(ATTEST_SOURCE_DIR "/docs/porter.md"));
  EXPECT_EQ(steps.size(), 9U);
  Walk walk(interpreter);
  const bool checks = !walk.run("attest check --help").empty();
  for (const Step& step : steps) {
    if (!step.function.empty()) {
      walk.put_in(step.function);
      continue;
    }
    if (!checks && step.command.starts_with("attest check ")) continue;
    const std::string printed = walk.run(step.command);
    EXPECT_TRUE(same_lines(step.printed, lines_of(printed))) << "$ " << step.command << "\nprints\n"
                                                             << printed << walk.errors();
  }
  if (!checks) GTEST_SKIP() << "attest check is not built in";
}

}  // namespace
}  // namespace attest::test
