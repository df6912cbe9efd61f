// SPDX-License-Identifier: MIT
//
// layering ROOT            prints every forbidden #include below ROOT; ends with 1 if there is one
// layering --marked ROOT   ends with 0 if exactly the lines marked "// forbidden" are reported
//
// This is the picture of the rooms as code: nothing may be included that is not allowed here.

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace {

namespace fs = std::filesystem;
using Names = std::set<std::string, std::less<>>;

/// Who may include whom. A room may always include itself.
const std::map<std::string, Names, std::less<>> allowed_rooms = {
    {"base", {}},
    {"io", {"base"}},
    {"text", {"io", "base"}},
    {"lab", {"base"}},
    {"lab/oracle", {"base"}},  // shares no arithmetic with the exact tier, in neither direction
    {"lab/bound", {"lab", "lab/oracle", "base"}},  // how far the two may differ: sees both
    {"linalg", {"base"}},
    {"attention", {"linalg", "base"}},
    {"model", {"attention", "linalg", "text", "io", "base"}},
    {"check", {"lab", "lab/oracle", "lab/bound", "model", "attention", "linalg", "io", "base"}},
};

/// Libraries of others: the beginning of the header's name, and the only rooms that may name it.
/// In headers they would become a need of our users; only the oracle, all templates, may do that, and
/// check/gtest.h, which is for those who have GoogleTest and is included by no other.
const std::map<std::string, Names, std::less<>> allowed_libraries = {
    {"boost/", {"lab/oracle"}}, {"nlohmann/", {"io", "frontends"}},
    {"zlib.h", {"io"}},         {"fmt/", {"frontends"}},
    {"CLI/", {"frontends"}},    {"gtest/", {"check"}},
};

struct Include {
  int line = 0;
  bool quoted = false;
  std::string name{};  // empty if the line cannot be read, as in #include MACRO
  bool marked = false;
};

std::string_view without_leading_blanks(std::string_view text) {
  const auto start = text.find_first_not_of(" \t");
  return start == std::string_view::npos ? std::string_view{} : text.substr(start);
}

/// What the line includes, if it is an #include.
std::optional<Include> parse(std::string_view text, int line) {
  text = without_leading_blanks(text);
  if (!text.starts_with('#')) return {};
  text = without_leading_blanks(text.substr(1));
  if (!text.starts_with("include") && !text.starts_with("import")) return {};
  Include include{.line = line, .marked = text.find("// forbidden") != std::string_view::npos};
  const auto open = text.find_first_of("<\"");
  if (open == std::string_view::npos) return include;
  include.quoted = text[open] == '"';
  const auto close = text.find(include.quoted ? '"' : '>', open + 1);
  if (close == std::string_view::npos) return include;
  include.name = text.substr(open + 1, close - open - 1);
  return include;
}

std::vector<Include> includes_of(const fs::path& file) {
  std::ifstream stream(file);
  std::vector<Include> out;
  bool in_comment = false;
  int line = 0;
  for (std::string text; std::getline(stream, text);) {
    ++line;
    if (!in_comment) {
      if (auto include = parse(text, line)) out.push_back(*std::move(include));
    }
    // Only block comments that begin a line are followed: enough for a picture inside one.
    const std::string_view rest = without_leading_blanks(text);
    if (rest.starts_with("/*")) in_comment = true;
    if (in_comment && rest.find("*/") != std::string_view::npos) in_comment = false;
  }
  return out;
}

/// The room of a path: "lab" for attest/lab/softmax.h, but "lab/oracle" for attest/lab/oracle.h and
/// all below attest/lab/oracle/, and "lab/bound" likewise; "" if the path is in no room.
std::string room_of(std::string_view path) {
  constexpr std::string_view root = "attest/";
  if (!path.starts_with(root)) return "";
  path.remove_prefix(root.size());
  for (const std::string_view part : {"lab/oracle", "lab/bound"}) {
    if (!path.starts_with(part) || path.size() == part.size()) continue;
    if (std::string_view("/._").find(path[part.size()]) != std::string_view::npos) {
      return std::string(part);
    }
  }
  const auto end = path.find('/');
  return end == std::string_view::npos ? "" : std::string(path.substr(0, end));
}

bool is_kernel(std::string_view path) { return path.find("/kernels/") != std::string_view::npos; }

/// Why a file of the library may not include this; "" if it may.
std::string complaint_about_room(const std::string& file, const Include& include) {
  const std::string from = room_of(file);
  const auto rule = allowed_rooms.find(from);
  if (rule == allowed_rooms.end()) return "room '" + from + "' is not in the picture";
  const std::string to = room_of(include.name);
  if (to.empty()) return "spell it from the root, as \"attest/room/name.h\"";
  if (!allowed_rooms.contains(to)) return "room '" + to + "' is not in the picture";
  if (to != from && !rule->second.contains(to)) return from + " may not include " + to;
  if (is_kernel(include.name) && to != from && !(is_kernel(file) && to == "linalg")) {
    return "kernels are included by their own room alone";
  }
  if (is_kernel(file) && !is_kernel(include.name)) {
    return "kernels know pointers, strides and sizes only";
  }
  return "";
}

std::string complaint_about_library(const std::string& file, const Include& include) {
  const std::string room = file.starts_with("frontends/") ? "frontends" : room_of(file);
  for (const auto& [prefix, rooms] : allowed_libraries) {
    if (!include.name.starts_with(prefix)) continue;
    if (!rooms.contains(room)) return room + " may not use " + prefix;
    const bool public_header = room == "io" && file.ends_with(".h");
    return public_header ? "users of the header would need " + prefix : "";
  }
  if (include.name.find('/') != std::string::npos && !include.name.starts_with("sys/")) {
    return "unknown library: list it in tests/layering with the rooms that may use it";
  }
  return "";
}

/// frontends/cli may include public headers and its own folder.
std::string complaint_about_frontend(const fs::path& root, const std::string& file,
                                     const Include& include) {
  if (include.name.starts_with("attest/")) {
    return is_kernel(include.name) ? "kernels are not public" : "";
  }
  const auto folder_end = file.find('/', std::string_view("frontends/").size());
  const std::string folder = file.substr(0, folder_end + 1);
  if (include.name.starts_with("frontends/")) {
    return include.name.starts_with(folder) ? "" : "front ends do not include each other";
  }
  const fs::path neighbour = (root / file).parent_path() / include.name;
  return fs::exists(neighbour) ? "" : "neither a public header nor a neighbour";
}

std::string complaint(const fs::path& root, const std::string& file, const Include& include) {
  if (include.name.empty()) return "an #include must name its file";
  if (include.name.find("..") != std::string::npos) return "no way up: spell it from the root";
  const bool ours = include.quoted || include.name.starts_with("attest/");
  if (!ours) return complaint_about_library(file, include);
  if (file.starts_with("frontends/")) return complaint_about_frontend(root, file, include);
  // The one header above the rooms: it only names public ones.
  if (file == "attest/attest.h") return is_kernel(include.name) ? "kernels are not public" : "";
  return complaint_about_room(file, include);
}

std::vector<fs::path> source_files(const fs::path& root) {
  const Names endings = {".h", ".hpp", ".hh", ".cpp", ".cc", ".cxx", ".inc", ".ipp", ".inl", ".c"};
  std::vector<fs::path> out;
  for (const char* top : {"attest", "frontends"}) {
    if (!fs::exists(root / top)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(root / top)) {
      if (entry.is_regular_file() && endings.contains(entry.path().extension().string())) {
        out.push_back(entry.path());
      }
    }
  }
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace

int main(int count, char** words) {
  std::vector<std::string_view> arguments(words + 1, words + count);
  const bool marked = !arguments.empty() && arguments.front() == "--marked";
  if (marked) arguments.erase(arguments.begin());
  if (arguments.size() != 1) {
    std::cerr << "usage: layering [--marked] ROOT\n";
    return 2;
  }
  const fs::path root(arguments.front());

  int includes = 0, forbidden = 0, surprises = 0;
  for (const fs::path& path : source_files(root)) {
    const std::string file = path.lexically_relative(root).generic_string();
    for (const Include& include : includes_of(path)) {
      ++includes;
      const std::string why = complaint(root, file, include);
      if (!why.empty()) {
        ++forbidden;
        std::cout << file << ':' << include.line << ": " << include.name << ": " << why << '\n';
      }
      if (marked && include.marked != !why.empty()) {
        ++surprises;
        std::cout << file << ':' << include.line << ": " << include.name << ": should "
                  << (include.marked ? "" : "not ") << "have been reported\n";
      }
    }
  }
  std::cout << includes << " includes read, " << forbidden << " forbidden\n";
  if (includes == 0) return 1;  // looked in the wrong place
  if (marked) return forbidden > 0 && surprises == 0 ? 0 : 1;
  return forbidden == 0 ? 0 : 1;
}
