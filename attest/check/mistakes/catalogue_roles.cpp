// SPDX-License-Identifier: MIT
// Query, key and value taken for each other.

#include <array>

#include "attest/check/mistakes/catalogue_parts.h"

namespace attest::check {
namespace {

template <Role query, Role key, Role value>
bool passed(Recipe& recipe, const Claim& claim, double /*value*/) {
  if (!claim.has_query_and_key() || !claim.has_value()) return false;
  recipe.operands.arguments = {query, key, value};
  return true;
}

/// Before the rotation: only then another mistake.
template <Role query, Role key, Role value>
bool loaded(Recipe& recipe, const Claim& claim, double /*value*/) {
  if (!claim.has_query_and_key() || !claim.has_value() || !claim.rope) return false;
  recipe.operands.loaded = {query, key, value};
  return true;
}

constexpr std::string_view argument_order =
    "the order of the arguments of the attention call; some libraries (Keras) call it "
    "(query, value, key)";
constexpr std::string_view loaded_weights =
    "which projection each tensor comes from: weights loaded under another's name, or a fused qkv "
    "split in another order";

constexpr std::array mistakes{
    Mistake{.name = "layout.k_v_swapped",
            .axis = Axis::roles,
            .what = "Key and value have changed places.",
            .look_for = argument_order,
            .make = passed<Role::query, Role::value, Role::key>},
    Mistake{.name = "layout.q_k_swapped",
            .axis = Axis::roles,
            .what = "Query and key have changed places.",
            .look_for = argument_order,
            .make = passed<Role::key, Role::query, Role::value>},
    Mistake{.name = "roles.key_from_query",
            .axis = Axis::roles,
            .what = "The query is used for the key too.",
            .look_for = loaded_weights,
            .make = passed<Role::query, Role::query, Role::value>},
    Mistake{.name = "roles.key_from_value",
            .axis = Axis::roles,
            .what = "The value is used for the key too.",
            .look_for = loaded_weights,
            .seen_in = "trymirai/lalamo#272",
            .make = passed<Role::query, Role::value, Role::value>},
    Mistake{.name = "roles.key_from_value_turned",
            .axis = Axis::roles,
            .what = "The value, turned by its position, is used for the key too.",
            .look_for = loaded_weights,
            .seen_in = "trymirai/lalamo#272",
            .make = loaded<Role::query, Role::value, Role::value>},
    Mistake{.name = "roles.k_v_swapped_before_rope",
            .axis = Axis::roles,
            .what = "Key and value have changed places before the rotation.",
            .look_for = loaded_weights,
            .make = loaded<Role::query, Role::value, Role::key>},
    Mistake{.name = "roles.q_k_swapped_before_rope",
            .axis = Axis::roles,
            .what = "Query and key have changed places before the rotation.",
            .look_for = loaded_weights,
            .make = loaded<Role::key, Role::query, Role::value>},
    Mistake{.name = "roles.q_v_swapped",
            .axis = Axis::roles,
            .what = "Query and value have changed places.",
            .look_for = argument_order,
            .make = passed<Role::value, Role::key, Role::query>},
    Mistake{.name = "roles.query_from_key",
            .axis = Axis::roles,
            .what = "The key is used for the query too.",
            .look_for = loaded_weights,
            .make = passed<Role::key, Role::key, Role::value>},
    Mistake{.name = "roles.rotated_one_place",
            .axis = Axis::roles,
            .what = "Key, value and query stand where query, key and value are due.",
            .look_for = argument_order,
            .make = passed<Role::key, Role::value, Role::query>},
    Mistake{.name = "roles.rotated_two_places",
            .axis = Axis::roles,
            .what = "Value, query and key stand where query, key and value are due.",
            .look_for = argument_order,
            .make = passed<Role::value, Role::query, Role::key>},
    Mistake{.name = "roles.value_from_key",
            .axis = Axis::roles,
            .what = "The key is used for the value too.",
            .look_for = loaded_weights,
            .make = passed<Role::query, Role::key, Role::key>},
    Mistake{.name = "roles.value_from_query",
            .axis = Axis::roles,
            .what = "The query is used for the value too.",
            .look_for = loaded_weights,
            .make = passed<Role::query, Role::key, Role::query>},
};

}  // namespace

std::span<const Mistake> roles_mistakes() { return mistakes; }

}  // namespace attest::check
