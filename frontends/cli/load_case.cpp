// SPDX-License-Identifier: MIT
// From files and options to one attention call, in the exact tier's terms.
#include <algorithm>
#include <charconv>

#include "attest/base/conventions.h"
#include "attest/base/text.h"
#include "attest/io/tensor_file.h"
#include "attest/lab/positions.h"
#include "frontends/cli/case_options.h"

namespace attest::cli {
namespace {

Failure bad(std::string id, std::string message) {
  return {ErrorKind::value, std::move(id), "[input] " + std::move(message)};
}

/// Finds the tensor of each role: in a file of its own, or in the bundle under its name or one that
/// people commonly give it. Remembers what the bundle holds and nobody asked for.
class Sources {
 public:
  Sources(const CaseOptions& options, io::NamedTensors bundle)
      : options_(options), bundle_(std::move(bundle)) {
    limits_.npz.max_total_bytes = static_cast<std::uint64_t>(options.unpack_limit_gib.value_or(16))
                                  << 30U;
  }
  static Result<Sources> open(const CaseOptions& options) {
    Sources out(options, {});
    if (!options.file.empty()) {
      auto bundle = io::read_tensors(options.file, out.limits_);
      if (!bundle) return bundle.failure();
      out.bundle_ = *std::move(bundle);
    }
    return out;
  }

  Result<std::optional<AnyTensor>> find(const std::string& role, const std::string& flag) {
    if (const auto named = options_.names.find(flag); named != options_.names.end()) {
      if (const AnyTensor* found = take(named->second)) return std::optional(*found);
      auto file = io::read_tensors(named->second, limits_);
      if (!file && !options_.file.empty()) {
        return bad("no-such-tensor",
                   sentence("--", flag, " ", named->second, ": no tensor of ", options_.file,
                            " has that name, and as a file: ", file.failure().message));
      }
      if (!file) return file.failure();
      if (file->tensors.size() != 1) {
        return bad("not-one-tensor", sentence("--", flag, " ", named->second, " holds ",
                                              file->tensors.size(), " tensors; one is expected"));
      }
      return std::optional(file->tensors[0].second);
    }
    for (const std::string& name : aliases(role)) {
      if (const AnyTensor* found = take(name)) {
        if (name != role) remarks_.push_back(sentence("reading '", name, "' as ", role));
        return std::optional(*found);
      }
    }
    return std::optional<AnyTensor>();
  }

  void remark(std::string text) { remarks_.push_back(std::move(text)); }

  std::vector<std::string> remarks() {
    std::string rest;
    for (const auto& [name, tensor] : bundle_.tensors) {
      if (std::ranges::find(taken_, name) == taken_.end()) rest += " " + name;
    }
    if (!rest.empty()) remarks_.push_back("not used:" + rest);
    return std::move(remarks_);
  }
  [[nodiscard]] std::string listing() const {
    std::string out;
    for (const auto& [name, tensor] : bundle_.tensors) {
      out += sentence(out.empty() ? "" : ", ", name, " ", to_string(tensor.shape()));
    }
    return out.empty() ? "nothing" : out;
  }

 private:
  const AnyTensor* take(const std::string& name) {
    const AnyTensor* found = bundle_.find(name);
    if (found != nullptr) taken_.push_back(name);
    return found;
  }
  static std::vector<std::string> aliases(const std::string& role) {
    std::vector<std::string> names{role, "in." + role};
    if (role == "query" || role == "key" || role == "value") {
      const std::string letter(1, role[0]);
      const std::string capital(1, static_cast<char>(role[0] - 'a' + 'A'));
      names.insert(names.end(), {letter, capital, "in." + letter, "in." + capital});
    }
    if (role == "mask")
      names.insert(names.end(), {"allow", "attn_mask", "in.attn_mask", "in.allow"});
    return names;
  }

