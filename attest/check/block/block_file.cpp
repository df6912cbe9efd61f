// SPDX-License-Identifier: MIT
#include "attest/check/block/block_file.h"

#include <algorithm>
#include <set>
#include <utility>

#include "attest/base/shape.h"
#include "attest/base/text.h"
#include "attest/check/block/block_layout.h"
#include "attest/check/block/block_names.h"
#include "attest/check/block/block_settle.h"
#include "attest/check/block/program.h"
#include "attest/lab/block.h"

namespace attest::check {
namespace {

using block::LayerName;
using block::NameContext;

struct Given {
  std::string name{};
  const AnyTensor* tensor = nullptr;
};
/// By what they mean: "query_weight", "x", "ffn.up".
using GivenTensors = std::map<std::string, Given>;

template <class... Parts>
Failure failure(ErrorKind kind, const char* id, const Parts&... parts) {
  return {kind, id, sentence("[check block] ", parts...)};
}

std::string order_name(WeightOrder order) {
  return order == WeightOrder::input_output ? "input × output" : "output × input";
}

class Reader {
 public:
  Reader(const io::NamedTensors& tensors, const BlockFileOptions& options)
      : tensors_(tensors), options_(options) {}

  Result<BlockFile> read() {
    if (auto ok = check_roles(); !ok) return ok.failure();
    if (auto ok = name_tensors(); !ok) return ok.failure();
    if (auto ok = find_width(); !ok) return ok.failure();
    if (auto ok = find_order(); !ok) return ok.failure();
    if (auto ok = read_parameters(); !ok) return ok.failure();
    if (auto ok = find_heads(); !ok) return ok.failure();
    if (auto ok = settle(); !ok) return ok.failure();
    if (auto ok = read_tables(); !ok) return ok.failure();
    out_.said.insert(out_.said.begin(), assumed_.begin(), assumed_.end());
    if (!taken_.empty()) say("names: ", taken_);
    return std::move(out_);
  }

 private:
  template <class... Parts>
  void say(const Parts&... parts) {
    out_.said.push_back(sentence(parts...));
  }

  /// What neither a tensor nor an option shows, and the option that would.
  template <class... Parts>
  void assume(const Parts&... parts) {
    assumed_.push_back("assumed: " + sentence(parts...));
  }

  Result<void> check_roles() const {
    const std::vector<std::string> roles = block_roles();
    for (const auto& [role, name] : options_.names) {
      if (std::count(roles.begin(), roles.end(), role) != 0) continue;
      std::string known;
      for (const std::string& one : roles) known += sentence(known.empty() ? "" : ", ", one);
      return failure(ErrorKind::value, "unknown-role", "there is no role ", role, ", which ", name,
                     " is to have; there are ", known);
    }
    return {};
  }

  [[nodiscard]] const Given* find(const std::string& meaning) const {
    const auto found = given_.find(meaning);
    return found == given_.end() ? nullptr : &found->second;
  }

  Result<void> name_tensors() {
    std::set<std::int64_t> layers;
    NameContext context;
    for (const auto& [name, tensor] : tensors_.tensors) {
      const LayerName layer = block::layer_of(name);
      if (layer.layer) layers.insert(*layer.layer);
      const std::string_view rest = layer.rest;
      context.w1_is_gate =
          context.w1_is_gate || rest.ends_with("w3") || rest.ends_with("w3.weight");
      context.pre_ffn_norm =
          context.pre_ffn_norm || rest.find("pre_feedforward_layernorm") != std::string_view::npos;
    }
    if (layers.size() > 1 && !options_.layer) {
      return failure(ErrorKind::value, "ambiguous-layer", "the file has tensors of ", layers.size(),
                     " layers, from ", *layers.begin(), " to ", *layers.rbegin(),
                     "; say which one is meant");
    }
    for (const auto& named : tensors_.tensors) {
      const std::string& name = named.first;
      const auto mapped = std::find_if(options_.names.begin(), options_.names.end(),
                                       [&](const auto& entry) { return entry.second == name; });
      const LayerName layer = block::layer_of(name);
      const bool other = options_.layer && layer.layer && *layer.layer != *options_.layer;
      if (mapped == options_.names.end() && other) continue;
      const std::string meaning =
          mapped != options_.names.end() ? mapped->first : block::meaning_of(layer.rest, context);
      if (meaning.empty()) {
        say(name, " is not used: its name says nothing");
        continue;
      }
      const auto [place, fresh] = given_.insert({meaning, {name, &named.second}});
      if (!fresh) {
        return failure(ErrorKind::value, "duplicate-name", place->second.name, " and ", name,
                       " both seem to be ", meaning, "; say which one is meant");
      }
      if (meaning != name) taken_ += sentence(taken_.empty() ? "" : ", ", name, " is ", meaning);
    }
    for (const auto& [meaning, name] : options_.names) {
      if (tensors_.find(name) == nullptr) {
        return failure(ErrorKind::value, "missing-tensor", "there is no tensor ", name,
                       ", which is to be ", meaning);
      }
    }
    return {};
  }

