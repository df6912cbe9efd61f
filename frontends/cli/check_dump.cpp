// SPDX-License-Identifier: MIT
// From files and options to one dump: the tensors of a call, what it produced, and the claim.
#include "frontends/cli/check_dump.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "attest/base/text.h"
#include "attest/check/diagnose/storage.h"
#include "frontends/cli/case_sources.h"
#include "frontends/cli/check_gradients.h"
#include "frontends/cli/check_layout.h"
#include "frontends/cli/check_metadata.h"
#include "frontends/cli/check_rope.h"
#include "frontends/cli/check_stages.h"
#include "frontends/cli/print.h"

namespace attest::cli {
namespace {

Failure bad(std::string id, std::string message) {
  return {ErrorKind::value, std::move(id), "[check] " + std::move(message)};
}

/// What the call was given, by role; `past_key` and `past_value` may be absent.
constexpr std::array<const char*, 5> input_roles{"query", "key", "value", "past_key", "past_value"};
enum Input : std::size_t { query, key, value, past_key, past_value };

class DumpLoader {
 public:
  DumpLoader(DumpOptions options, Sources sources, std::vector<std::string> remarks)
      : o_(std::move(options)), sources_(std::move(sources)) {
    out_.remarks = std::move(remarks);
  }

  Result<LoadedDump> load() {
    if (!o_.inputs.convention.empty()) {
      auto found = find_convention(o_.inputs.convention);
      if (!found) return found.failure();
      convention_ = *found;
    }
    for (const auto step :
         {&DumpLoader::find_inputs, &DumpLoader::find_stages, &DumpLoader::settle_layout,
          &DumpLoader::place_inputs, &DumpLoader::join_past, &DumpLoader::read_rope_tables,
          &DumpLoader::read_call, &DumpLoader::check_options, &DumpLoader::place_stages,
          &DumpLoader::choose_rope, &DumpLoader::choose_precision, &DumpLoader::place_backward}) {
      if (auto ok = (this->*step)(); !ok) return ok.failure();
    }
    const bool backward_alone = out_.gradients && out_.dump.stages.empty();
    if (!backward_alone) {
      if (auto ok = can_judge(out_.dump, listing_); !ok) return ok.failure();
    }
    out_.claimed = makes_claim(o_);
    out_.precision_said = !o_.precision.empty();
    return std::move(out_);
  }

 private:
  Result<void> find_inputs() {
    listing_ = sources_.listing();
    for (std::size_t n = 0; n < input_roles.size(); ++n) {
      std::string flag = input_roles[n];
      std::ranges::replace(flag, '_', '-');
      auto found = sources_.find(input_roles[n], flag);
      if (!found) return found.failure();
      if (!*found) continue;
      if (auto ok = is_numbers((*found)->dtype(), input_roles[n]); !ok) return ok;
      raw_[n] = **std::move(found);
    }
    if (raw_[query].has_value() != raw_[key].has_value()) {
      return bad("missing-tensor",
                 sentence(raw_[query] ? "key" : "query", " is missing beside ",
                          raw_[query] ? "query" : "key", "; there is ", listing_));
    }
    if (raw_[past_key] && !raw_[key]) {
      return bad("missing-tensor", "past_key stands before key, which is missing");
    }
    if (raw_[past_value] && !raw_[value]) {
      return bad("missing-tensor", "past_value stands before value, which is missing");
    }
    return {};
  }

  static Result<void> is_numbers(DType dtype, std::string_view name) {
    if (is_floating(dtype)) return {};
    return Failure{ErrorKind::type, "bad-dtype",
                   sentence("[check] ", name, " holds ", attest::name_of(dtype),
                            "; floating-point numbers are expected")};
  }

  Result<void> find_stages() {
    auto found = attest::cli::find_stages(sources_, o_, out_.remarks);
    if (!found) return found.failure();
    stages_ = *std::move(found);
    for (const FoundStage& each : stages_) {
      if (auto ok = is_numbers(each.tensor.dtype(), each.name); !ok) return ok;
    }
    if (!raw_[query] && !stages_.empty() && stages_.front().stage >= check::Stage::log_sum_exp) {
      return nothing_follows(listing_);
    }
    auto gradients = find_gradients(sources_);
    if (!gradients) return gradients.failure();
    gradients_ = *std::move(gradients);
    return {};
  }