  const CaseOptions& options_;
  io::TensorFileOptions limits_;
  io::NamedTensors bundle_;
  std::vector<std::string> taken_;
  std::vector<std::string> remarks_;
};

/// The whole-number list "3", "3,", ",0", "2,1" of --window.
Result<std::vector<std::optional<std::int64_t>>> window_sides(const std::string& text) {
  std::vector<std::optional<std::int64_t>> sides;
  std::size_t begin = 0;
  while (true) {
    const std::size_t comma = std::min(text.find(',', begin), text.size());
    const std::string part = text.substr(begin, comma - begin);
    std::int64_t number = 0;
    const char* end = part.data() + part.size();
    const auto [rest, error] = std::from_chars(part.data(), end, number);
    if (part.empty()) {
      sides.push_back(std::nullopt);
    } else if (error == std::errc{} && rest == end) {
      sides.push_back(number);
    } else {
      return bad("bad-window", sentence("--window wants LEFT,RIGHT; found '", text, "'"));
    }
    if (comma == text.size()) return sides;
    begin = comma + 1;
  }
}

Result<FileLayout> layout_of(const CaseOptions& o, const std::optional<Convention>& convention) {
  if (o.layout == "bhtd") return FileLayout::bhtd;
  if (o.layout == "bthd") return FileLayout::bthd;
  if (o.layout == "packed") return FileLayout::packed;
  if (o.layout == "lbe") return FileLayout::lbe;
  if (!o.layout.empty()) {
    return bad("bad-layout",
               sentence("--layout is bhtd, bthd, packed or lbe; found '", o.layout, "'"));
  }
  if (!convention) return FileLayout::bhtd;
  switch (convention->layout) {
    case Layout::bthd:
      return FileLayout::bthd;
    case Layout::bt_hd:
      return FileLayout::packed;
    case Layout::lbe:
      return FileLayout::lbe;
    case Layout::bhtd:
    case Layout::bhtd_to_bthd:
    case Layout::not_stated:
      return FileLayout::bhtd;
  }
  return FileLayout::bhtd;
}

/// Copies a tensor of any accepted rank and layout to [B, H, T, D].
Result<Tensor<double>> canonical(const Tensor<double>& from, FileLayout layout, std::int64_t heads,
                                 std::string_view name) {
  const Shape& s = from.shape();
  const bool packed = layout == FileLayout::packed || layout == FileLayout::lbe;
  const std::size_t least = layout == FileLayout::bthd || layout == FileLayout::lbe ? 3 : 2;
  const std::size_t most = packed ? 3 : 4;
  if (s.size() < least || s.size() > most) {
    return bad("bad-rank", sentence(name, " has shape ", to_string(s), "; with this layout rank ",
                                    least, " to ", most, " is expected"));
  }
  if (packed && (heads < 1 || s.back() % heads != 0)) {
    return bad("bad-heads", sentence(name, " has ", s.back(), " features, which ", heads,
                                     " heads cannot share; say --heads and --kv-heads"));
  }
  // Extents and strides of B, H, T, D in the given memory.
  const auto steps = row_major_strides(s);
  const std::size_t last = s.size() - 1;
  std::array<std::int64_t, 4> extents{1, 1, 1, s[last]};
  std::array<std::int64_t, 4> strides{0, 0, 0, 1};
  const auto axis = [&](std::size_t to, std::size_t from_axis) {
    extents[to] = s[from_axis];
    strides[to] = steps[from_axis];
  };
  if (packed) {
    extents[1] = heads;
    extents[3] = strides[1] = s[last] / heads;
    if (layout == FileLayout::lbe) {
      axis(2, 0);
      axis(0, 1);
    } else {
      axis(2, last - 1);
      if (last == 2) axis(0, 0);
    }
  } else {
    const bool time_first = layout == FileLayout::bthd;
    axis(time_first ? 1 : 2, last - 1);
    if (last >= 2) axis(time_first ? 2 : 1, last - 2);
    if (last >= 3) axis(0, 0);
  }
  const View<const double, 4> view(from.data(), extents, strides);
  Tensor<double> out(Shape(extents.begin(), extents.end()));
  if (out.size() == 0) return out;  // one extent is 0; the others may be anything
  std::size_t n = 0;
  for (std::int64_t b = 0; b < extents[0]; ++b) {
    for (std::int64_t h = 0; h < extents[1]; ++h) {
      for (std::int64_t t = 0; t < extents[2]; ++t) {
        for (std::int64_t d = 0; d < extents[3]; ++d) out.elements()[n++] = view(b, h, t, d);
      }
    }
  }
  return out;
}

/// A mask or bias of rank 0 to 4, with leading axes of 1 put in front.
template <class T>
Result<Tensor<T>> rank_four(Tensor<T> tensor, std::string_view name) {
  Shape shape = tensor.shape();
  if (shape.size() > 4) {
    return bad("bad-rank",
               sentence(name, " has shape ", to_string(shape), "; rank 4 at most is expected"));
  }
  shape.insert(shape.begin(), 4 - shape.size(), 1);
  return std::move(tensor).reshaped(std::move(shape));
}

class Loader {
 public:
  Loader(const CaseOptions& options, Sources sources) : o_(options), sources_(std::move(sources)) {}

