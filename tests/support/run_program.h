// SPDX-License-Identifier: MIT
#pragma once

#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/scratch_folder.h"

namespace attest::test {

/// What a program printed and how it ended.
struct Ended {
  int code = -1;  ///< exit status; −1 if a signal ended it
  std::string out;
  std::string err;
};

inline std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

inline void write_text(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

/// Quotes for the shell.
inline std::string quoted(const std::string& word) {
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

/// Runs the attest program with these arguments and this standard input.
inline Ended run_attest(const std::vector<std::string>& arguments, const std::string& input = "") {
  const ScratchFolder scratch;
  write_text(scratch.file("in"), input);
  std::string command = quoted(ATTEST_PROGRAM);
  for (const std::string& argument : arguments) command += " " + quoted(argument);
  command += " <" + quoted(scratch.file("in")) + " >" + quoted(scratch.file("out")) + " 2>" +
             quoted(scratch.file("err"));
  const int status = std::system(command.c_str());
  Ended ended;
  if (WIFEXITED(status)) ended.code = WEXITSTATUS(status);
  ended.out = read_text(scratch.file("out"));
  ended.err = read_text(scratch.file("err"));
  return ended;
}

}  // namespace attest::test
