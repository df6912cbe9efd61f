// SPDX-License-Identifier: MIT
#include "frontends/cli/check_catalogue.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <vector>

#include "attest/base/text.h"
#include "attest/check/block/block_mistakes.h"
#include "attest/check/gradients/gradient_mistakes.h"
#include "attest/check/mistakes/catalogue.h"
#include "frontends/cli/print.h"

namespace attest::cli {
namespace {

using check::Mistake;
using check::MistakeKind;

/// Those of attention, of its backward pass, and of whole blocks.
std::vector<const Mistake*> all_mistakes() {
  std::vector<const Mistake*> out;
  for (const Mistake& each : check::catalogue()) out.push_back(&each);
  for (const check::GradientMistake& each : check::gradient_mistakes()) {
    out.push_back(&each.mistake);
  }
  for (const check::block::BlockMistake& each : check::block::block_mistakes()) {
    out.push_back(&each.text);
  }
  // By what they are about; a name that two tables have is another mistake in each.
  std::ranges::stable_sort(out, {}, [](const Mistake* each) { return each->axis; });
  return out;
}

std::string_view words_of(MistakeKind kind) {
  switch (kind) {
    case MistakeKind::wrong:
      return "wrong";
    case MistakeKind::harmless:
      return "harmless";
    case MistakeKind::rounding:
      return "rounding";
  }
  return "";
}

std::string values_of(const Mistake& mistake) {
  std::string out;
  for (const double value : mistake.values) {
    out += sentence(out.empty() ? "" : ", ", value);
  }
  return out;
}

/// A cell of a Markdown table.
std::string cell(std::string_view text) {
  std::string out;
  for (const char c : text) out += c == '|' ? std::string("\\|") : std::string(1, c);
  return out.empty() ? std::string("-") : out;
}

std::string one_mistake(const Mistake& mistake) {
  std::string out =
      fmt::format("{}\n  {}\n  look for: {}\n", mistake.name, mistake.what, mistake.look_for);
  if (mistake.kind == MistakeKind::harmless) {
    out += "  harmless: it gives the same numbers in exact arithmetic\n";
  } else if (mistake.kind == MistakeKind::rounding) {
    out += "  rounding: it gives the right numbers but for rounding\n";
  }
  if (!mistake.values.empty()) out += fmt::format("  tried with: {}\n", values_of(mistake));
  if (!mistake.seen_in.empty()) out += fmt::format("  seen in: {}\n", mistake.seen_in);
  return out;
}

}  // namespace

std::string list_of_mistakes() {
  std::size_t width = 0;
  const std::vector<const Mistake*> all = all_mistakes();
  for (const Mistake* each : all) width = std::max(width, each->name.size());
  std::string out;
  for (const Mistake* each : all) {
    out += fmt::format("{}  {}\n", left(std::string(each->name), width), each->what);
  }
  out += fmt::format("{} mistakes; attest check --explain NAME says more of one\n", all.size());
  return out;
}

Result<std::string> explanation_of(const std::string& asked) {
  // As a verdict prints it, a name may be followed by its value: scale.other_constant (0.2).
  const std::string name = asked.substr(0, asked.find(" ("));
  std::string near, out;
  std::set<std::string_view> told;  // attention and blocks share names
  const std::string axis = name.substr(0, name.find('.'));
  for (const Mistake* each : all_mistakes()) {
    if (each->name == name) out += one_mistake(*each);
    const bool alike = each->name.find(name) != std::string_view::npos ||
                       each->name.substr(0, each->name.find('.')) == axis;
    if (!alike || name.empty() || !told.insert(each->name).second) continue;
    near += sentence(near.empty() ? "" : ", ", each->name);
  }
  if (!out.empty()) return out;
  return Failure{
      ErrorKind::value, "no-such-mistake",
      sentence("[check] no mistake is called '", name, "'",
               near.empty() ? "; attest check --list has them all" : "; there are " + near)};
}

std::string mistakes_page() {
  std::string out =
      "# The mistakes that `attest check` knows\n\n"
      "Made by `attest check --mistakes`; a test holds this page to the catalogue. *Harmless* ones "
      "give "
      "the same numbers in exact arithmetic, *rounding* ones the right numbers but for rounding; "
      "all "
      "others are wrong. A number in brackets after a name, as in `tail.zero_keys_counted (16)`, "
      "is one "
      "of the values that a mistake is tried with. `attest check --explain NAME` prints one.\n";
  std::string_view axis;
  for (const Mistake* one : all_mistakes()) {
    const Mistake& each = *one;
    if (check::name_of(each.axis) != axis) {
      axis = check::name_of(each.axis);
      out += fmt::format(
          "\n## {}\n\n| mistake | what the program does | look for | seen in |\n"
          "| --- | --- | --- | --- |\n",
          axis);
    }
    std::string name = fmt::format("`{}`", each.name);
    if (each.kind != MistakeKind::wrong) name += fmt::format(" ({})", words_of(each.kind));
    if (!each.values.empty()) name += fmt::format(" with {}", values_of(each));
    out += fmt::format("| {} | {} | {} | {} |\n", cell(name), cell(each.what), cell(each.look_for),
                       cell(each.seen_in));
  }
  return out;
}

}  // namespace attest::cli
