// SPDX-License-Identifier: MIT
#include "frontends/cli/options.h"

#include <charconv>
#include <string_view>

#include "attest/base/text.h"

namespace attest::cli {
namespace {

[[noreturn]] void refuse(const std::string& name, std::string_view word, std::string_view wanted) {
  throw CLI::ValidationError(name, sentence("wants ", wanted, "; found '", word, "'"));
}

template <class Number>
Number whole_word(const std::string& name, std::string_view word, std::string_view wanted) {
  Number number{};
  const char* end = word.data() + word.size();
  const auto [rest, error] = std::from_chars(word.data(), end, number);
  if (word.empty() || error != std::errc{} || rest != end) refuse(name, word, wanted);
  return number;
}

std::int64_t integer_of(const std::string& name, std::string_view word, IntegerRange range) {
  const bool open = range.least == INT64_MIN && range.most == INT64_MAX;
  const std::string wanted =
      open                      ? "a whole number of 64 bits"
      : range.most == INT64_MAX ? sentence("a whole number of at least ", range.least)
                                : sentence("a whole number from ", range.least, " to ", range.most);
  const auto number = whole_word<std::int64_t>(name, word, wanted);
  if (number < range.least || number > range.most) refuse(name, word, wanted);
  return number;
}

double number_of(const std::string& name, std::string_view word, NumberRange range) {
  const std::string_view wanted = range == NumberRange::any      ? "a number"
                                  : range == NumberRange::finite ? "a finite number"
                                                                 : "a finite number of at least 0";
  const auto number = whole_word<double>(name, word, wanted);
  const bool finite = number - number == 0;
  if (range != NumberRange::any && !finite) refuse(name, word, wanted);
  if (range == NumberRange::not_negative && number < 0) refuse(name, word, wanted);
  return number;
}

/// Calls `take` for each part of "a,b,c", empty ones included, so that those are refused too.
template <class Take>
void for_each_part(std::string_view list, const Take& take) {
  while (true) {
    const std::size_t comma = list.find(',');
    take(list.substr(0, comma));
    if (comma == std::string_view::npos) return;
    list.remove_prefix(comma + 1);
  }
}

}  // namespace

CLI::Option* add_integer(CLI::App& command, const std::string& name,
                         std::optional<std::int64_t>& target, const std::string& help,
                         IntegerRange range) {
  return command.add_option_function<std::string>(
      name,
      [&target, name, range](const std::string& word) { target = integer_of(name, word, range); },
      help);
}

CLI::Option* add_unsigned(CLI::App& command, const std::string& name,
                          std::optional<std::uint64_t>& target, const std::string& help) {
  return command.add_option_function<std::string>(
      name,
      [&target, name](const std::string& word) {
        target = whole_word<std::uint64_t>(name, word,
                                           sentence("a whole number from 0 to ", UINT64_MAX));
      },
      help);
}

CLI::Option* add_number(CLI::App& command, const std::string& name, std::optional<double>& target,
                        const std::string& help, NumberRange range) {
  return command.add_option_function<std::string>(
      name,
      [&target, name, range](const std::string& word) { target = number_of(name, word, range); },
      help);
}

CLI::Option* add_integers(CLI::App& command, const std::string& name,
                          std::vector<std::int64_t>& target, const std::string& help) {
  return command.add_option_function<std::string>(
      name,
      [&target, name](const std::string& list) {
        target.clear();
        for_each_part(list,
                      [&](std::string_view part) { target.push_back(integer_of(name, part, {})); });
      },
      help);
}

CLI::Option* add_numbers(CLI::App& command, const std::string& name, std::vector<double>& target,
                         const std::string& help) {
  return command.add_option_function<std::string>(
      name,
      [&target, name](const std::string& list) {
        target.clear();
        for_each_part(list, [&](std::string_view part) {
          target.push_back(number_of(name, part, NumberRange::any));
        });
      },
      help);
}

CLI::Option* add_word(CLI::App& command, const std::string& name, std::string& target,
                      const std::string& help) {
  return command.add_option_function<std::string>(
      name,
      [&target, name](const std::string& word) {
        if (word.empty()) refuse(name, word, "a value");
        target = word;
      },
      help);
}

}  // namespace attest::cli