  Result<void> find_width() {
    for (const char* meaning : {"x", "output", "residual1", "residual2", "norm1_gain", "norm2_gain",
                                "norm1", "norm2", "output_bias", "down_bias"}) {
      const Given* given = find(meaning);
      if (given == nullptr || given->tensor->shape().empty()) continue;
      out_.dump.config.model_dim = given->tensor->shape().back();
      return {};
    }
    return failure(ErrorKind::value, "missing-tensor",
                   "the model's width is not known: give x, an output or a norm's gain");
  }

  /// A matrix that is not square shows its order, by the side that is as wide as the model.
  Result<void> find_order() {
    const std::int64_t C = out_.dump.config.model_dim;
    std::string witness;
    bool square = false;
    std::optional<WeightOrder> found;
    for (const char* meaning :
         {"query_weight", "key_weight", "value_weight", "qkv_weight", "output_weight", "up_weight",
          "gate_weight", "gate_up_weight", "down_weight"}) {
      const Given* given = find(meaning);
      if (given == nullptr) continue;
      const Shape& shape = given->tensor->shape();
      if (shape.size() != 2) {
        return failure(ErrorKind::shape, "shape-mismatch", given->name,
                       " must be a matrix; it has shape ", to_string(shape));
      }
      if (shape[0] == shape[1]) {
        square = true;
        continue;
      }
      const std::string_view name = meaning;
      const bool outwards = name == "output_weight" || name == "down_weight";
      const bool first = shape[0] == C, second = shape[1] == C;
      if (!first && !second) {
        return failure(ErrorKind::shape, "shape-mismatch", given->name, " has shape ",
                       to_string(shape), ", and neither side is the model's width ", C);
      }
      const WeightOrder shown =
          first != outwards ? WeightOrder::input_output : WeightOrder::output_input;
      if (found && *found != shown && !options_.weight_order) {
        return failure(ErrorKind::value, "ambiguous-layout", witness, " is ", order_name(*found),
                       " and ", given->name, " is ", order_name(shown),
                       "; matrices must lie alike, or say their order");
      }
      if (!found) found = shown, witness = given->name;
    }
    if (options_.weight_order) {
      order_ = *options_.weight_order;
    } else if (found) {
      order_ = *found;
      say("matrices are ", order_name(order_), ": the shape of ", witness, " shows it");
      if (square) say("square matrices are taken to lie alike");
    } else if (square) {
      return failure(ErrorKind::value, "ambiguous-layout",
                     "every matrix is square, so no shape shows whether they are input × output "
                     "or, as nn.Linear stores them, output × input; say which");
    }
    return {};
  }

  Result<Tensor<double>> matrix(const Given& given) const {
    auto values = given.tensor->to_f64(given.name);
    if (!values || order_ == WeightOrder::input_output) return values;
    return block::transposed(*values);
  }

