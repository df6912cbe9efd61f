// SPDX-License-Identifier: MIT
#include "attest/check/mistakes/sight.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "attest/check/at_index.h"

namespace attest::check {
namespace {

constexpr std::int64_t far = std::int64_t{1} << 61U;

/// Rounds down, for negative positions too.
std::int64_t block_of(std::int64_t position, std::int64_t width) {
  const std::int64_t quotient = position / width;
  return position % width < 0 ? quotient - 1 : quotient;
}

/// Cumulative starts as a program with this mistake has them.
std::vector<std::int64_t> starts_with(DocumentUse use, std::vector<std::int64_t> starts) {
  if (starts.size() < 2) return starts;
  const std::int64_t length = starts.back();
  const auto documents = static_cast<std::int64_t>(starts.size()) - 1;
  std::int64_t longest = 0;
  for (std::size_t n = 0; n + 1 < starts.size(); ++n) {
    longest = std::max(longest, starts[n + 1] - starts[n]);
  }
  for (std::int64_t n = 1; n < documents; ++n) {
    std::int64_t& start = starts[at_index(n)];
    if (use == DocumentUse::shifted) start = std::min(start + 1, length);
    if (use == DocumentUse::equal_lengths) start = std::min(n * longest, length);
    if (use == DocumentUse::equal_shares) start = n * length / documents;
  }
  return starts;
}

/// Names of tokens as the numbers of their runs, changed by this mistake.
std::vector<std::int64_t> names_with(DocumentUse use, const std::vector<std::int64_t>& names) {
  std::vector<std::int64_t> starts{0};
  for (std::size_t i = 1; i < names.size(); ++i) {
    if (names[i] != names[i - 1]) starts.push_back(static_cast<std::int64_t>(i));
  }
  starts.push_back(static_cast<std::int64_t>(names.size()));
  starts = starts_with(use, std::move(starts));
  std::vector<std::int64_t> out(names.size());
  for (std::size_t n = 0; n + 1 < starts.size(); ++n) {
    for (std::int64_t i = starts[n]; i < starts[n + 1]; ++i) {
      out[at_index(i)] = static_cast<std::int64_t>(n);
    }
  }
  return out;
}

/// Each batch of a list of [length] or [B·length] on its own.
std::vector<std::int64_t> each_batch(DocumentUse use, const std::vector<std::int64_t>& names,
                                     std::int64_t length) {
  std::vector<std::int64_t> out;
  if (length == 0) return names;
  for (std::size_t from = 0; from < names.size(); from += at_index(length)) {
    const auto begin = names.begin() + static_cast<std::ptrdiff_t>(from);
    const auto own = names_with(use, {begin, begin + length});
    out.insert(out.end(), own.begin(), own.end());
  }
  return out;
}

}  // namespace

std::optional<Sight> Sight::make(const Claim& claim, const lab::AttentionShape& program,
                                 const SightRecipe& recipe, const BiasRecipe& bias,
                                 std::vector<std::int64_t> keys) {
  Sight out(claim, program, recipe, bias, std::move(keys));
  if (!out.fits()) return std::nullopt;
  const Mask& mask = claim.call.mask;
  out.causal_ = recipe.causal.value_or(mask.future_hidden);
  out.corner_ = recipe.corner.value_or(mask.corner);
  out.window_ = recipe.window.value_or(Sides{mask.window.left, mask.window.right});
  out.arrange_documents();
  return out;
}

/// How many batches of a table a lookup reaches.
std::int64_t Sight::batches_looked_up(Lookup lookup) const {
  if (lookup == Lookup::batch_for_head) return program_.H;
  return lookup == Lookup::query_for_batch ? program_.T : program_.B;
}

bool Sight::table_fits(const Shape& extents, Lookup lookup) const {
  const std::int64_t heads_on_batches = batches_looked_up(lookup);
  const std::int64_t batches_on_heads = lookup == Lookup::batch_for_head ? program_.B : program_.H;
  const auto reaches = [](std::int64_t extent, std::int64_t wanted) {
    return extent == 1 || wanted <= extent;
  };
  return reaches(extents[0], heads_on_batches) && reaches(extents[1], batches_on_heads);
}

bool Sight::fits() const {
  const AttentionCase& call = claim_->call;
  const Mask& mask = call.mask;
  if (call.visible && !table_fits(call.visible->shape(), recipe_.lookup)) return false;
  if (call.bias && !table_fits(call.bias->shape(), bias_.lookup)) return false;
  const std::int64_t batches = batches_looked_up(recipe_.lookup);
  const auto per_batch = [](std::size_t size, std::int64_t wanted) {
    return size <= 1 || wanted <= static_cast<std::int64_t>(size);
  };
  if (!per_batch(mask.key_lengths.size(), batches)) return false;
  if (!per_batch(mask.query_offset.size(), program_.B)) return false;
  const bool documents = !mask.packing.query_starts.empty() || !mask.documents.query.empty();
  if (!documents) return true;
  return program_.T == claim_->shape.T && program_.B <= claim_->shape.B;
}

void Sight::arrange_documents() {
  const Mask& mask = claim_->call.mask;
  if (recipe_.documents == DocumentUse::ignored) return;
  packing_ = mask.packing;
  ids_ = mask.documents;
  const DocumentUse use = recipe_.documents;
  if (use == DocumentUse::claimed || use == DocumentUse::whole_positions) return;
  packing_.query_starts = starts_with(use, std::move(packing_.query_starts));
  packing_.key_starts = starts_with(use, std::move(packing_.key_starts));
  ids_.query = each_batch(use, ids_.query, claim_->shape.T);
  ids_.key = each_batch(use, ids_.key, claim_->shape.S);
}

std::int64_t Sight::key_length(std::int64_t b) const {
  const std::vector<std::int64_t>& lengths = claim_->call.mask.key_lengths;
  if (lengths.empty()) return claim_->shape.S;
  return lengths.size() == 1 ? lengths[0] : lengths[at_index(b)];
}

Sight::Document Sight::document_of(lab::RowPlace at) const {
  const auto& [queries, keys] = packing_;
  const std::int64_t b = recipe_.offset_of_batch0 ? 0 : at.b;
  if (queries.empty()) {
    const bool own_sequence = program_.T == claim_->shape.T;
    const std::int64_t all = own_sequence ? claim_->shape.S : program_.S;
    return {.queries = program_.T,
            .keys = recipe_.own_length_ignored ? all : std::min(all, key_length(b))};
  }
  const auto after = std::ranges::upper_bound(queries, at.i);
  const auto n = static_cast<std::size_t>(after - queries.begin()) - 1;
  const bool since_previous = recipe_.documents == DocumentUse::since_previous && n > 0;
  return {.first_query = queries[n],
          .queries = queries[n + 1] - queries[n],
          .first_key = keys[n],
          .keys = keys[n + 1] - keys[n],
          .first_seen = since_previous ? keys[n - 1] : keys[n]};
}

std::int64_t Sight::offset(std::int64_t b, const Document& own) const {
  const std::vector<std::int64_t>& given = claim_->call.mask.query_offset;
  switch (corner_) {
    case Corner::square:
    case Corner::top_left:
      return 0;
    case Corner::bottom_right:
      return own.keys - own.queries;
    case Corner::at_offset:
      return given.empty() ? 0 : given[given.size() == 1 ? 0 : at_index(b)];
  }
  return 0;
}

std::int64_t Sight::position(lab::RowPlace at) const {
  if (recipe_.documents == DocumentUse::whole_positions) {
    const Document all{.queries = program_.T, .keys = claim_->shape.S};
    return offset(at.b, all) + at.i + recipe_.position_shift;
  }
  const Document own = document_of(at);
  return own.first_key + offset(recipe_.offset_of_batch0 ? 0 : at.b, own) + at.i - own.first_query +
         recipe_.position_shift;
}

std::int64_t Sight::position_at_index(lab::RowPlace at) const {
  const Document own = document_of(at);
  return own.first_key + at.i - own.first_query;
}

std::optional<Sight::Range> Sight::causal_range(lab::RowPlace at) const {
  if (!causal_) return std::nullopt;
  std::int64_t p = position(at);
  if (recipe_.causal_block > 0) {
    p = (block_of(p, recipe_.causal_block) + 1) * recipe_.causal_block - 1;
  }
  if (recipe_.causal_reversed) return Range{p - recipe_.causal_shift, far};
  return Range{-far, p + recipe_.causal_shift + 1};
}

std::optional<Sight::Range> Sight::window_range(lab::RowPlace at) const {
  if (!window_.left && !window_.right) return std::nullopt;
  const std::int64_t p = recipe_.window_at_index ? position_at_index(at) : position(at);
  const std::int64_t left = window_.left.value_or(far);
  const std::int64_t right = window_.right.value_or(far);
  switch (recipe_.window_form) {
    case WindowForm::sliding:
      break;
    case WindowForm::chunked: {
      const std::int64_t width = std::min(left, right) == far ? far : std::min(left, right) + 1;
      const std::int64_t block = block_of(p, width);
      return Range{block * width, (block + 1) * width};
    }
    case WindowForm::ahead:
      return Range{p, p + left + 1};
    case WindowForm::symmetric:
      return Range{p - left, p + left + 1};
  }
  return Range{p - left, p + right + 1};
}

void Sight::hide_outside(const std::optional<Range>& range, std::int64_t from, std::uint8_t why,
                         std::span<std::uint8_t> hidden) const {
  if (!range) return;
  const auto size = static_cast<std::int64_t>(hidden.size());
  if (keys_.empty()) {
    const std::int64_t first = std::clamp(range->first, std::int64_t{0}, size);
    const std::int64_t end = std::clamp(range->end, first, size);
    for (std::int64_t j = std::min(from, first); j < first; ++j) hidden[at_index(j)] |= why;
    for (std::int64_t j = std::max(from, end); j < size; ++j) hidden[at_index(j)] |= why;
    return;
  }
  for (std::int64_t j = 0; j < size; ++j) {
    const std::int64_t key = claim_key(j);
    if (key < from || (key >= range->first && key < range->end)) continue;
    hidden[at_index(j)] |= why;
  }
}

void Sight::hide_by_position(lab::RowPlace at, std::span<std::uint8_t> hidden) const {
  const bool open = (recipe_.open_rows == OpenRows::first && at.i == 0) ||
                    (recipe_.open_rows == OpenRows::last && at.i == program_.T - 1);
  if (open) return;
  hide_outside(causal_range(at), 0, hidden_by_position, hidden);
  hide_outside(window_range(at), recipe_.always_visible_keys, hidden_by_position, hidden);
}

void Sight::hide_by_length(lab::RowPlace at, std::span<std::uint8_t> hidden) const {
  if (recipe_.lengths_ignored || claim_->call.mask.key_lengths.empty()) return;
  lab::AttentionShape shape = program_;
  shape.S = claim_->shape.S;
  const LookupRow look = LookupRow::of(recipe_.lookup, shape, at);
  const std::int64_t length = key_length(look.b);
  for (std::size_t j = 0; j < hidden.size(); ++j) {
    const bool within = look.key(claim_key(static_cast<std::int64_t>(j))) < length;
    if (within == recipe_.lengths_inverted) hidden[j] |= hidden_by_mask;
  }
}

void Sight::hide_by_table(lab::RowPlace at, std::span<std::uint8_t> hidden) const {
  if (recipe_.mask_ignored || !claim_->call.visible) return;
  lab::AttentionShape shape = program_;
  shape.S = claim_->shape.S;
  const TableRow<bool> row{claim_->call.visible->view<4>(),
                           LookupRow::of(recipe_.lookup, shape, at)};
  for (std::size_t j = 0; j < hidden.size(); ++j) {
    const std::int64_t key = claim_key(static_cast<std::int64_t>(j));
    const bool visible = row.at(key).value_or(row.look.key(key) < 0);
    if (visible == recipe_.mask_inverted) hidden[j] |= hidden_by_mask;
  }
}

void Sight::hide_by_bias(lab::RowPlace at, std::span<std::uint8_t> hidden) const {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  if (!claim_->call.bias) return;
  const BiasUse use = bias_.use;
  const bool arithmetic = use == BiasUse::missing || use == BiasUse::subtracted ||
                          use == BiasUse::multiplied || use == BiasUse::after_softmax;
  if (arithmetic) return;
  lab::AttentionShape shape = program_;
  shape.S = claim_->shape.S;
  const TableRow<double> row{claim_->call.bias->view<4>(), LookupRow::of(bias_.lookup, shape, at)};
  for (std::size_t j = 0; j < hidden.size(); ++j) {
    const double bias = row.at(claim_key(static_cast<std::int64_t>(j))).value_or(-infinity);
    bool visible = bias != -infinity;
    if (use == BiasUse::as_mask) visible = bias > 0;
    if (use == BiasUse::nonzero_as_mask) visible = bias != 0;
    if (use == BiasUse::nonzero_is_hidden) visible = bias == 0;
    if (!visible) hidden[j] |= hidden_by_mask;
  }
}

void Sight::hide_by_document(lab::RowPlace at, std::span<std::uint8_t> hidden) const {
  if (!packing_.query_starts.empty()) {
    const Document own = document_of(at);
    hide_outside(Range{own.first_seen, own.first_key + own.keys}, 0, hidden_by_mask, hidden);
  }
  if (ids_.query.empty()) return;
  const auto name_of = [&](const std::vector<std::int64_t>& names, std::int64_t length,
                           std::int64_t place) {
    const bool shared = static_cast<std::int64_t>(names.size()) == length;
    return names[at_index(shared ? place : at.b * length + place)];
  };
  const std::int64_t own = name_of(ids_.query, claim_->shape.T, at.i);
  const bool since_previous = recipe_.documents == DocumentUse::since_previous;
  for (std::size_t j = 0; j < hidden.size(); ++j) {
    const std::int64_t key = claim_key(static_cast<std::int64_t>(j));
    const std::int64_t name = key < claim_->shape.S ? name_of(ids_.key, claim_->shape.S, key) : own;
    if (name != own && !(since_previous && name + 1 == own)) hidden[j] |= hidden_by_mask;
  }
}

void Sight::compose(std::span<std::uint8_t> hidden) const {
  constexpr std::uint8_t both = hidden_by_position | hidden_by_mask;
  for (std::uint8_t& why : hidden) {
    switch (recipe_.compose) {
      case Compose::both:
        break;
      case Compose::either:
        why = why == both ? both : std::uint8_t{0};
        break;
      case Compose::positions_only:
        why &= hidden_by_position;
        break;
      case Compose::masks_only:
        why &= hidden_by_mask;
        break;
    }
    if (recipe_.all_inverted) why = why == 0 ? both : std::uint8_t{0};
  }
}

void Sight::look(lab::RowPlace at, std::span<std::uint8_t> hidden) const {
  std::ranges::fill(hidden, std::uint8_t{0});
  hide_by_position(at, hidden);
  hide_by_length(at, hidden);
  hide_by_table(at, hidden);
  hide_by_bias(at, hidden);
  hide_by_document(at, hidden);
  if (recipe_.compose != Compose::both || recipe_.all_inverted) compose(hidden);
  if (recipe_.open_keys == OpenKeys::none) return;
  const std::int64_t open = recipe_.open_keys == OpenKeys::first ? 0 : position(at);
  for (std::size_t j = 0; j < hidden.size(); ++j) {
    if (claim_key(static_cast<std::int64_t>(j)) == open) hidden[j] = 0;
  }
}

}  // namespace attest::check