  static Shape shape_or_none(const std::optional<AnyTensor>& tensor) {
    return tensor ? tensor->shape() : Shape{};
  }

  Result<void> settle_layout() {
    GivenShapes shapes{shape_or_none(raw_[query]), shape_or_none(raw_[key]),
                       shape_or_none(raw_[value])};
    for (const FoundStage& each : stages_) {
      if (each.stage == check::Stage::output) shapes.output = each.tensor.shape();
      if (each.stage < check::Stage::log_sum_exp && shapes.table.empty()) {
        shapes.table = each.tensor.shape();
      }
    }
    if (!o_.inputs.query_starts.empty()) shapes.packed_end = o_.inputs.query_starts.back();
    // --heads alone means packed rows: nothing else has to be told how many there are.
    auto chosen = choose_layout(o_, convention_, shapes);
    if (!chosen) return chosen.failure();
    layout_ = *std::move(chosen);
    out_.packed_heads = layout_.packed_heads;
    if (!layout_.why.empty()) out_.remarks.push_back(layout_.why);
    return {};
  }

  Result<void> place_inputs() {
    for (std::size_t n = 0; n < input_roles.size(); ++n) {
      if (!raw_[n]) continue;
      const bool cached = n == past_key || n == past_value;
      // Caches of packed calls have rank 4 at home: [B, G, P, D].
      const bool apart = cached && raw_[n]->shape().size() == 4;
      const bool time_first = layout_.layout == FileLayout::bthd;
      const FileLayout layout = !apart       ? layout_.layout
                                : time_first ? FileLayout::bthd
                                             : FileLayout::bhtd;
      dtypes_.push_back(raw_[n]->dtype());
      auto placed_there = placed(*std::move(raw_[n]), layout,
                                 n == query ? layout_.heads : layout_.kv_heads, input_roles[n]);
      if (!placed_there) return placed_there.failure();
      auto numbers = widened(*placed_there, input_roles[n]);
      if (!numbers) return numbers.failure();
      if (auto ok = holds_numbers(*numbers, input_roles[n]); !ok) return ok;
      canonical_[n] = *std::move(numbers);
    }
    return {};
  }

  static Result<void> holds_numbers(const Tensor<double>& tensor, std::string_view name) {
    const auto elements = tensor.elements();
    if (elements.empty()) return {};
    if (!std::ranges::all_of(elements, [](double x) { return std::isnan(x); })) return {};
    return bad("no-numbers", sentence(name, " holds nothing but NaN"));
  }

  /// Cached keys and values stand before the new ones.
  Result<void> join_past() {
    for (const auto& [past, fresh, name] :
         {std::tuple{past_key, key, "past_key"}, std::tuple{past_value, value, "past_value"}}) {
      if (!canonical_[past]) continue;
      const Tensor<double>& before = *canonical_[past];
      const Tensor<double>& after = *canonical_[fresh];
      const Shape& a = before.shape();
      const Shape& b = after.shape();
      if (a[0] != b[0] || a[1] != b[1] || a[3] != b[3]) {
        return Failure{ErrorKind::shape, "shape-mismatch",
                       sentence("[check] ", name, " is ", to_string(a), " and ", input_roles[fresh],
                                " ", to_string(b), ": all but the third axis must agree")};
      }
      Tensor<double> joined(Shape{a[0], a[1], a[2] + b[2], a[3]});
      const auto rows = static_cast<std::size_t>(a[0] * a[1]);
      const auto first = static_cast<std::size_t>(a[2] * a[3]);
      const auto second = static_cast<std::size_t>(b[2] * b[3]);
      for (std::size_t row = 0; row < rows; ++row) {
        double* to = joined.data() + row * (first + second);
        std::copy_n(before.data() + row * first, first, to);
        std::copy_n(after.data() + row * second, second, to + first);
      }
      if (past == past_key) past_ = a[2];
      canonical_[fresh] = std::move(joined);
    }
    if (canonical_[past_key].has_value() != canonical_[past_value].has_value() && canonical_[key] &&
        canonical_[value]) {
      return bad("missing-tensor", "past_key and past_value belong together; one is missing");
    }
    for (const Input n : {query, key, value}) {
      if (!canonical_[n] || canonical_[n]->size() != 0) continue;
      return bad("nothing-to-compare",
                 sentence(input_roles[n], " is empty, ", to_string(canonical_[n]->shape()),
                          ": 0 rows compared"));
    }
    if (!o_.past) return {};
    if (canonical_[past_key] && past_ != *o_.past) {
      return bad("two-sources", sentence("--past says that ", *o_.past,
                                         " keys came from a cache, and past_key has ", past_));
    }
    past_ = *o_.past;
    const Tensor<double>* keys = canonical_[key] ? &*canonical_[key] : nullptr;
    if (keys != nullptr && past_ > keys->extent(2)) {
      return bad("bad-option",
                 sentence("--past ", past_, " is more than the ", keys->extent(2), " keys"));
    }
    return {};
  }

