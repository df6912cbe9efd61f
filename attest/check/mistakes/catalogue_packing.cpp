// SPDX-License-Identifier: MIT
#include <array>

#include "attest/check/mistakes/catalogue_parts.h"
#include "attest/check/mistakes/catalogue_tools.h"

namespace attest::check {
namespace {

bool with_documents(Recipe& recipe, const Claim& claim, DocumentUse use) {
  if (!has_documents(claim)) return false;
  recipe.scoring.sight.documents = use;
  return true;
}

constexpr std::array mistakes{
    Mistake{
        .name = "varlen.block_diag_from_previous",
        .axis = Axis::packing,
        .what = "A query sees its own document and the one before it.",
        .look_for = "the index of the document's start: off by one in cu_seqlens.",
        .make = [](Recipe& recipe, const Claim& claim,
                   double) { return with_documents(recipe, claim, DocumentUse::since_previous); }},
    Mistake{.name = "varlen.boundary_off_by_one",
            .axis = Axis::packing,
            .what = "Documents begin one token late: the first token of each belongs to the one "
                    "before.",
            .look_for = "`<=` where `<` is meant in comparisons with cu_seqlens.",
            .make = [](Recipe& recipe, const Claim& claim,
                       double) { return with_documents(recipe, claim, DocumentUse::shifted); }},
    Mistake{.name = "varlen.causal_missing",
            .axis = Axis::packing,
            .what = "Documents are kept apart, but within one all keys are seen.",
            .look_for = "a block-diagonal mask that replaces the causal one instead of joining it.",
            .make =
                [](Recipe& recipe, const Claim& claim, double) {
                  recipe.scoring.sight.causal = false;
                  return has_documents(claim) && is_causal(claim);
                }},
    Mistake{.name = "varlen.documents_leak",
            .axis = Axis::packing,
            .what = "Documents are not kept apart: the packed sequence is taken for one.",
            .look_for = "cu_seqlens or position_ids that are not passed to the kernel.",
            .seen_in = "huggingface/transformers#46634, unslothai/unsloth#1207, "
                       "alex-hh/profam#495",
            .make = [](Recipe& recipe, const Claim& claim,
                       double) { return with_documents(recipe, claim, DocumentUse::ignored); }},
    Mistake{
        .name = "varlen.equal_shares",
        .axis = Axis::packing,
        .what = "The packed sequence is cut into equal parts, as many as there are documents.",
        .look_for = "a reshape to [batch, total/batch] in place of cu_seqlens.",
        .make = [](Recipe& recipe, const Claim& claim,
                   double) { return with_documents(recipe, claim, DocumentUse::equal_shares); }},
    Mistake{
        .name = "varlen.max_seqlen_padding",
        .axis = Axis::packing,
        .what = "Every document is taken to be as long as the longest.",
        .look_for = "starts computed as n·max_seqlen: a padded layout read where it is packed.",
        .make = [](Recipe& recipe, const Claim& claim,
                   double) { return with_documents(recipe, claim, DocumentUse::equal_lengths); }},
    Mistake{.name = "varlen.positions_of_whole",
            .axis = Axis::packing,
            .what =
                "Documents are kept apart, but the causal corner and positions are those of the "
                "whole sequence.",
            .look_for = "positions that are not counted from each document's start.",
            .make =
                [](Recipe& recipe, const Claim& claim, double) {
                  const Packing& packing = claim.call.mask.packing;
                  const bool differ = packing.query_starts != packing.key_starts;
                  return counts_positions(claim) && differ &&
                         with_documents(recipe, claim, DocumentUse::whole_positions);
                }},
};

}  // namespace

std::span<const Mistake> packing_mistakes() { return mistakes; }

}  // namespace attest::check