  Result<void> unpack(const char* packed, std::initializer_list<const char*> parts) {
    for (const char* kind : {"_weight", "_bias"}) {
      const Given* given = find(sentence(packed, kind));
      if (given == nullptr) continue;
      const bool is_matrix = given->tensor->shape().size() == 2;
      const auto values = is_matrix ? matrix(*given) : given->tensor->to_f64(given->name);
      if (!values) return values.failure();
      const std::int64_t all = values->shape().empty() ? 0 : values->shape().back();
      const auto ways = static_cast<std::int64_t>(parts.size());
      const std::int64_t groups = options_.kv_heads.value_or(0);
      const std::int64_t heads = options_.heads.value_or(0);
      // Grouped heads: H of queries and twice G.
      const bool grouped = ways == 3 && groups != 0 && heads != 0 && groups != heads;
      const std::int64_t whole = grouped ? heads + 2 * groups : ways;
      if (all == 0 || all % whole != 0) {
        return failure(ErrorKind::shape, "shape-mismatch", given->name, " has ", all,
                       " columns, which do not divide into ", whole, " equal parts");
      }
      std::int64_t first = 0;
      for (const char* part : parts) {
        const bool query = std::string_view(part) == "query";
        const std::int64_t width = all / whole * (grouped ? (query ? heads : groups) : 1);
        owned_[sentence(part, kind)] = block::columns_of(*values, first, width);
        first += width;
      }
      if (ways == 2) {
        say(given->name, " is cut into equal blocks: gate, up");
        continue;
      }
      say(given->name, " is cut into query, key and value");
    }
    return {};
  }

  Result<void> read_parameters() {
    if (auto ok = unpack("qkv", {"query", "key", "value"}); !ok) return ok;
    if (auto ok = unpack("gate_up", {"gate", "up"}); !ok) return ok;
    BlockConfig any = out_.dump.config;
    any.heads = any.kv_heads = any.head_dim = any.value_dim = any.ffn_dim = 1;
    for (const lab::BlockParameter& parameter : lab::block_parameters(any)) {
      const std::string name = parameter.name;
      const auto packed = owned_.find(name);
      if (packed != owned_.end()) {
        out_.dump.weights.*parameter.tensor = packed->second;
        continue;
      }
      const Given* given = find(name);
      if (given == nullptr) continue;
      auto values = name.ends_with("_weight") ? matrix(*given) : given->tensor->to_f64(given->name);
      if (!values) return values.failure();
      out_.dump.weights.*parameter.tensor = *std::move(values);
    }
    return {};
  }

  Result<void> find_heads() {
    BlockConfig& c = out_.dump.config;
    const BlockWeights<double>& w = out_.dump.weights;
    std::optional<std::int64_t> shown;
    for (const char* meaning : {"weights", "heads"}) {
      const Given* given = find(meaning);
      if (given != nullptr && given->tensor->shape().size() >= 3) {
        shown = given->tensor->shape()[given->tensor->shape().size() - 3];
      }
    }
    const bool attends = w.query_weight.size() != 0 || w.output_weight.size() != 0 ||
                         find("projection.query") != nullptr || find("concat") != nullptr;
    if (!options_.heads && !shown && attends) {
      return failure(ErrorKind::value, "missing-option",
                     "the number of heads is not known; say it, or give the weights by head");
    }
    c.heads = options_.heads.value_or(shown.value_or(1));
    const auto width = [&](const Tensor<double>& weight, const char* table) -> std::int64_t {
      if (weight.size() != 0) return weight.extent(1);
      const Given* given = find(table);
      if (given == nullptr || given->tensor->shape().empty()) return 0;
      const Shape& shape = given->tensor->shape();
      // By head: [H, T, D] or [B, H, T, D]
      const bool by_head = shape.size() == 4;
      return by_head ? shape[1] * shape[3] : shape.back();
    };
    const std::int64_t queries = width(w.query_weight, "projection.query");
    const std::int64_t keys = width(w.key_weight, "projection.key");
    const std::int64_t values = width(w.value_weight, "projection.value");
    if (c.heads < 1 || (queries != 0 && queries % c.heads != 0)) {
      return failure(ErrorKind::value, "bad-option", "query has ", queries,
                     " features, which do not divide into ", c.heads, " heads");
    }
    c.head_dim = std::max<std::int64_t>(queries / c.heads, 1);
    c.kv_heads = options_.kv_heads.value_or(keys == 0 ? c.heads : keys / c.head_dim);
    if (c.kv_heads < 1 || c.heads % c.kv_heads != 0 ||
        (keys != 0 && keys != c.kv_heads * c.head_dim)) {
      return failure(ErrorKind::value, "bad-option", "key has ", keys, " features for ", c.kv_heads,
                     " key/value heads of ", c.head_dim, " features, and ", c.heads,
                     " query heads");
    }
    if (values % c.kv_heads != 0) {
      return failure(ErrorKind::value, "bad-option", "value has ", values,
                     " features, which do not divide into ", c.kv_heads, " heads");
    }
    c.value_dim = values == 0 ? c.head_dim : values / c.kv_heads;
    if (c.kv_heads != c.heads) say("there are ", c.kv_heads, " key/value heads");
    const std::int64_t up = width(w.up_weight, "ffn.up");
    const std::int64_t down = w.down_weight.size() != 0 ? w.down_weight.extent(0) : 0;
    c.ffn_dim = std::max<std::int64_t>({up, down, 1});
    return {};
  }

