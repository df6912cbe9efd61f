// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

/// The table of mistakes, and putting one of them into a copy of a source file.
namespace attest::faults {

/// A place in the source and what the mistake makes of it.
struct Edit {
  std::string find;     ///< must occur exactly once; any white space counts as one blank
  std::string replace;  ///< written as it is, line breaks included
};

struct Mutation {
  std::string name;
  std::string file;  ///< below the folder of the setup
  std::string unit;  ///< what is compiled: the file itself, or a source that includes it
  std::string what;  ///< the mistake in one line
  std::string section;
  std::vector<Edit> edits;  ///< one place nearly always; more where a mistake needs them
  std::string killer;       ///< a test that must be among those that fail; empty: any
};

/// The table, or what is wrong with it and where.
struct Table {
  std::vector<Mutation> mutations;
  std::string error;
};

/// Reads a table:
///
///     == section title
///     # a comment
///     name in file.cpp: what the mistake is
///     - the text to find
///     + what stands there instead
///     ! Suite.Test
///
/// A header is compiled with a source that includes it: `name in file.h of file.cpp: …`. The last line
/// may be left out; it names a test that must notice.
///
/// Lines with - and + may be repeated; a - after a + begins another edit. A blank line ends an
/// entry.
[[nodiscard]] Table parse_mutations(const std::string& text);

/// Makes the edit in `source`. On failure `source` is as before and the return value says why;
/// it is empty on success.
[[nodiscard]] std::string apply(const Edit& edit, std::string& source);

}  // namespace attest::faults
