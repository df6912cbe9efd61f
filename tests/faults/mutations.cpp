// SPDX-License-Identifier: MIT
#include "tests/faults/mutations.h"

#include <cctype>
#include <cstddef>
#include <optional>
#include <set>
#include <sstream>
#include <utility>

namespace attest::faults {
namespace {

bool blank(char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; }

/// Where a match of `find` that begins at `start` ends, white space of any kind and length being
/// equal: the formatter may break a line without hiding the place from the table.
std::optional<std::size_t> match_at(const std::string& source, std::size_t start,
                                    const std::string& find) {
  std::size_t at = start;
  for (std::size_t n = 0; n < find.size();) {
    if (at == source.size() || blank(source[at]) != blank(find[n])) return std::nullopt;
    if (!blank(find[n])) {
      if (source[at++] != find[n++]) return std::nullopt;
      continue;
    }
    while (at < source.size() && blank(source[at])) ++at;
    while (n < find.size() && blank(find[n])) ++n;
  }
  return at;
}

/// Adds a line to a text of several.
void append_line(std::string& text, const std::string& line) {
  if (!text.empty()) text += '\n';
  text += line;
}

class Parser {
 public:
  explicit Parser(const std::string& text) : lines_(text) {}

  Table parse() {
    std::string line;
    while (table_.error.empty() && std::getline(lines_, line)) {
      ++number_;
      read(line);
    }
    finish();
    return std::move(table_);
  }

 private:
  void read(const std::string& line) {
    if (line.empty()) {
      finish();
    } else if (line[0] == '#') {
      return;
    } else if (line.starts_with("== ")) {
      section_ = line.substr(3);
    } else if (line.starts_with("! ") && entry_) {
      entry_->killer = line.substr(2);
    } else if (line[0] == '-' || line[0] == '+') {
      read_edit(line);
    } else {
      read_header(line);
    }
  }

  void read_header(const std::string& line) {
    finish();
    const std::size_t in = line.find(" in ");
    const std::size_t colon = line.find(": ");
    if (in == std::string::npos || colon == std::string::npos || colon < in) {
      return fail("expected NAME in FILE: WHAT");
    }
    const std::string file = line.substr(in + 4, colon - in - 4);
    const std::size_t of = file.find(" of ");
    entry_ = Mutation{.name = line.substr(0, in),
                      .file = file.substr(0, of),
                      .unit = of == std::string::npos ? file : file.substr(of + 4),
                      .what = line.substr(colon + 2),
                      .section = section_,
                      .edits = {},
                      .killer = {}};
    if (!names_.insert(entry_->name).second) fail("there are two entries of this name");
  }

  void read_edit(const std::string& line) {
    if (!entry_) return fail("an edit without an entry");
    const bool removes = line[0] == '-';
    const std::string rest = line.size() > 2 ? line.substr(2) : "";
    if (removes && (entry_->edits.empty() || !removing_)) entry_->edits.emplace_back();
    if (entry_->edits.empty()) return fail("a + without a - before it");
    Edit& edit = entry_->edits.back();
    append_line(removes ? edit.find : edit.replace, rest);
    removing_ = removes;
  }

  void finish() {
    if (!entry_) return;
    if (entry_->edits.empty()) fail("the entry " + entry_->name + " edits nothing");
    for (const Edit& edit : entry_->edits) {
      if (edit.find.empty()) fail("the entry " + entry_->name + " looks for nothing");
    }
    table_.mutations.push_back(*std::move(entry_));
    entry_.reset();
    removing_ = false;
  }

  void fail(const std::string& what) {
    if (table_.error.empty()) table_.error = "line " + std::to_string(number_) + ": " + what;
  }

  std::istringstream lines_;
  Table table_;
  std::set<std::string> names_;
  std::optional<Mutation> entry_;
  std::string section_;
  bool removing_ = false;
  int number_ = 0;
};

}  // namespace

Table parse_mutations(const std::string& text) { return Parser(text).parse(); }

std::string apply(const Edit& edit, std::string& source) {
  std::vector<std::pair<std::size_t, std::size_t>> places;
  for (std::size_t start = 0; start < source.size(); ++start) {
    if (const auto end = match_at(source, start, edit.find)) places.emplace_back(start, *end);
  }
  if (places.size() != 1) {
    return "the edit did not apply: found " + std::to_string(places.size()) +
           " times: " + edit.find;
  }
  const auto [start, end] = places.front();
  source.replace(start, end - start, edit.replace);
  return "";
}

}  // namespace attest::faults