  Result<LoadedCase> load() {
    if (!o_.convention.empty()) {
      auto found = find_convention(o_.convention);
      if (!found) return found.failure();
      convention_ = *found;
    }
    for (const auto step :
         {&Loader::read_tensors, &Loader::read_mask, &Loader::read_vectors, &Loader::place_causal,
          &Loader::place_window, &Loader::choose_options}) {
      if (auto ok = (this->*step)(); !ok) return ok.failure();
    }
    out_.remarks = sources_.remarks();
    return std::move(out_);
  }

 private:
  Result<void> read_tensors() {
    const auto layout = layout_of(o_, convention_);
    if (!layout) return layout.failure();
    out_.layout = *layout;
    const std::tuple<const char*, Tensor<double>*, std::int64_t> roles[] = {
        {"query", &out_.call.query, o_.heads.value_or(0)},
        {"key", &out_.call.key, o_.kv_heads.value_or(o_.heads.value_or(0))},
        {"value", &out_.call.value, o_.kv_heads.value_or(o_.heads.value_or(0))}};
    for (const auto& [role, target, heads] : roles) {
      auto found = sources_.find(role, role);
      if (!found) return found.failure();
      if (!*found) {
        return bad("missing-tensor", sentence(role, " is missing; there is ", sources_.listing(),
                                              ": name it with --", role));
      }
      auto numbers = (*found)->to_f64(role);
      if (!numbers) return numbers.failure();
      if (std::string_view(role) == "query") {
        out_.rank = numbers->rank();
        if (auto ok = settle_layout(); !ok) return ok;
      }
      auto shaped = canonical(*numbers, out_.layout, heads, role);
      if (!shaped) return shaped.failure();
      *target = *std::move(shaped);
    }
    return {};
  }

  /// Rank 2 is one head, wherever heads would stand; only a packed row can hold several, and only for
  /// a packed row does a head count mean anything.
  Result<void> settle_layout() {
    const bool packed = out_.layout == FileLayout::packed || out_.layout == FileLayout::lbe;
    if (out_.rank == 2 && packed && o_.heads) out_.layout = FileLayout::packed;
    if (out_.rank == 2 && !(packed && o_.heads)) out_.layout = FileLayout::bhtd;
    const bool counts = packed && o_.heads;
    if (counts || (!o_.heads && !o_.kv_heads)) return {};
    return bad("heads-not-used",
               "--heads and --kv-heads belong to --layout packed and lbe (and --kv-heads "
               "needs --heads); elsewhere the tensors say how many heads there are");
  }

  Result<void> read_mask() {
    auto mask = sources_.find("mask", "mask");
    if (!mask) return mask.failure();
    if (*mask) {
      const auto ours = find_convention("attest");
      if (!ours) return ours.failure();
      auto converted = to_visible(**mask, convention_ ? *convention_ : *ours, "mask");
      if (!converted) return converted.failure();
      if (converted->visible) {
        auto shaped = rank_four(*std::move(converted->visible), "mask");
        if (!shaped) return shaped.failure();
        out_.call.visible = *std::move(shaped);
      } else if (auto ok = add_bias(*std::move(converted->bias), "mask"); !ok) {
        return ok;
      }
    }
    auto bias = sources_.find("bias", "bias");
    if (!bias) return bias.failure();
    if (!*bias) return {};
    auto numbers = (*bias)->to_f64("bias");
    if (!numbers) return numbers.failure();
    return add_bias(*std::move(numbers), "bias");
  }

  Result<void> add_bias(Tensor<double> bias, std::string_view name) {
    if (out_.call.bias) {
      return bad("two-biases",
                 "a floating-point mask and a bias are both added to the scores: give one");
    }
    auto shaped = rank_four(std::move(bias), name);
    if (!shaped) return shaped.failure();
    out_.call.bias = *std::move(shaped);
    return {};
  }

  /// A vector from a tensor of the file, unless the command line has it; never from both silently.
  Result<std::optional<AnyTensor>> vector(const std::string& role, const std::string& flag,
                                          bool given) {
    if (given && o_.names.contains(flag)) {
      return bad("two-sources",
                 sentence("--", flag, " and an option of its own both say ", role, ": give one"));
    }
    auto found = sources_.find(role, flag);
    if (!found || !*found) return found;
    if ((*found)->shape().size() != 1 || (*found)->size() == 0) {
      return bad("bad-rank",
                 sentence(role, " must be a vector; it has shape ", to_string((*found)->shape())));
    }
    if (!given) return found;
    sources_.remark(sentence("the file's ", role, " is overridden by the command line"));
    return std::optional<AnyTensor>();
  }

