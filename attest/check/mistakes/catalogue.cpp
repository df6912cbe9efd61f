// SPDX-License-Identifier: MIT
#include "attest/check/mistakes/catalogue.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <tuple>
#include <vector>

#include "attest/base/text.h"
#include "attest/check/mistakes/catalogue_parts.h"

namespace attest::check {
namespace {

constexpr std::array axis_names{
    std::string_view("layout"),     std::string_view("roles"),   std::string_view("heads"),
    std::string_view("keys"),       std::string_view("rope"),    std::string_view("scale"),
    std::string_view("softcap"),    std::string_view("bias"),    std::string_view("alibi"),
    std::string_view("mask"),       std::string_view("causal"),  std::string_view("window"),
    std::string_view("packing"),    std::string_view("softmax"), std::string_view("exponent"),
    std::string_view("empty_rows"), std::string_view("sink"),    std::string_view("dropout"),
    std::string_view("rounding"),   std::string_view("output"),  std::string_view("label"),
    std::string_view("gradient"),   std::string_view("block")};
static_assert(axis_names.size() == static_cast<std::size_t>(Axis::block) + 1);

std::vector<Mistake> joined() {
  std::vector<Mistake> out;
  for (const auto part :
       {layout_mistakes(), roles_mistakes(), heads_mistakes(), keys_mistakes(), rope_mistakes(),
        scale_mistakes(), softcap_mistakes(), bias_mistakes(), alibi_mistakes(), mask_mistakes(),
        causal_mistakes(), window_mistakes(), packing_mistakes(), softmax_mistakes(),
        sink_mistakes(), dropout_mistakes(), rounding_mistakes(), output_mistakes(),
        label_mistakes()}) {
    out.insert(out.end(), part.begin(), part.end());
  }
  std::ranges::sort(out, [](const Mistake& a, const Mistake& b) {
    return std::tie(a.axis, a.name) < std::tie(b.axis, b.name);
  });
  return out;
}

}  // namespace

std::string_view name_of(Axis axis) noexcept { return axis_names[static_cast<std::size_t>(axis)]; }

std::span<const Mistake> catalogue() {
  static const std::vector<Mistake> all = joined();
  return all;
}

const Mistake* find_mistake(std::string_view name) {
  const auto all = catalogue();
  const auto found = std::ranges::find(all, name, &Mistake::name);
  return found == all.end() ? nullptr : &*found;
}

std::string Made::label() const {
  if (mistake == nullptr) return {};
  if (!mistake->values.empty()) return sentence(mistake->name, " (", value, ")");
  if (value == 0) return std::string(mistake->name);
  return sentence(mistake->name, " (", three_digits(value), ")");  // fitted, not one of a list
}

}  // namespace attest::check
