// SPDX-License-Identifier: MIT
// Keys lost, or in the wrong slot of the cache.

#include <array>

#include "attest/check/mistakes/catalogue_parts.h"

namespace attest::check {
namespace {

template <CacheUse use>
bool cached(Recipe& recipe, const Claim& claim, double /*value*/) {
  if (claim.past <= 0 || claim.past >= claim.shape.S) return false;
  recipe.operands.cache = use;
  return true;
}

constexpr std::array<double, 2> one_either_way{1, -1};
constexpr std::array<double, 7> blocks{2, 4, 8, 16, 32, 64, 128};

constexpr std::string_view loop_end =
    "the bounds of the loop over keys, or the length that is passed";
constexpr std::string_view cache_write =
    "the slot at which new keys and values are written to the cache";

constexpr std::array mistakes{
    Mistake{.name = "kv.appended_before_cache",
            .axis = Axis::keys,
            .what = "New keys and values are joined before the cached ones.",
            .look_for = "the order of the two tensors in the concatenation with the cache",
            .make = cached<CacheUse::after_new>},
    Mistake{.name = "kv.cache_alone",
            .axis = Axis::keys,
            .what = "Only cached keys are read; the new ones are not in the cache yet.",
            .look_for = "attention that runs before the cache is updated",
            .make = cached<CacheUse::alone>},
    Mistake{.name = "kv.cache_ignored",
            .axis = Axis::keys,
            .what = "Only the new keys are read; the cache is not.",
            .look_for = "a missing concatenation with past_key and past_value",
            .make = cached<CacheUse::ignored>},
    Mistake{.name = "kv.cache_overwritten_from_0",
            .axis = Axis::keys,
            .what = "New keys are written to slot 0 of the cache on; the slots that they should "
                    "have are zero.",
            .look_for = cache_write,
            .make = cached<CacheUse::overwritten>},
    Mistake{.name = "kv.cache_slot_early",
            .axis = Axis::keys,
            .what = "New keys are written one slot early: the last cached one is lost, the last "
                    "slot is zero.",
            .look_for = cache_write,
            .make = cached<CacheUse::one_slot_early>},
    Mistake{
        .name = "kv.cache_slot_late",
        .axis = Axis::keys,
        .what =
            "New keys are written one slot late: a zero stands between, the last new one is lost.",
        .look_for = cache_write,
        .make = cached<CacheUse::one_slot_late>},
    Mistake{.name = "kv.first_key_dropped",
            .axis = Axis::keys,
            .what = "The first key is not read.",
            .look_for = loop_end,
            .make =
                [](Recipe& recipe, const Claim& claim, double /*value*/) {
                  if (claim.shape.S < 2) return false;
                  recipe.operands.slots.drop_first = 1;
                  return true;
                }},
    Mistake{.name = "kv.keys_reversed",
            .axis = Axis::keys,
            .what = "Keys are in reverse order, values are not.",
            .look_for = "a flip of the sequence, or a negative stride, of the key",
            .make =
                [](Recipe& recipe, const Claim& claim, double /*value*/) {
                  if (claim.shape.S < 2 || !claim.has_query_and_key()) return false;
                  recipe.operands.slots.keys_reversed = true;
                  return true;
                }},
    Mistake{.name = "kv.keys_shifted_by_one",
            .axis = Axis::keys,
            .what = "Slot j holds key j + 1 (or j - 1), around; values are right.",
            .look_for = "a roll of the key, or a slot index that is one off for keys alone",
            .values = one_either_way,
            .make =
                [](Recipe& recipe, const Claim& claim, double value) {
                  if (claim.shape.S < 2 || !claim.has_query_and_key()) return false;
                  recipe.operands.slots.roll_keys = value > 0 ? 1 : -1;
                  return true;
                }},
    Mistake{.name = "kv.last_key_dropped",
            .axis = Axis::keys,
            .what = "The last key is not read.",
            .look_for = loop_end,
            .make =
                [](Recipe& recipe, const Claim& claim, double /*value*/) {
                  if (claim.shape.S < 2) return false;
                  recipe.operands.slots.drop_last = 1;
                  return true;
                }},
    Mistake{
        .name = "kv.sequence_reversed",
        .axis = Axis::keys,
        .what = "Keys and values are in reverse order, and what counts positions does not know.",
        .look_for = "a flip of the sequence, or a negative stride, of key and value",
        .make =
            [](Recipe& recipe, const Claim& claim, double /*value*/) {
              if (claim.shape.S < 2) return false;
              recipe.operands.slots.keys_reversed = true;
              recipe.operands.slots.values_reversed = true;
              return true;
            }},
    Mistake{.name = "kv.sequence_shifted_by_one",
            .axis = Axis::keys,
            .what = "Slot j holds key and value j + 1 (or j - 1), around, and what counts "
                    "positions does not "
                    "know.",
            .look_for = "a roll of key and value, a ring buffer read from the wrong slot",
            .values = one_either_way,
            .make =
                [](Recipe& recipe, const Claim& claim, double value) {
                  if (claim.shape.S < 2) return false;
                  recipe.operands.slots.roll_keys = value > 0 ? 1 : -1;
                  recipe.operands.slots.roll_values = value > 0 ? 1 : -1;
                  return true;
                }},
    Mistake{.name = "kv.tail_block_dropped",
            .axis = Axis::keys,
            .what = "Only whole blocks of keys are read; the rest is lost.",
            .look_for = "the last block of the loop over keys, where S is no multiple of the block",
            .values = blocks,
            .make =
                [](Recipe& recipe, const Claim& claim, double value) {
                  const auto block = static_cast<std::int64_t>(value);
                  if (claim.shape.S <= block || claim.shape.S % block == 0) return false;
                  recipe.operands.slots.whole_blocks = block;
                  return true;
                }},
    Mistake{.name = "kv.values_reversed",
            .axis = Axis::keys,
            .what = "Values are in reverse order, keys are not.",
            .look_for = "a flip of the sequence, or a negative stride, of the value",
            .make =
                [](Recipe& recipe, const Claim& claim, double /*value*/) {
                  if (claim.shape.S < 2 || !claim.has_value()) return false;
                  recipe.operands.slots.values_reversed = true;
                  return true;
                }},
    Mistake{.name = "kv.values_shifted_by_one",
            .axis = Axis::keys,
            .what = "Slot j holds value j + 1 (or j - 1), around; keys are right.",
            .look_for = "a roll of the value, or a slot index that is one off for values alone",
            .values = one_either_way,
            .make =
                [](Recipe& recipe, const Claim& claim, double value) {
                  if (claim.shape.S < 2 || !claim.has_value()) return false;
                  recipe.operands.slots.roll_values = value > 0 ? 1 : -1;
                  return true;
                }},
};

}  // namespace

std::span<const Mistake> keys_mistakes() { return mistakes; }

}  // namespace attest::check
