// SPDX-License-Identifier: MIT
// An ONNX Attention node, versions 23 to 25, as a claim: docs/conventions.md has the operator's words.
#include "frontends/cli/check_onnx.h"

#include <algorithm>
#include <charconv>
#include <limits>

#include "attest/base/text.h"

namespace attest::cli {
namespace {

Failure bad(std::string message) {
  return {ErrorKind::value, "bad-metadata", "[check] " + std::move(message)};
}

const std::string* metadata_of(const io::NamedTensors& bundle, std::string_view key) {
  for (const auto& [name, value] : bundle.metadata) {
    if (name == key) return &value;
  }
  return nullptr;
}

/// The tensor of that name, with or without the side of the node in front.
std::string name_in(const io::NamedTensors& bundle, std::string_view side, std::string_view name) {
  for (const std::string& each : {sentence(side, ".", name), std::string(name)}) {
    if (bundle.find(each) != nullptr) return each;
  }
  return {};
}

class Reader {
 public:
  Reader(const OnnxNode& node, io::NamedTensors& bundle, DumpOptions& options)
      : node_(node), bundle_(bundle), o_(options) {}

  Result<void> read() {
    for (const auto step : {&Reader::read_shapes, &Reader::read_numbers, &Reader::read_positions,
                            &Reader::read_table, &Reader::pad_mask}) {
      if (auto ok = (this->*step)(); !ok) return ok;
    }
    o_.inputs.convention = sentence("onnx-", node_.opset);
    o_.inputs.empty_row = "zero";
    return {};
  }

 private:
  Result<std::int64_t> integer(std::string_view name, std::int64_t otherwise) const {
    const io::Json* found = node_.attributes.find(name);
    if (found == nullptr) return otherwise;
    if (found->integer_if() == nullptr) return bad(sentence(name, " must be a whole number"));
    return *found->integer_if();
  }

  Result<std::optional<double>> number(std::string_view name) const {
    const io::Json* found = node_.attributes.find(name);
    if (found == nullptr) return std::optional<double>();
    if (found->double_if() != nullptr) return std::optional(*found->double_if());
    if (found->integer_if() != nullptr) {
      return std::optional(static_cast<double>(*found->integer_if()));
    }
    return bad(sentence(name, " must be a number"));
  }

  /// T, P and all keys, from whatever rank the inputs have.
  Result<void> read_shapes() {
    const AnyTensor* query = bundle_.find(name_in(bundle_, "in", "Q"));
    const AnyTensor* key = bundle_.find(name_in(bundle_, "in", "K"));
    if (query != nullptr && query->shape().size() >= 2) {
      queries_ = query->shape()[query->shape().size() - 2];
      packed_ = query->shape().size() == 3;
    }
    if (key != nullptr && key->shape().size() >= 2) keys_ = key->shape()[key->shape().size() - 2];
    if (const AnyTensor* past = bundle_.find(name_in(bundle_, "in", "past_key"))) {
      if (past->shape().size() != 4) return bad("past_key must have rank 4");
      past_ = past->shape()[2];
      keys_ += *past_;
    }
    if (!packed_) return {};
    const auto heads = integer("q_num_heads", 0);
    const auto kv_heads = integer("kv_num_heads", 0);
    if (!heads) return heads.failure();
    if (!kv_heads) return kv_heads.failure();
    if (*heads < 1 || *kv_heads < 1) {
      return bad("inputs of rank 3 need q_num_heads and kv_num_heads of at least 1");
    }
    o_.inputs.layout = "packed";
    o_.inputs.heads = *heads;
    o_.inputs.kv_heads = *kv_heads;
    return {};
  }

  Result<void> read_numbers() {
    const auto scale = number("scale");
    if (!scale) return scale.failure();
    o_.inputs.scale = *scale;
    const auto softcap = number("softcap");
    if (!softcap) return softcap.failure();
    // tanh is odd, so that a negative cap is its absolute value.
    if (*softcap && **softcap != 0) o_.inputs.softcap = **softcap < 0 ? -**softcap : **softcap;
    return {};
  }

  /// Query i stands at offset + i: behind the cache, at the end of the keys in use, or at 0.
  Result<void> read_positions() {
    const auto causal = integer("is_causal", 0);
    const auto left = integer("left_window_size", -1);
    const auto right = integer("right_window_size", -1);
    for (const auto* each : {&causal, &left, &right}) {
      if (!*each) return each->failure();
    }
    const bool window = *left >= 0 || *right >= 0;
    if (window) {
      const auto side = [](std::int64_t n) { return n < 0 ? std::string() : sentence(n); };
      o_.inputs.window = side(*left) + "," + side(*right);
    }
    std::vector<std::int64_t> offset;
    if (past_) offset = {*past_};
    const std::string lengths = name_in(bundle_, "in", "nonpad_kv_seqlen");
    if (!past_ && !lengths.empty()) {
      const auto counts = bundle_.find(lengths)->to_i64(lengths);
      if (!counts) return counts.failure();
      for (const std::int64_t count : counts->elements()) offset.push_back(count - queries_);
    }
    o_.inputs.causal = *causal == 0 ? "none" : offset.empty() ? "top-left" : "square";
    if (*causal != 0 || window) o_.inputs.query_offset = offset;
    return {};
  }