  Result<void> read_rope_tables() {
    auto tables = rope_tables_of(sources_, o_);
    if (!tables) return tables.failure();
    rope_tables_ = *std::move(tables);
    return {};
  }

  /// Extents that the call has, from whatever tensors there are.
  Result<lab::AttentionShape> shape_of_dump() const {
    lab::AttentionShape s;
    if (canonical_[query]) {
      const Shape& q = canonical_[query]->shape();
      const Shape& k = canonical_[key]->shape();
      s = {q[0], q[1], k[1], q[2], k[2], q[3], 0};
    } else {
      for (const FoundStage& each : stages_) {
        if (each.stage >= check::Stage::log_sum_exp) continue;
        const Shape& t = each.tensor.shape();
        if (t.size() < 2 || t.size() > 4) {
          return bad("bad-table-shape", sentence(each.name, " has shape ", to_string(t),
                                                 "; [B, H, T, S] is expected"));
        }
        s = {t.size() == 4 ? t[0] : 1,
             t.size() >= 3 ? t[t.size() - 3] : 1,
             0,
             t[t.size() - 2],
             t.back(),
             0,
             0};
        s.G = s.H;
        break;
      }
    }
    if (canonical_[value]) {
      const Shape& v = canonical_[value]->shape();
      s.E = v[3];
      s.G = v[1];
      if (!canonical_[query] && s.B == 1 && v[0] > 1 && s.H % v[0] == 0) {
        s.B = v[0];  // a table [B*H, T, S]
        s.H /= v[0];
      }
    }
    return s;
  }

  /// Everything but query, key and value is read as every command reads it.
  Result<void> read_call() {
    auto shape = shape_of_dump();
    if (!shape) return shape.failure();
    out_.dump.claim.shape = *shape;
    const lab::AttentionShape& s = *shape;
    CaseOptions call = o_.inputs;
    for (const char* role : {"query", "key", "value"}) {
      call.names.erase(role);
      for (const auto& [flag, name] : call.names) {
        if (name != role) continue;
        return bad("two-roles", sentence("--", flag, " ", name, ": ", role,
                                         " is what the call was given under that name"));
      }
    }
    call.layout = "bhtd";
    call.heads.reset();
    call.kv_heads.reset();
    place_after_cache(call);
    io::NamedTensors bundle = sources_.rest();
    // Tensors without elements say how many queries and keys there are.
    bundle.add("query", Tensor<double>(Shape{s.B, s.H, s.T, 0}));
    bundle.add("key", Tensor<double>(Shape{s.B, std::max<std::int64_t>(s.G, 1), s.S, 0}));
    bundle.add("value", Tensor<double>(Shape{s.B, std::max<std::int64_t>(s.G, 1), s.S, 0}));
    for (std::string& remark : sources_.remarks()) out_.remarks.push_back(std::move(remark));
    auto loaded = load_case(call, std::move(bundle));
    if (!loaded) return loaded.failure();
    for (std::string& remark : loaded->remarks) out_.remarks.push_back(std::move(remark));
    out_.unread = std::move(loaded->unread);
    check::Claim& claim = out_.dump.claim;
    claim.call = std::move(loaded->call);
    if (canonical_[query]) {
      claim.call.query = *std::move(canonical_[query]);
      claim.call.key = *std::move(canonical_[key]);
    }
    if (canonical_[value]) claim.call.value = *std::move(canonical_[value]);
    claim.past = past_;
    out_.boolean_mask = claim.call.visible.has_value();
    return {};
  }

