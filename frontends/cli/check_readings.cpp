// SPDX-License-Identifier: MIT
// A dump without a claim: which of the usual readings of its tensors give its numbers.
#include "frontends/cli/check_readings.h"

#include <fmt/format.h>

#include <algorithm>

#include "attest/base/text.h"
#include "attest/io/json.h"
#include "frontends/cli/check_gradients.h"
#include "frontends/cli/command.h"
#include "frontends/cli/print.h"

namespace attest::cli {
namespace {

/// What a reading changes of the call; everything else is as the tensors say.
struct Change {
  std::string label, flags;
  Mask mask;
  bool inverted = false;
  EmptyRow empty_row = EmptyRow::error;
};

/// Whether the two corners of a causal mask are two different places.
bool corners_differ(const check::Claim& claim) {
  const Mask& mask = claim.call.mask;
  if (!mask.packing.query_starts.empty()) {
    return mask.packing.query_starts != mask.packing.key_starts;
  }
  return claim.shape.T != claim.shape.S || !mask.key_lengths.empty();
}

std::vector<Change> masks_of(const check::Claim& claim) {
  const Mask& given = claim.call.mask;
  std::vector<Change> out{
      {"every query sees every key that the tensors let it see", "--causal none", given}};
  const auto causal = [&](std::string label, std::string flags, const Mask& corner) {
    Mask mask = given;
    mask.future_hidden = true;
    mask.corner = corner.corner;
    mask.query_offset = corner.query_offset;
    out.push_back({std::move(label), std::move(flags), std::move(mask)});
  };
  const std::int64_t behind = claim.shape.S - claim.shape.T;
  if (!corners_differ(claim)) {
    const bool square = claim.shape.T == claim.shape.S;
    causal("causal", square ? "--causal" : "--causal top-left", Mask::causal_top_left());
    return out;
  }
  causal("causal, the first query at the first key", "--causal top-left", Mask::causal_top_left());
  causal("causal, the last query at the last key", "--causal bottom-right",
         Mask::causal_bottom_right());
  if (claim.past > 0 && (claim.past != behind || !given.key_lengths.empty())) {
    causal("causal, the first query behind the cached keys", sentence("--causal ", claim.past),
           Mask::causal_at(claim.past));
  }
  return out;
}

/// Every reading, with both polarities of a boolean mask.
std::vector<Change> changes_of(const LoadedDump& loaded) {
  std::vector<Change> out = masks_of(loaded.dump.claim);
  if (!loaded.boolean_mask) return out;
  const std::size_t count = out.size();
  for (std::size_t n = 0; n < count; ++n) {
    Change inverted = out[n];
    out[n].label += "; mask: true = may see";
    inverted.label += "; mask: true = hidden";
    inverted.flags += " --convention pytorch-mha";
    inverted.inverted = true;
    out.push_back(std::move(inverted));
  }
  return out;
}

void invert(Tensor<bool>& visible) {
  for (bool& each : visible.elements()) each = !each;
}

/// Up to so many scores a search for single mistakes takes a few seconds at most.
constexpr double most_scores = 1 << 24;

class Comparison {
 public:
  Comparison(LoadedDump& loaded, const std::function<void(std::string_view, double)>& progress)
      : loaded_(loaded), progress_(progress) {}

  Result<std::vector<Reading>> run() {
    const std::vector<Change> changes = changes_of(loaded_);
    for (std::size_t n = 0; n < changes.size(); ++n) {
      part_ = static_cast<double>(n) / static_cast<double>(changes.size());
      share_ = 1 / static_cast<double>(changes.size());
      if (auto ok = compare(changes[n]); !ok) return ok.failure();
    }
    if (auto ok = look_for_mistakes(); !ok) return ok.failure();
    const auto found = std::ranges::find(readings_, true, &Reading::reproduces);
    const auto kept = found == readings_.end() ? readings_.begin() : found;
    apply(tried_[static_cast<std::size_t>(kept - readings_.begin())]);
    return std::move(readings_);
  }