  Result<void> read_vectors() {
    out_.call.sink = o_.sink;
    out_.call.mask.key_lengths = o_.key_lengths;
    const auto sink = vector("sink", "sink-tensor", !o_.sink.empty());
    if (!sink) return sink.failure();
    if (*sink) {
      auto numbers = (*sink)->to_f64("sink");
      if (!numbers) return numbers.failure();
      out_.call.sink.assign(numbers->elements().begin(), numbers->elements().end());
    }
    const auto lengths = vector("key_lengths", "key-lengths-tensor", !o_.key_lengths.empty());
    if (!lengths) return lengths.failure();
    if (*lengths) {
      if (auto ok = take_lengths(**lengths); !ok) return ok;
    }
    if (o_.alibi) out_.call.alibi_slopes = lab::alibi_slopes(out_.call.query.extent(1));
    return {};
  }

  /// Whole numbers of any type: JSON has no others than 3 and 3.0.
  Result<void> take_lengths(const AnyTensor& lengths) {
    for (std::size_t n = 0; n < lengths.size(); ++n) {
      const double number = lengths.number(n);
      const bool whole = number >= -0x1p53 && number <= 0x1p53 &&
                         static_cast<double>(static_cast<std::int64_t>(number)) == number;
      if (!whole || lengths.dtype() == DType::boolean) {
        return bad("bad-option", sentence("key_lengths[", n, "] must be a whole number; it is ",
                                          number, " (", name_of(lengths.dtype()), ")"));
      }
      out_.call.mask.key_lengths.push_back(static_cast<std::int64_t>(number));
    }
    return {};
  }

  Result<void> place_causal() {
    Mask& mask = out_.call.mask;
    mask.future_hidden = !o_.causal.empty() && o_.causal != "none";
    if (!o_.query_offset.empty()) {
      mask.corner = Corner::at_offset;
      mask.query_offset = o_.query_offset;
      if (!mask.future_hidden && o_.window.empty() && !o_.alibi) {
        sources_.remark("--query-offset changes nothing without --causal, --window or --alibi");
      }
      if (mask.future_hidden && o_.causal != "square") {
        return bad("two-corners", sentence("--causal ", o_.causal,
                                           " and --query-offset both say where "
                                           "query 0 stands: give one"));
      }
      return {};
    }
    if (!mask.future_hidden) return {};
    if (o_.causal == "top-left") {
      mask.corner = Corner::top_left;
    } else if (o_.causal == "bottom-right") {
      mask.corner = Corner::bottom_right;
    } else if (o_.causal == "square") {
      mask.corner = Corner::square;
      if (!convention_) return {};
      const auto corner = corner_of(*convention_, Cache::none);
      if (!corner) return corner.failure();
      mask.corner = *corner;
    } else {
      std::int64_t offset = 0;
      const char* end = o_.causal.data() + o_.causal.size();
      const auto [rest, error] = std::from_chars(o_.causal.data(), end, offset);
      if (error != std::errc{} || rest != end) {
        return bad("bad-corner",
                   sentence("--causal is top-left, bottom-right or a whole number; found '",
                            o_.causal, "'"));
      }
      mask.corner = Corner::at_offset;
      mask.query_offset = {offset};
    }
    return {};
  }

  Result<void> place_window() {
    if (o_.window.empty()) return {};
    const auto sides = window_sides(o_.window);
    if (!sides) return sides.failure();
    if (convention_ && sides->size() == 1 && (*sides)[0]) {
      const auto window = to_window(*(*sides)[0], *convention_);
      if (!window) return window.failure();
      out_.call.mask.window = *window;
      return {};
    }
    if (convention_ && sides->size() == 2 && (*sides)[0] && (*sides)[1]) {
      const auto window = to_window(*(*sides)[0], *(*sides)[1], *convention_);
      if (!window) return window.failure();
      out_.call.mask.window = *window;
      return {};
    }
    // An open side has no count to convert, but a framework without windows has no open ones either.
    if (convention_ && sides->size() == 2) {
      if (const auto any = to_window(1, 1, *convention_); !any) return any.failure();
    }
    if (sides->size() != 2) {
      return bad("bad-window",
                 sentence("--window wants LEFT,RIGHT (keys beside the query's own); found '",
                          o_.window, "'; one number alone needs a --convention to count it"));
    }
    out_.call.mask.window = {(*sides)[0], (*sides)[1]};
    return {};
  }