  /// Here, for not every way to a verdict meets the exact tier, which would refuse them.
  Result<void> check_options() { return check::check_call(out_.dump.claim); }

  /// A bare --causal with cached keys needs no corner: query 0 stands behind them, unless the
  /// framework's flag knows nothing of caches.
  void place_after_cache(CaseOptions& call) {
    if (past_ == 0 || call.causal != "square" || !call.query_offset.empty()) return;
    if (convention_ && convention_->causal != CausalCorner::by_cache_offset) return;
    call.query_offset = {past_};
    out_.remarks.push_back(sentence("query 0 stands behind the ", past_, " cached keys"));
  }

  Result<void> place_stages() {
    const lab::AttentionShape& s = out_.dump.claim.shape;
    for (FoundStage& each : stages_) {
      const DType dtype = each.tensor.dtype();
      auto numbers = each.tensor.to_f64(each.name);
      if (!numbers) return numbers.failure();
      each.tensor = AnyTensor();
      Result<Tensor<double>> placed_there = Tensor<double>();
      if (each.stage == check::Stage::output) {
        if (!out_.dump.claim.has_value()) {
          return bad("missing-tensor", sentence(each.name,
                                                " cannot be judged without value; there "
                                                "is ",
                                                listing_));
        }
        OutputRequest request{each.name, {s.B, s.H, s.T, s.E}, output_layout(), o_.output_layout};
        placed_there = arranged(*numbers, request, out_.remarks);
      } else {
        lab::AttentionShape of_table = s;
        if (each.stage == check::Stage::log_sum_exp) of_table.S = 0;
        placed_there = table_of(*std::move(numbers), each.name, of_table);
      }
      if (!placed_there) return placed_there.failure();
      dtypes_.push_back(dtype);
      out_.dump.stages.push_back(
          {each.stage, *std::move(placed_there), dtype, one_line(each.name)});
    }
    return {};
  }

  Result<void> place_backward() {
    auto gradients = place_gradients(std::move(gradients_), out_.dump.claim, layout_, out_.remarks);
    if (!gradients) return gradients.failure();
    out_.gradients = *std::move(gradients);
    if (out_.gradients && o_.precision.empty()) narrow_gradients(*out_.gradients);
    return {};
  }

  /// As diagnose does it with the tables of the forward pass: f64 that holds f32 was f32.
  void narrow_gradients(check::GradientDump& dump) {
    if (dump.claim.precision != check::Precision::f64 || dump.gradients.empty()) return;
    check::Dump alike;
    alike.claim.precision = dump.claim.precision;
    for (const auto& each : dump.gradients) {
      alike.stages = {{check::Stage::output, each.values, each.dtype, each.name}};
      const auto narrower = check::narrower_storage(alike);
      if (!narrower || narrower->dump.claim.precision == check::Precision::f64) return;
    }
    dump.claim.precision = check::Precision::f32;
    for (auto& each : dump.gradients) each.dtype = DType::f32;
    out_.remarks.emplace_back("every number of the gradients fits f32: judged as computed in it");
  }

  [[nodiscard]] FileLayout output_layout() const {
    const bool other_way = convention_ && convention_->layout == Layout::bhtd_to_bthd;
    return other_way && layout_.layout == FileLayout::bhtd ? FileLayout::bthd : layout_.layout;
  }

  Result<void> choose_rope() {
    return attest::cli::choose_rope(o_, rope_tables_, out_.dump.claim, out_.remarks);
  }

