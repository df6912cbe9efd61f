// SPDX-License-Identifier: MIT
#include "attest/check/probe/claim_metadata.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "attest/base/conventions.h"
#include "attest/base/text.h"
#include "attest/io/origin.h"

namespace attest::check {
namespace {

constexpr std::string_view prefix = "attest.";
constexpr std::string_view remark = "made_by";

using Text = std::pair<std::string, std::string>;

Failure bad(std::string_view name, std::string_view text, std::string_view wanted) {
  return {ErrorKind::value, "bad-claim",
          sentence("[claim] ", prefix, io::printable(name), " is ", wanted, "; the file says ",
                   io::in_quotes(text))};
}

template <class Number>
bool whole(std::string_view text, Number& number) {
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  return !text.empty() && error == std::errc{} && rest == end;
}

// How each kind of option is written, and read back. `read` says whether the text is one.

struct Words {
  std::span<const std::string_view> allowed;
  bool read(std::string_view text, std::string& out) const {
    out = text;
    return std::ranges::find(allowed, text) != allowed.end();
  }
};

bool read_text(std::string_view text, std::optional<std::int64_t>& out) {
  return whole(text, out.emplace());
}
bool read_text(std::string_view text, std::optional<std::uint64_t>& out) {
  return whole(text, out.emplace());
}
bool read_text(std::string_view text, std::optional<double>& out) {
  return whole(text, out.emplace()) && std::isfinite(*out);
}
bool read_text(std::string_view text, bool& out) {
  out = text == "yes";
  return out;
}
bool read_text(std::string_view text, std::vector<std::int64_t>& out) {
  out.clear();
  while (true) {
    const std::size_t comma = text.find(',');
    if (!whole(text.substr(0, comma), out.emplace_back())) return false;
    if (comma == std::string_view::npos) return true;
    text.remove_prefix(comma + 1);
  }
}

std::string text_of(const std::string& word) { return word; }
std::string text_of(bool yes) { return yes ? "yes" : ""; }
std::string text_of(const std::vector<std::int64_t>& numbers) {
  std::string out;
  for (const std::int64_t number : numbers) out += sentence(out.empty() ? "" : ",", number);
  return out;
}
template <class Number>
std::string text_of(const std::optional<Number>& number) {
  return number ? sentence(*number) : "";
}

constexpr std::array<std::string_view, 4> layouts{"bhtd", "bthd", "packed", "lbe"};
constexpr std::array<std::string_view, 4> corners{"square", "top-left", "bottom-right", "none"};
constexpr std::array<std::string_view, 3> empty_rows{"error", "zero", "nan"};
constexpr std::array<std::string_view, 5> precisions{"f64", "f32", "tf32", "f16", "bf16"};
constexpr std::array<std::string_view, 2> pairings{"half", "interleaved"};

bool read_convention(std::string_view text, std::string& out) {
  out = text;
  return find_convention(text).has_value();
}

bool read_causal(std::string_view text, std::string& out) {
  std::int64_t offset = 0;
  return Words{corners}.read(text, out) || whole(text, offset);
}

/// "3,0", "3,", ",0", or one number.
bool read_window(std::string_view text, std::string& out) {
  out = text;
  std::int64_t keys = 0;
  const std::size_t comma = text.find(',');
  if (comma == std::string_view::npos) return whole(text, keys);
  const std::string_view left = text.substr(0, comma), right = text.substr(comma + 1);
  return (left.empty() || whole(left, keys)) && (right.empty() || whole(right, keys));
}

/// Calls `visit(name, member, how to read it, what it is)` for every option.
template <class Claim, class Visit>
void for_each_option(Claim& c, const Visit& visit) {
  constexpr auto any = [](std::string_view text, auto& out) { return read_text(text, out); };
  const auto one_of = [](std::span<const std::string_view> words) {
    return
        [words](std::string_view text, std::string& out) { return Words{words}.read(text, out); };
  };
  visit("convention", c.convention, read_convention, "the name of a convention");
  visit("layout", c.layout, one_of(layouts), "bhtd, bthd, packed or lbe");
  visit("heads", c.heads, any, "a whole number");
  visit("kv_heads", c.kv_heads, any, "a whole number");
  visit("causal", c.causal, read_causal, "square, top-left, bottom-right, none or a whole number");
  visit("window", c.window, read_window, "LEFT,RIGHT or one whole number");
  visit("query_offset", c.query_offset, any, "a list of whole numbers");
  visit("scale", c.scale, any, "a finite number");
  visit("softcap", c.softcap, any, "a finite number");
  visit("alibi", c.alibi, any, "yes");
  visit("dropout", c.dropout, any, "a finite number");
  visit("seed", c.seed, any, "a whole number from 0");
  visit("empty_row", c.empty_row, one_of(empty_rows), "error, zero or nan");
  visit("precision", c.precision, one_of(precisions), "f64, f32, tf32, f16 or bf16");
  visit("rope", c.rope, one_of(pairings), "half or interleaved");
  visit("rope_dim", c.rope_dim, any, "a whole number");
  visit("rope_base", c.rope_base, any, "a finite number");
  visit("past", c.past, any, "a whole number");
}

/// Metadata and the flags have dashes and underscores each their own way.
std::string as_flag(std::string_view name) {
  std::string out(name);
  std::ranges::replace(out, '_', '-');
  return out;
}

Result<void> set(ClaimWords& claim, const Text& entry) {
  // Not a structured binding: clang 14 lets no lambda have one.
  const std::string& name = entry.first;
  const std::string& text = entry.second;
  std::optional<Failure> failure;
  bool known = false;
  for_each_option(
      claim, [&](std::string_view option, auto& member, const auto& read, std::string_view wanted) {
        if (as_flag(name) != as_flag(option)) return;
        known = true;
        if (!text_of(member).empty()) {
          failure = bad(name, text, "said twice");
        } else if (!read(text, member)) {
          failure = bad(name, text, wanted);
        }
      });
  if (!known) failure = bad(name, text, "no option of a claim");
  if (failure) return *failure;
  return {};
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\r')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\r')) text.remove_suffix(1);
  return text;
}