  Result<void> settle() {
    const BlockConfig& c = out_.dump.config;
    block::TablesShown tables;
    tables.gate = find("ffn.gate") != nullptr || find("ffn.gated") != nullptr;
    tables.rope = find("rope.query") != nullptr || find("rope.key") != nullptr;
    tables.gate_up = find("gate_up_weight") != nullptr;
    tables.qkv = find("qkv_weight") != nullptr;
    if (const Given* given = find("projection.qkv")) {
      tables.packed = block::order_shown(given->tensor->shape(), c.heads, c.head_dim);
    }
    return block::settle(out_.dump, options_, tables, {assumed_, out_.said});
  }

  Result<Tensor<double>> table(BlockStage stage, const Given& given, std::int64_t rows) {
    using S = BlockStage;
    auto values = given.tensor->to_f64(given.name);
    if (!values) return values;
    const BlockConfig& c = out_.dump.config;
    const auto [expected, width] = block::shape_of(stage, c, rows, out_.dump.sequences);
    const bool split = stage == S::query || stage == S::key || stage == S::value ||
                       stage == S::rope_query || stage == S::rope_key;
    const std::int64_t H = stage == S::query || stage == S::rope_query ? c.heads : c.kv_heads;
    const std::int64_t T = rows / std::max<std::int64_t>(out_.dump.sequences, 1);
    const std::size_t rank = values->rank();
    if (split && rank >= 3 && values->extent(rank - 3) == H && values->extent(rank - 2) == T &&
        values->shape().back() == width / H) {
      if (H == T && rank == 4) say(given.name, " is taken for [B, H, T, D]");
      return block::beside(*values, H);
    }
    if (static_cast<std::int64_t>(values->size()) != expected * width) {
      return failure(ErrorKind::shape, "shape-mismatch", given.name, " must have ", expected, " × ",
                     width, " numbers as ", name_of(stage), "; it has shape ",
                     to_string(values->shape()));
    }
    return std::move(*values).reshaped({expected, width});
  }

  /// A table that holds query, key and value becomes three.
  Result<void> cut_packed_table(std::int64_t rows, DType& coarsest) {
    using S = BlockStage;
    const Given* given = find("projection.qkv");
    if (given == nullptr) return {};
    BlockDump& dump = out_.dump;
    const BlockConfig& c = dump.config;
    const std::pair<S, std::int64_t> parts[] = {{S::query, c.heads * c.head_dim},
                                                {S::key, c.kv_heads * c.head_dim},
                                                {S::value, c.kv_heads * c.value_dim}};
    const std::int64_t width = parts[0].second + parts[1].second + parts[2].second;
    const Shape& shape = given->tensor->shape();
    const bool flat = !shape.empty() && shape.back() == width;
    const std::optional<PackedOrder> shown = block::order_shown(shape, c.heads, c.head_dim);
    if ((!flat && !shown) || static_cast<std::int64_t>(given->tensor->size()) != rows * width) {
      say(given->name, " is not used: query, key and value side by side would be ",
          to_string(Shape{rows, width}), ", and it has shape ", to_string(shape),
          "; if it is a weight: --name qkv_weight=", given->name);
      return {};
    }
    auto values = given->tensor->to_f64(given->name);
    if (!values) return values.failure();
    const Tensor<double> table = std::move(*values).reshaped({rows, width});
    const DType dtype = given->tensor->dtype();
    if (size_of(dtype) < size_of(coarsest)) coarsest = dtype;
    // A shape that shows an order shows how the program reads it; else it is as the claim has it.
    const PackedOrder order = shown.value_or(dump.packed);
    dump.packed_table = !shown && c.heads == c.kv_heads && c.head_dim == c.value_dim;
    std::int64_t first = 0;
    for (int n = 0; n < 3; ++n) {
      const auto& [stage, count] = parts[n];
      if (dump.stages.count(stage) != 0) {
        return failure(ErrorKind::value, "duplicate-name", given->name, " and ",
                       dump.stages.at(stage).name, " both hold ", name_of(stage),
                       "; say which one is meant");
      }
      dump.stages[stage] = {order == PackedOrder::blocked
                                ? block::columns_of(table, first, count)
                                : block::packed_part(table, n, order, c.heads),
                            sentence(given->name, " (", name_of(stage), ")"), dtype};
      first += count;
    }
    const char* const axes = order == PackedOrder::blocked   ? " one after another"
                             : order == PackedOrder::by_head ? " head by head, [H, 3, D]"
                                                             : " feature by feature, [H, D, 3]";
    if (shown) {
      say(given->name, " holds query, key and value", axes, ": its shape shows it");
    } else if (!options_.packing) {
      assume(given->name, " holds query, key and value", axes, "; --packing says it");
    }
    return {};
  }