 private:
  void apply(const Change& change) {
    const auto change_call = [&](AttentionCase& call) {
      call.mask = change.mask;
      call.empty_row = change.empty_row;
      if (change.inverted != inverted_ && call.visible) invert(*call.visible);
    };
    change_call(loaded_.dump.claim.call);
    if (loaded_.gradients) change_call(loaded_.gradients->claim.call);
    inverted_ = change.inverted;
  }

  Result<void> compare(const Change& change) {
    apply(change);
    auto diagnosis = diagnose();
    if (diagnosis) {
      keep(change, *std::move(diagnosis));
      return {};
    }
    if (diagnosis.failure().id != "no-visible-key") return diagnosis.failure();
    for (const EmptyRow policy : {EmptyRow::zero, EmptyRow::nan}) {
      const bool zero = policy == EmptyRow::zero;
      Change with = change;
      with.empty_row = policy;
      with.label += zero ? "; a row that sees no key is 0" : "; a row that sees no key is NaN";
      with.flags += zero ? " --empty-row zero" : " --empty-row nan";
      apply(with);
      diagnosis = diagnose();
      if (!diagnosis) return diagnosis.failure();
      keep(with, *std::move(diagnosis));
    }
    return {};
  }

  /// Which mistake would give these numbers under each reading, if no reading alone does.
  Result<void> look_for_mistakes() {
    const lab::AttentionShape& s = loaded_.dump.claim.shape;
    const double scores = static_cast<double>(s.B * s.H) * static_cast<double>(s.T * s.S);
    const bool reproduced = std::ranges::any_of(readings_, &Reading::reproduces);
    if (reproduced || scores > most_scores) return {};
    for (std::size_t n = 0; n < readings_.size(); ++n) {
      part_ = static_cast<double>(n) / static_cast<double>(readings_.size());
      share_ = 1 / static_cast<double>(readings_.size());
      apply(tried_[n]);
      auto diagnosis = diagnose(1);
      if (!diagnosis) return diagnosis.failure();
      if (diagnosis->judgement != check::Judgement::wrong_named) continue;
      for (const check::Made& made : diagnosis->explanations.front().mistakes) {
        readings_[n].mistake = made.label();
      }
    }
    return {};
  }

  Result<check::Diagnosis> diagnose(std::int64_t most_mistakes = 0) {
    check::DiagnoseOptions options{.progress = {}, .most_mistakes = most_mistakes};
    options.progress = [this](std::string_view doing, double fraction) {
      if (progress_) progress_(doing, part_ + share_ * fraction);
    };
    return diagnose_both(loaded_.dump, loaded_.gradients, options);
  }

  void keep(const Change& change, check::Diagnosis diagnosis) {
    const bool right = diagnosis.judgement == check::Judgement::right ||
                       diagnosis.judgement == check::Judgement::right_by_rounding ||
                       !diagnosis.tells;
    readings_.push_back({change.label, change.flags, right, std::move(diagnosis), ""});
    tried_.push_back(change);
  }