/// The lines "name = text" of the tensor of bytes.
Result<std::vector<Text>> lines_of(const AnyTensor& tensor) {
  if (tensor.dtype() != DType::u8 || tensor.shape().size() != 1) {
    return Failure{ErrorKind::type, "bad-claim",
                   sentence("[claim] ", claim_tensor, " is text in bytes, u8 of rank 1; found ",
                            name_of(tensor.dtype()), " ", to_string(tensor.shape()))};
  }
  const auto bytes = tensor.bytes();
  std::string_view rest(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  std::vector<Text> out;
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = trimmed(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (line.empty()) continue;
    const std::size_t equals = line.find('=');
    if (equals == std::string_view::npos) {
      return Failure{ErrorKind::value, "bad-claim",
                     sentence("[claim] ", claim_tensor, " holds lines 'name = text'; found ",
                              io::in_quotes(line))};
    }
    out.emplace_back(trimmed(line.substr(0, equals)), trimmed(line.substr(equals + 1)));
  }
  return out;
}

}  // namespace

std::vector<Text> texts_of(const ClaimWords& claim) {
  std::vector<Text> out;
  for_each_option(claim,
                  [&](std::string_view name, const auto& member, const auto&, std::string_view) {
                    if (std::string text = text_of(member); !text.empty()) {
                      out.emplace_back(as_flag(name), std::move(text));
                    }
                  });
  return out;
}

void write_claim(const ClaimWords& claim, io::NamedTensors& file) {
  for (auto& [name, text] : texts_of(claim)) {
    std::ranges::replace(name, '-', '_');
    file.metadata.emplace_back(sentence(prefix, name), std::move(text));
  }
}

void write_claim_as_tensor(const ClaimWords& claim, io::NamedTensors& file) {
  std::string lines;
  for (const auto& [name, text] : texts_of(claim)) lines += sentence(name, " = ", text, "\n");
  if (lines.empty()) return;
  Tensor<std::uint8_t> bytes({static_cast<std::int64_t>(lines.size())});
  std::ranges::copy(lines, bytes.data());
  file.add(std::string(claim_tensor), bytes);
}

Result<ClaimWords> claim_of(std::span<const Text> texts) {
  ClaimWords claim;
  for (const Text& text : texts) {
    if (auto ok = set(claim, text); !ok) return ok.failure();
  }
  return claim;
}

Result<ClaimWords> read_claim(const io::NamedTensors& file) {
  std::vector<Text> texts;
  for (const auto& [key, text] : file.metadata) {
    if (!key.starts_with(prefix)) continue;
    std::string name = key.substr(prefix.size());
    if (name != remark) texts.emplace_back(std::move(name), text);
  }
  if (const AnyTensor* tensor = file.find(claim_tensor); tensor != nullptr) {
    if (!texts.empty()) {
      return Failure{ErrorKind::value, "bad-claim",
                     sentence("[claim] the file claims twice: by the tensor ", claim_tensor,
                              " and by its metadata")};
    }
    auto lines = lines_of(*tensor);
    if (!lines) return lines.failure();
    texts = *std::move(lines);
  }
  return claim_of(texts);
}

}  // namespace attest::check