  Result<void> choose_options() {
    out_.call.scale = o_.scale;
    out_.call.softcap = o_.softcap;
    if (o_.empty_row == "zero") {
      out_.call.empty_row = EmptyRow::zero;
    } else if (o_.empty_row == "nan") {
      out_.call.empty_row = EmptyRow::nan;
    } else if (!o_.empty_row.empty() && o_.empty_row != "error") {
      return bad("bad-option",
                 sentence("--empty-row is error, zero or nan; found '", o_.empty_row, "'"));
    } else if (convention_ && o_.empty_row.empty()) {
      // A framework that makes up a distribution there has no equal here: such a row stays an error.
      const auto policy = empty_row_of(*convention_);
      if (policy) out_.call.empty_row = *policy;
      if (!policy)
        sources_.remark("a query that sees no key is an error: " + policy.failure().message);
    }
    if (convention_ && !o_.scale) {
      const auto scale = scale_of(*convention_);
      if (scale) {
        out_.call.scale = *scale;
      } else if (convention_->scale == DefaultScale::must_be_given) {
        return scale.failure();
      } else {
        sources_.remark("dividing by sqrt(D): " + scale.failure().message);
      }
    }
    if (convention_ && convention_->causal_and_mask == CausalAndMask::refused &&
        out_.call.mask.future_hidden && (out_.call.visible || out_.call.bias)) {
      sources_.remark(sentence(convention_->name,
                               " itself refuses a causal flag beside a mask; here "
                               "both apply"));
    }
    return {};
  }

  const CaseOptions& o_;
  Sources sources_;
  std::optional<Convention> convention_;
  LoadedCase out_;
};

}  // namespace

Result<LoadedCase> load_case(const CaseOptions& options) {
  auto sources = Sources::open(options);
  if (!sources) return sources.failure();
  return Loader(options, *std::move(sources)).load();
}

Result<LoadedCase> load_case(const CaseOptions& options, io::NamedTensors bundle) {
  return Loader(options, Sources(options, std::move(bundle))).load();
}

bool only_causal(const CaseOptions& o) {
  return o.window.empty() && o.query_offset.empty() && o.key_lengths.empty() && !o.scale &&
         !o.softcap && !o.alibi && o.sink.empty() && o.empty_row.empty() && o.layout.empty() &&
         !o.heads && !o.kv_heads && o.convention.empty();
}

Tensor<double> as_given(const LoadedCase& loaded, const Tensor<double>& output) {
  const std::int64_t B = output.extent(0);
  const std::int64_t H = output.extent(1);
  const std::int64_t T = output.extent(2);
  const std::int64_t E = output.extent(3);
  // Where element (b, h, t, e) goes, axis by axis, outermost first.
  Shape shape;
  std::array<std::size_t, 4> order{0, 1, 2, 3};
  switch (loaded.layout) {
    case FileLayout::bhtd:
      shape = {B, H, T, E};
      break;
    case FileLayout::bthd:
      order = {0, 2, 1, 3};
      shape = {B, T, H, E};
      break;
    case FileLayout::packed:
      order = {0, 2, 1, 3};
      shape = {B, T, H * E};
      break;
    case FileLayout::lbe:
      order = {2, 0, 1, 3};
      shape = {T, B, H * E};
      break;
  }
  while (shape.size() > loaded.rank) shape.erase(shape.begin());
  Tensor<double> out(shape);
  if (out.size() == 0) return out;
  const std::array<std::int64_t, 4> extents{B, H, T, E};
  std::array<std::int64_t, 4> at{};
  std::size_t n = 0;
  for (at[order[0]] = 0; at[order[0]] < extents[order[0]]; ++at[order[0]]) {
    for (at[order[1]] = 0; at[order[1]] < extents[order[1]]; ++at[order[1]]) {
      for (at[order[2]] = 0; at[order[2]] < extents[order[2]]; ++at[order[2]]) {
        for (at[3] = 0; at[3] < E; ++at[3])
          out.elements()[n++] = output(at[0], at[1], at[2], at[3]);
      }
    }
  }
  return out;
}

Tensor<double> without_missing_axes(const LoadedCase& loaded, Tensor<double> values) {
  Shape shape = values.shape();
  const bool no_heads = loaded.layout == FileLayout::bhtd && loaded.rank == 2;
  const bool no_batch =
      (loaded.layout == FileLayout::packed && loaded.rank == 2) ||
      (loaded.layout != FileLayout::packed && loaded.layout != FileLayout::lbe && loaded.rank == 3);
  shape.erase(shape.begin(), shape.begin() + (no_heads ? 2 : no_batch ? 1 : 0));
  return std::move(values).reshaped(std::move(shape));
}

}  // namespace attest::cli