  LoadedDump& loaded_;
  const std::function<void(std::string_view, double)>& progress_;
  std::vector<Reading> readings_;
  std::vector<Change> tried_;
  double part_ = 0, share_ = 1;
  bool inverted_ = false;
};

const check::Cell* first_wrong(const check::Diagnosis& diagnosis) {
  for (const check::StageJudgement& stage : diagnosis.stages) {
    if (stage.first_wrong) return &*stage.first_wrong;
  }
  return nullptr;
}

}  // namespace

Result<std::vector<Reading>> compare_usual_readings(
    LoadedDump& loaded, const std::function<void(std::string_view, double)>& progress) {
  return Comparison(loaded, progress).run();
}

int exit_of(const std::vector<Reading>& readings) {
  const auto clear = [](const Reading& each) { return each.reproduces && each.diagnosis.tells; };
  return std::ranges::all_of(readings, clear) ? Exit::done : Exit::cannot_tell;
}

namespace {

/// What all of them together say.
std::string said_by(const std::vector<Reading>& readings) {
  const auto mute = std::ranges::find_if(
      readings, [](const Reading& each) { return each.reproduces && !each.diagnosis.tells; });
  if (mute != readings.end()) return mute->diagnosis.remarks.back();
  const auto agreeing = std::ranges::count(readings, true, &Reading::reproduces);
  if (agreeing == static_cast<std::ptrdiff_t>(readings.size())) {
    return "every usual reading of these tensors gives these numbers";
  }
  return sentence("nothing says what is meant, and ",
                  agreeing == 0 ? "no usual reading of these tensors gives these numbers"
                                : "the usual readings of these tensors differ");
}

}  // namespace

check::Diagnosis page_of(const std::vector<Reading>& readings, const Reading& shown) {
  check::Diagnosis page = shown.diagnosis;
  page.judgement =
      exit_of(readings) == Exit::done ? check::Judgement::right : check::Judgement::undecided;
  page.unsaid = said_by(readings);
  page.would_decide.clear();
  page.nearest.clear();  // of one reading alone
  if (page.judgement == check::Judgement::right) return page;
  for (const Reading& each : readings) {
    page.would_decide.push_back(sentence(
        "`", each.flags, "` (", each.label,
        "): ", each.reproduces ? "gives these numbers" : "does not give these numbers",
        each.mistake.empty() ? "" : sentence("; with the mistake `", each.mistake, "` it does")));
  }
  return page;
}

std::string to_text(const std::vector<Reading>& readings) {
  const bool all = exit_of(readings) == Exit::done;
  std::string out = sentence(all ? "RIGHT: " : "CANNOT TELL: ", said_by(readings), "\n");
  std::size_t width = 0;
  for (const Reading& each : readings) width = std::max(width, each.label.size());
  for (const Reading& each : readings) {
    out += fmt::format("  {}  {}  {}\n", each.reproduces ? "gives them  " : "does not    ",
                       left(each.label, width), each.flags);
    const check::Cell* cell = first_wrong(each.diagnosis);
    if (each.reproduces || cell == nullptr) continue;
    out += fmt::format("                {} is {}, would be {}\n", cell->address,
                       three_digits(cell->found), three_digits(cell->expected));
    if (!each.mistake.empty())
      out += fmt::format("                with {} it does\n", each.mistake);
  }
  if (!all) {
    out +=
        "say what is meant, and it is judged: the flags above, --convention NAME, or others of "
        "attest check --help\n";
  }
  return out;
}

std::string to_json(const std::vector<Reading>& readings) {
  const bool all = exit_of(readings) == Exit::done;
  std::string out = "{\"verdict\":";
  io::append_json_string(
      out, check::name_of(all ? check::Judgement::right : check::Judgement::undecided));
  out += ",\"claim\":null,\"readings\":[";
  for (const Reading& each : readings) {
    if (out.back() != '[') out += ',';
    out += "{\"reading\":";
    io::append_json_string(out, each.label);
    out += ",\"flags\":";
    io::append_json_string(out, each.flags);
    out += each.reproduces ? ",\"reproduces\":true" : ",\"reproduces\":false";
    if (!each.mistake.empty()) {
      out += ",\"reproduces_with\":";
      io::append_json_string(out, each.mistake);
    }
    if (const check::Cell* cell = first_wrong(each.diagnosis);
        cell != nullptr && !each.reproduces) {
      out += ",\"first_wrong\":{\"address\":";
      io::append_json_string(out, cell->address);
      out += ",\"found\":";
      io::append_json_number(out, cell->found);
      out += ",\"expected\":";
      io::append_json_number(out, cell->expected);
      out += '}';
    }
    out += '}';
  }
  return out + "]}";
}

}  // namespace attest::cli
