// SPDX-License-Identifier: MIT
// From files and options to one attention call.
#include "attest/base/conventions.h"
#include "attest/base/text.h"
#include "attest/lab/positions.h"
#include "frontends/cli/case_lists.h"
#include "frontends/cli/case_mask.h"
#include "frontends/cli/case_options.h"
#include "frontends/cli/case_sources.h"

namespace attest::cli {
namespace {

Failure bad(std::string id, std::string message) {
  return {ErrorKind::value, std::move(id), "[input] " + std::move(message)};
}

/// A mask or bias of rank 0 to 4, with leading axes of 1 put in front.
template <class T>
Result<Tensor<T>> rank_four(Tensor<T> tensor, std::string_view name, const Shape& call) {
  Shape shape = tensor.shape();
  if (shape.size() > 4) {
    return bad("bad-rank",
               sentence(name, " has shape ", to_string(shape), "; rank 4 at most is expected"));
  }
  shape.insert(shape.begin(), 4 - shape.size(), 1);
  for (std::size_t axis = 0; axis < 4; ++axis) {
    if (shape[axis] == 1 || shape[axis] == call[axis]) continue;
    const bool by_batch = tensor.extent(0) == call[0] && tensor.shape().back() == call[3];
    std::string_view instead;
    if (by_batch && tensor.rank() == 2) {
      instead = ", read as [T, S]: if it is [B, S], store it as [B, 1, 1, S]";
    } else if (by_batch && tensor.rank() == 3) {
      instead = ", read as [H, T, S]: if it is [B, T, S], store it as [B, 1, T, S]";
    }
    return Failure{ErrorKind::shape, "shape-mismatch",
                   sentence("[input] ", name, " must broadcast to [B, H, T, S] = ", to_string(call),
                            "; it has shape ", to_string(tensor.shape()), instead)};
  }
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
         {&Loader::read_tensors, &Loader::read_mask, &Loader::read_lists, &Loader::place_mask,
          &Loader::choose_dropout, &Loader::choose_options}) {
      if (auto ok = (this->*step)(); !ok) return ok.failure();
    }
    out_.unread = sources_.unread();
    out_.remarks = sources_.remarks();
    return std::move(out_);
  }

 private:
  Result<void> read_tensors() {
    const auto layout = layout_of(o_.layout, convention_);
    if (!layout) return layout.failure();
    out_.given.layout = *layout;
    const std::tuple<const char*, PlacedTensor*, std::int64_t> roles[] = {
        {"query", &out_.query, o_.heads.value_or(0)},
        {"key", &out_.key, o_.kv_heads.value_or(o_.heads.value_or(0))},
        {"value", &out_.value, o_.kv_heads.value_or(o_.heads.value_or(0))}};
    for (const auto& [role, target, heads] : roles) {
      auto found = sources_.find(role, role);
      if (!found) return found.failure();
      if (!*found) {
        return bad("missing-tensor", sentence(role, " is missing; there is ", sources_.listing(),
                                              ": name it with --", role));
      }
      if (std::string_view(role) == "query") {
        out_.given.rank = (*found)->shape().size();
        if (auto ok = settle_layout(); !ok) return ok;
      }
      auto tensor = placed(**std::move(found), out_.given.layout, heads, role);
      if (!tensor) return tensor.failure();
      *target = *std::move(tensor);
    }
    return {};
  }

  /// Rank 2 is one head, wherever heads would stand; only a packed row can hold several, and only for
  /// a packed row does a head count mean anything.
  Result<void> settle_layout() {
    const bool packed =
        out_.given.layout == FileLayout::packed || out_.given.layout == FileLayout::lbe;
    if (out_.given.rank == 2 && packed && o_.heads) out_.given.layout = FileLayout::packed;
    if (out_.given.rank == 2 && !(packed && o_.heads)) out_.given.layout = FileLayout::bhtd;
    const bool counts = packed && o_.heads;
    if (counts || (!o_.heads && !o_.kv_heads)) return {};
    return bad("heads-not-used",
               "--heads and --kv-heads belong to --layout packed and lbe (and --kv-heads "
               "needs --heads); elsewhere the tensors say how many heads there are");
  }

  /// [B, H, T, S]
  [[nodiscard]] Shape scores() const {
    const auto& query = out_.query.extents;
    return {query[0], query[1], query[2], out_.key.extents[2]};
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
        auto shaped = rank_four(*std::move(converted->visible), "mask", scores());
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
    auto shaped = rank_four(std::move(bias), name, scores());
    if (!shaped) return shaped.failure();
    out_.call.bias = *std::move(shaped);
    return {};
  }

  Result<void> read_lists() {
    auto sink = list_of(sources_, o_, {"sink", "sink-tensor"}, o_.sink);
    if (!sink) return sink.failure();
    out_.call.sink = *std::move(sink);
    auto slopes = list_of(sources_, o_, {"alibi_slopes", "alibi-slopes-tensor"}, o_.alibi_slopes);
    if (!slopes) return slopes.failure();
    out_.call.alibi_slopes = *std::move(slopes);
    if (!o_.alibi) return {};
    if (!out_.call.alibi_slopes.empty()) {
      return bad("two-sources", "--alibi takes the published slopes, and others are given: choose");
    }
    out_.call.alibi_slopes = lab::alibi_slopes(out_.query.extents[1]);
    return {};
  }

  Result<void> place_mask() {
    const MaskSources from{o_, convention_, sources_, out_.query.extents[2], out_.key.extents[2]};
    for (const auto place : {place_lengths, place_documents, place_causal, place_window}) {
      if (auto ok = place(from, out_.call.mask); !ok) return ok;
    }
    return {};
  }

  Result<void> choose_dropout() {
    if (o_.seed && !o_.dropout) return bad("not-used", "--seed draws what --dropout leaves out");
    out_.call.dropout.rate = o_.dropout.value_or(0);
    out_.call.dropout.seed = o_.seed.value_or(0);
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
        sources_.remark("a query that sees no key is an error: " +
                        in_words_of_options(policy.failure()).message);
    }
    if (convention_ && !o_.scale) {
      const auto scale = scale_of(*convention_);
      if (scale) {
        out_.call.scale = *scale;
      } else if (convention_->scale == DefaultScale::must_be_given) {
        return scale.failure();
      } else {
        sources_.remark("dividing by sqrt(D): " + in_words_of_options(scale.failure()).message);
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

Result<void> widen(LoadedCase& loaded) {
  const std::tuple<const char*, const PlacedTensor*, Tensor<double>*> roles[] = {
      {"query", &loaded.query, &loaded.call.query},
      {"key", &loaded.key, &loaded.call.key},
      {"value", &loaded.value, &loaded.call.value}};
  for (const auto& [role, from, to] : roles) {
    auto numbers = widened(*from, role);
    if (!numbers) return numbers.failure();
    *to = *std::move(numbers);
  }
  return {};
}

bool only_causal(const CaseOptions& o) {
  return o.window.empty() && o.query_offset.empty() && o.key_lengths.empty() &&
         o.query_starts.empty() && o.key_starts.empty() && o.query_documents.empty() &&
         o.key_documents.empty() && !o.dropout && !o.seed && !o.scale && !o.softcap && !o.alibi &&
         o.alibi_slopes.empty() && o.sink.empty() && o.empty_row.empty() && o.layout.empty() &&
         !o.heads && !o.kv_heads && o.convention.empty();
}

}  // namespace attest::cli