  /// The coarsest of the types that the dump has: no result can be better than that.
  Result<void> choose_precision() {
    using check::Precision;
    Precision& precision = out_.dump.claim.precision;
    const std::pair<const char*, Precision> words[] = {{"f64", Precision::f64},
                                                       {"f32", Precision::f32},
                                                       {"tf32", Precision::tf32},
                                                       {"f16", Precision::f16},
                                                       {"bf16", Precision::bf16}};
    for (const auto& [word, of_word] : words) {
      if (o_.precision == word) precision = of_word;
    }
    if (!o_.precision.empty()) return {};
    precision = Precision::f64;
    const auto of = [](DType dtype) {
      return dtype == DType::f32    ? Precision::f32
             : dtype == DType::f16  ? Precision::f16
             : dtype == DType::bf16 ? Precision::bf16
                                    : Precision::f64;
    };
    for (const DType dtype : dtypes_) {
      if (check::unit_of(of(dtype)) > check::unit_of(precision)) precision = of(dtype);
    }
    return {};
  }

  DumpOptions o_;
  Sources sources_;
  std::optional<Convention> convention_;
  std::string listing_;
  std::array<std::optional<AnyTensor>, input_roles.size()> raw_;
  std::array<std::optional<Tensor<double>>, input_roles.size()> canonical_;
  std::vector<FoundStage> stages_;
  std::vector<DType> dtypes_;
  ChosenLayout layout_;
  RopeTables rope_tables_;
  FoundGradients gradients_;
  std::int64_t past_ = 0;
  LoadedDump out_;
};

}  // namespace

Result<void> keep_prefixed(io::NamedTensors& bundle, const std::string& prefix) {
  io::NamedTensors out;
  out.metadata = std::move(bundle.metadata);
  for (auto& [name, tensor] : bundle.tensors) {
    if (name.starts_with(prefix)) out.add(name.substr(prefix.size()), std::move(tensor));
  }
  if (out.tensors.empty()) {
    return bad("no-such-tensor", sentence("no tensor's name begins with --prefix ", prefix));
  }
  bundle = std::move(out);
  return {};
}

namespace {

/// What a file that lacks the tensors of a call may be instead.
std::string what_else(const io::NamedTensors& bundle) {
  if (const std::string prefix = prefix_of_a_call(bundle); !prefix.empty()) {
    return sentence("; --prefix ", prefix, " takes the call whose names begin so");
  }
  const auto weights = std::ranges::count_if(bundle.tensors, [](const auto& entry) {
    return entry.first.ends_with(".weight") || entry.first.ends_with("_weight");
  });
  return weights < 2 ? "" : "; if this is a whole transformer block: --block";
}

}  // namespace

Result<LoadedDump> load_dump(const DumpOptions& given) {
  DumpOptions options = given;
  io::NamedTensors bundle;
  std::vector<std::string> remarks;
  if (!options.inputs.file.empty()) {
    io::TensorFileOptions limits;
    limits.npz.max_total_bytes =
        static_cast<std::uint64_t>(options.inputs.unpack_limit_gib.value_or(16)) << 30U;
    auto file = io::read_tensors(options.inputs.file, limits);
    if (!file) return file.failure();
    bundle = *std::move(file);
  } else if (options.inputs.names.empty()) {
    return bad("missing-tensor",
               "there is no file: attest check FILE, or --query, --key, --value and --output");
  }
  if (!options.prefix.empty()) {
    if (auto ok = keep_prefixed(bundle, options.prefix); !ok) return ok.failure();
  }
  const bool of_probe = carries_claim(bundle);
  if (auto ok = read_claim(bundle, options, remarks); !ok) return ok.failure();
  const std::string hint = options.prefix.empty() ? what_else(bundle) : "";
  Sources sources(options.inputs, std::move(bundle));
  auto loaded = DumpLoader(options, std::move(sources), std::move(remarks)).load();
  if (loaded) loaded->of_probe = of_probe;
  if (loaded || loaded.failure().id != "missing-tensor") return loaded;
  Failure failure = loaded.failure();
  failure.message += hint;
  return failure;
}

}  // namespace attest::cli
