// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "attest/io/json.h"
#include "attest/io/safetensors.h"
#include "tests/support/shared_files.h"

/// The tests that the ONNX project publishes of its operators, one node a file.
namespace attest::test {

struct OnnxNode {
  std::string name{};
  std::filesystem::path path{};
  io::NamedTensors file{};

  [[nodiscard]] bool has(std::string_view tensor) const { return file.find(tensor) != nullptr; }
  [[nodiscard]] Tensor<double> get(std::string_view tensor) const {
    return file.find(tensor)->to_f64(tensor).value();
  }
  /// An entry of the file's metadata, or nothing.
  [[nodiscard]] std::string text(std::string_view key) const {
    for (const auto& [entry, value] : file.metadata) {
      if (entry == key) return value;
    }
    return "";
  }
  /// A numeric attribute, or what it is where it is absent.
  [[nodiscard]] double attribute(std::string_view key, double otherwise) const {
    const std::string all = text("attributes");
    if (all.empty()) return otherwise;
    const auto json = io::parse_json(all, name).value();
    const io::Json* const value = json.find(key);
    if (value == nullptr) return otherwise;
    const std::int64_t* const whole = value->integer_if();
    return whole != nullptr ? static_cast<double>(*whole) : *value->double_if();
  }
  /// The attribute `axis`, counted from the front.
  [[nodiscard]] std::size_t axis(std::size_t rank) const {
    const auto axis = static_cast<std::int64_t>(attribute("axis", -1));
    return static_cast<std::size_t>(axis < 0 ? axis + static_cast<std::int64_t>(rank) : axis);
  }
  /// What an answer that was taken back is known to do wrong.
  [[nodiscard]] std::vector<std::string> mistakes() const {
    const std::string all = text("mistakes");
    if (all.empty()) return {};
    std::vector<std::string> out;
    const auto list = io::parse_json(all, name).value();
    for (const io::Json& item : list.items()) out.push_back(*item.string_if());
    return out;
  }
};

/// Those of an operation whose name begins so, by name; none if this machine lacks them.
inline std::vector<OnnxNode> onnx_nodes(const std::string& operation,
                                        std::string_view prefix = "") {
  const auto folder = shared_path(std::filesystem::path("data/onnx") / operation);
  std::vector<OnnxNode> out;
  if (!folder) return out;
  for (const auto& entry : std::filesystem::directory_iterator(*folder)) {
    if (entry.path().extension() != ".safetensors") continue;
    if (!entry.path().filename().string().starts_with(prefix)) continue;
    out.push_back({entry.path().stem().string(), entry.path(),
                   io::read_safetensors(entry.path().string()).value()});
  }
  std::ranges::sort(out, {}, &OnnxNode::name);
  return out;
}

}  // namespace attest::test