  /// Whether what joins the scores is a mask of numbers and nothing that hides keys by itself: the table
  /// "with bias" is then that of the biased scores.
  [[nodiscard]] bool adds_alone() const {
    const std::string mask = name_in(bundle_, "in", "attn_mask");
    return !mask.empty() && bundle_.find(mask)->dtype() != DType::boolean &&
           o_.inputs.causal == "none" && o_.inputs.window.empty() &&
           name_in(bundle_, "in", "nonpad_kv_seqlen").empty();
  }

  /// Which table the fourth output is.
  Result<void> read_table() {
    const std::string name = name_in(bundle_, "out", "qk_matmul_output");
    if (name.empty()) return {};
    const auto mode = integer("qk_matmul_output_mode", 0);
    if (!mode) return mode.failure();
    const char* const stages[] = {"scaled", "capped", adds_alone() ? "biased" : "masked",
                                  "weights"};
    if (*mode < 0 || *mode > 3) return bad("qk_matmul_output_mode is 0, 1, 2 or 3");
    o_.inputs.names.try_emplace(stages[*mode], name);
    return {};
  }

  /// From opset 24 a mask whose last axis is shorter than the keys hides the rest.
  Result<void> pad_mask() {
    const std::string name = name_in(bundle_, "in", "attn_mask");
    if (name.empty() || node_.opset < 24) return {};
    const auto entry =
        std::ranges::find(bundle_.tensors, name, &std::pair<std::string, AnyTensor>::first);
    AnyTensor& mask = entry->second;
    const Shape shape = mask.shape();
    if (shape.empty() || shape.back() >= keys_ || shape.back() < 1) return {};
    if (mask.dtype() == DType::boolean) {
      const auto given = mask.to_bool(name);
      if (!given) return given.failure();
      mask = padded(*given, false);
      return {};
    }
    const DType dtype = mask.dtype();
    const auto given = mask.to_f64(name);
    if (!given) return given.failure();
    mask = AnyTensor::from_f64(padded(*given, -std::numeric_limits<double>::infinity()), dtype);
    return {};
  }

  template <class T>
  Tensor<T> padded(const Tensor<T>& given, T filler) const {
    Shape shape = given.shape();
    const auto width = static_cast<std::size_t>(shape.back());
    const auto wanted = static_cast<std::size_t>(keys_);
    shape.back() = keys_;
    Tensor<T> out(shape);
    std::ranges::fill(out.elements(), filler);
    for (std::size_t row = 0; row * width < given.size(); ++row) {
      std::copy_n(given.data() + row * width, width, out.data() + row * wanted);
    }
    return out;
  }

  const OnnxNode& node_;
  io::NamedTensors& bundle_;
  DumpOptions& o_;
  std::int64_t queries_ = 0, keys_ = 0;
  std::optional<std::int64_t> past_;
  bool packed_ = false;
};

}  // namespace

Result<std::optional<OnnxNode>> onnx_node_of(const io::NamedTensors& bundle) {
  const std::string* op = metadata_of(bundle, "op");
  if (op == nullptr || *op != "Attention") return std::optional<OnnxNode>();
  OnnxNode node;
  if (const std::string* opset = metadata_of(bundle, "opset")) {
    const char* end = opset->data() + opset->size();
    const auto [rest, error] = std::from_chars(opset->data(), end, node.opset);
    if (error != std::errc{} || rest != end || node.opset < 23 || node.opset > 25) {
      return bad(
          sentence("of ONNX Attention the opsets 23, 24 and 25 are known; found '", *opset, "'"));
    }
  }
  const std::string* text = metadata_of(bundle, "attributes");
  auto attributes = io::parse_json(text == nullptr ? "{}" : std::string_view(*text), "attributes");
  if (!attributes) return attributes.failure();
  if (!attributes->is(io::Json::Kind::object)) return bad("attributes must be a JSON object");
  node.attributes = *std::move(attributes);
  return std::optional(std::move(node));
}

Result<void> read_onnx(const OnnxNode& node, io::NamedTensors& bundle, DumpOptions& options,
                       std::vector<std::string>& remarks) {
  remarks.push_back(sentence("the file claims to be an ONNX Attention node of opset ", node.opset));
  return Reader(node, bundle, options).read();
}

}  // namespace attest::cli