  Result<void> read_tables() {
    BlockDump& dump = out_.dump;
    std::int64_t rows = 0;
    for (const char* meaning : {"x", "output", "norm1", "residual1", "norm2", "ffn.up", "ffn.down",
                                "residual2", "concat", "output_projection"}) {
      const Given* given = find(meaning);
      if (given == nullptr || given->tensor->shape().size() < 2) continue;
      const Shape& shape = given->tensor->shape();
      rows = static_cast<std::int64_t>(given->tensor->size()) /
             std::max<std::int64_t>(shape.back(), 1);
      dump.sequences = shape.size() == 3 ? shape[0] : 1;
      break;
    }
    if (rows == 0) {
      return failure(ErrorKind::value, "missing-tensor",
                     "there are no rows: give x, or a table of the block");
    }
    if (const Given* x = find("x")) {
      auto values = x->tensor->to_f64(x->name);
      if (!values) return values.failure();
      if (static_cast<std::int64_t>(values->size()) != rows * dump.config.model_dim) {
        return failure(ErrorKind::shape, "shape-mismatch", x->name, " must have ", rows, " × ",
                       dump.config.model_dim, " numbers; it has shape ",
                       to_string(values->shape()));
      }
      dump.x = std::move(*values).reshaped({rows, dump.config.model_dim});
    }
    DType coarsest = DType::f64;
    for (int n = 0; n < block_stages; ++n) {
      const auto stage = static_cast<BlockStage>(n);
      const Given* given = find(std::string(name_of(stage)));
      if (given == nullptr) continue;
      auto values = table(stage, *given, rows);
      if (!values) return values.failure();
      const DType dtype = given->tensor->dtype();
      if (size_of(dtype) < size_of(coarsest)) coarsest = dtype;
      dump.stages[stage] = {std::move(*values), given->name, dtype};
    }
    if (auto ok = cut_packed_table(rows, coarsest); !ok) return ok;
    dump.precision = options_.precision.value_or(coarsest == DType::f64    ? Precision::f64
                                                 : coarsest == DType::f16  ? Precision::f16
                                                 : coarsest == DType::bf16 ? Precision::bf16
                                                                           : Precision::f32);
    if (!options_.precision) {
      say("arithmetic is taken to be ", name_of(dump.precision), "; --precision says it");
    }
    return {};
  }

  const io::NamedTensors& tensors_;
  const BlockFileOptions& options_;
  GivenTensors given_{};
  std::map<std::string, Tensor<double>> owned_{};
  std::vector<std::string> assumed_{};
  std::string taken_{};
  WeightOrder order_ = WeightOrder::input_output;
  BlockFile out_{};
};

}  // namespace

Result<BlockFile> read_block(const io::NamedTensors& tensors, const BlockFileOptions& options) {
  return Reader(tensors, options).read();
}

}  // namespace attest::check
