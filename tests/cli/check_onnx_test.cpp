// SPDX-License-Identifier: MIT
// The ONNX project's own Attention tests are right, and the answers that it once published and took
// back are wrong for the recorded reasons, found from the tensors and the node's attributes alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "attest/io/json.h"
#include "attest/io/safetensors.h"
#include "onnx_nodes.h"
#include "run_program.h"

using namespace attest;
using namespace attest::test;

namespace {

/// Their names of the mistakes, and ours.
const std::map<std::string, std::string> our_names{
    {"heads_split_by_reshape", "layout.heads_split_by_reshape"},
    {"gqa_tile", "gqa.tile"},
    {"causal_ignores_past", "causal.ignores_past"},
    {"softcap_after_mask", "softcap.after_mask"},
    {"qk_output_modes_1_2_swapped", "label.qk_modes_swapped"},
};

/// What says how the node was to compute; everything else in the metadata could hold the answer.
const std::set<std::string> node_fields{"op", "opset", "attributes", "inputs", "outputs"};

struct Told {
  int code = -1;
  std::string verdict;
  std::set<std::string> names;  ///< of the first explanation
  bool operator==(const Told&) const = default;
};

Told told_of(const std::string& path) {
  const Ended ended = run_attest({"check", path, "--json"});
  Told out{.code = ended.code, .verdict = {}, .names = {}};
  const auto report = io::parse_json(ended.out, path);
  if (!report) return out;
  if (const auto* verdict = report->find("verdict")) out.verdict = *verdict->string_if();
  const auto* explanations = report->find("explanations");
  if (explanations == nullptr || explanations->items().empty()) return out;
  for (const auto& mistake : explanations->items().front().find("mistakes")->items()) {
    out.names.insert(*mistake.find("name")->string_if());
  }
  return out;
}

/// The same tensors with nothing but the node beside them, under a name that says nothing.
std::string stripped(const io::NamedTensors& file, const ScratchFolder& scratch) {
  io::NamedTensors bare{.tensors = file.tensors, .metadata = {}};
  for (const auto& entry : file.metadata) {
    if (node_fields.count(entry.first) != 0) bare.metadata.push_back(entry);
  }
  const std::string path = scratch.file("dump.safetensors");
  EXPECT_TRUE(io::write_safetensors(path, bare));
  return path;
}

std::set<std::string> recorded_in(const OnnxNode& node) {
  std::set<std::string> out;
  for (const std::string& mistake : node.mistakes()) out.insert(our_names.at(mistake));
  return out;
}

}  // namespace

TEST(CheckOnnx, EveryPublishedTestIsRight) {
  const auto nodes = onnx_nodes("attention");
  if (nodes.empty()) GTEST_SKIP() << not_shared;
  EXPECT_EQ(nodes.size(), 87U);
  const ScratchFolder scratch;
  for (const OnnxNode& node : nodes) {
    const Told told = told_of(stripped(node.file, scratch));
    EXPECT_EQ(told.code, 0) << node.name << ": " << told.verdict;
    EXPECT_EQ(told, told_of(node.path.string()))
        << node.name << ": what else the file says changes the verdict";
  }
}

TEST(CheckOnnx, EveryAnswerTakenBackIsWrongForTheRecordedReasons) {
  const auto nodes = onnx_nodes("attention_errata");
  if (nodes.empty()) GTEST_SKIP() << not_shared;
  EXPECT_EQ(nodes.size(), 48U);
  std::map<std::size_t, int> sizes;
  const ScratchFolder scratch;
  for (const OnnxNode& node : nodes) {
    const Told told = told_of(stripped(node.file, scratch));
    const auto recorded = recorded_in(node);
    ++sizes[recorded.size()];
    EXPECT_EQ(told.code, 1) << node.name << ": " << told.verdict;
    EXPECT_EQ(told.names, recorded) << node.name;
    EXPECT_EQ(told, told_of(node.path.string()))
        << node.name << ": what else the file says changes the verdict";
  }
  EXPECT_EQ(sizes, (std::map<std::size_t, int>{{1, 36}, {2, 11}, {3, 1}}));
}
