// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>
#include <optional>

namespace attest::check {

// What a program takes for query, key and value, and how it lays out what it produced. Defaults
// mean "as claimed" everywhere; a mistake sets a few fields. A program does it in this order, and
// so do the fields:
//
//     load, fused projection, batch and sequence, heads, rotate, join the cache, pass arguments,
//     choose batch, heads and keys, [attention], merge heads, batch and sequence
//
// A tensor before the heads is [B, L, N·W]: L positions, N heads of W features.

enum class Role : std::uint8_t { query, key, value };
inline constexpr std::array<Role, 3> own_roles{Role::query, Role::key, Role::value};

/// The order of the three axes of a fused projection: c which of the three, h head, d feature. With
/// fewer key heads than query heads, hcd is [G][H/G queries, key, value][D].
enum class FusedOrder : std::uint8_t { chd, hcd, hdc, cdh, dch, dhc };

/// A part of the fused [B, L, 3·H·D] read with the strides of a tensor of its own.
enum class FusedStrides : std::uint8_t { right, heads_first, sequence_first };

/// How N heads are made of [L, N·W].
enum class Split : std::uint8_t {
  right,
  reshaped,     ///< viewed as [N, L, W]: no transpose
  unshaped,     ///< memory [N, L, W], viewed as [L, N, W]
  width_major,  ///< feature w of head n at w·N + n: "(d h)" for "(h d)"
  exchanged,    ///< [L, N, W] passed where [N, L, W] is due: L heads, N positions
};

/// How many heads [L, N·W] is cut into.
enum class HeadCount : std::uint8_t { claimed, one, half, twice };

enum class BatchTime : std::uint8_t {
  claimed,
  exchanged,  ///< the batch is taken for the sequence
  reshaped,   ///< memory [L, B, …] viewed as [B, L, …]
};

/// How one tensor is made into heads.
struct Reading {
  FusedStrides strides = FusedStrides::right;
  Split split = Split::right;
  bool operator==(const Reading&) const = default;
};

enum class Turn : std::uint8_t { claimed, none, reversed, twice };
enum class RopePositions : std::uint8_t {
  claimed,
  from_zero,      ///< position − the first one
  first_for_all,  ///< every row at the first row's position
  last_for_all,
  head,  ///< the head's index
};
/// The exponent of the base that pair i of R/2 has.
enum class RopeExponent : std::uint8_t {
  claimed,        ///< −2i/R
  half,           ///< −i/R
  from_one,       ///< −2(i + 1)/R
  of_head_dim,    ///< −2i/D
  to_the_end,     ///< −2i/(R − 2): linspace(0, 1)
  backwards,      ///< of the pair R/2 − 1 − i
  llama3_scaled,  ///< as −2i/R, and long waves scaled by `long_wave_factor`
};
/// What a rotation does to the pair (x, y) with cosine c and sine s.
enum class RopeForm : std::uint8_t {
  claimed,          ///< (x·c − y·s, y·c + x·s)
  no_minus,         ///< (x·c + y·s, y·c + x·s)
  sin_cos_swapped,  ///< (x·s − y·c, y·s + x·c)
};
enum class RopeRounding : std::uint8_t { none, tables_bf16, tables_f16, positions_bf16 };
/// Which of the keys that came from a cache are turned, or where the new ones are.
enum class CachedTurn : std::uint8_t { claimed, cached_unturned, cached_twice, new_from_zero };

struct RopeRecipe {
  bool added = false;  ///< turns although the claim does not
  Turn query = Turn::claimed;
  Turn key = Turn::claimed;
  bool value_too = false;
  bool query_other_pairing = false;  ///< interleaved for half, or back
  bool key_other_pairing = false;
  bool keep_tables = false;    ///< the other pairing, with the angles of the claimed one
  bool other_tables = false;   ///< the claimed pairing, with the angles of the other one
  bool before_split = false;   ///< all of [L, N·W] as one row
  bool last_features = false;  ///< the last R features turn
  std::optional<double> base{};
  double width = 0;  ///< R as a part of D; 0: claimed
  double positions_divided_by = 1;
  double long_wave_factor = 8;
  RopeExponent exponent = RopeExponent::claimed;
  RopeForm form = RopeForm::claimed;
  RopeRounding rounding = RopeRounding::none;
  RopePositions query_positions = RopePositions::claimed;
  RopePositions key_positions = RopePositions::claimed;
  std::int64_t query_shift = 0;
  std::int64_t key_shift = 0;
  CachedTurn cached = CachedTurn::claimed;
  bool operator==(const RopeRecipe&) const = default;
};

/// Where the cached keys and values stand, P of S.
enum class CacheUse : std::uint8_t {
  claimed,
  ignored,         ///< the new ones alone
  alone,           ///< the cached ones alone
  after_new,       ///< new ones first
  overwritten,     ///< new ones written to slot 0 on, zeros at the end
  one_slot_early,  ///< the last cached one overwritten, a zero at the end
  one_slot_late,   ///< a zero between, the last new one lost
};

/// Which key/value head query head h reads; n = H/G.
enum class HeadMap : std::uint8_t {
  claimed,        ///< h div n
  tiled,          ///< h mod G
  first,          ///< 0
  last,           ///< G − 1
  reversed,       ///< G − 1 − (h div n)
  next,           ///< h div n + 1, around
  previous,       ///< h div n − 1, around
  divided_by_G,   ///< h div G
  modulo_group,   ///< h mod n
  mean,           ///< the mean of all
  repeated_keys,  ///< h mod G, and its key j div n: repeated along the keys, cut to S
  reshaped_keys,  ///< [G, S·n] of keys repeated in place, viewed as [H, S]
};
/// An order of the query heads, or of the heads of the output.
enum class HeadOrder : std::uint8_t {
  claimed,
  reversed,
  next,
  previous,
  regrouped,       ///< [n, G] where [G, n] is due, n = H/G
  regrouped_back,  ///< [G, n] taken for [n, G]
  group_means,     ///< of queries only: each is the mean of its group
};
enum class BatchUse : std::uint8_t { own, next, previous, reversed, first };

struct HeadRecipe {
  HeadOrder queries = HeadOrder::claimed;
  HeadMap keys = HeadMap::claimed;
  HeadMap values = HeadMap::claimed;
  std::int64_t wrong_head = -1;  ///< this one reads key/value head 0
  bool operator==(const HeadRecipe&) const = default;
};

/// Which key and value stand at a slot.
struct SlotRecipe {
  std::int64_t drop_first = 0;
  std::int64_t drop_last = 0;
  std::int64_t whole_blocks = 0;  ///< only as many keys as fill blocks of so many; 0: all
  std::int64_t roll_keys = 0;     ///< slot j holds key j + roll, around
  std::int64_t roll_values = 0;
  bool keys_reversed = false;
  bool values_reversed = false;
  bool keys_read_transposed = false;    ///< memory [S, D] read as [D, S]
  bool values_read_transposed = false;  ///< memory [S, E] read as [E, S]
  bool operator==(const SlotRecipe&) const = default;
};

enum class Merge : std::uint8_t {
  right,
  reshaped,     ///< [H, T, E] written where [T, H, E] is due: no transpose
  unshaped,     ///< [T, H, E] written where [H, T, E] is due
  width_major,  ///< feature e of head h at e·H + h
};

struct OutputRecipe {
  Merge merge = Merge::right;
  HeadOrder heads = HeadOrder::claimed;
  BatchUse batch = BatchUse::own;
  std::int64_t roll_rows = 0;  ///< row i holds query i + roll, around
  bool rows_reversed = false;
  bool read_transposed = false;  ///< [T, E] of a head written as [E, T]
  bool operator==(const OutputRecipe&) const = default;
};

struct OperandRecipe {
  std::array<Role, 3> loaded = own_roles;  ///< which tensor is taken for query, key, value
  FusedOrder fused_written = FusedOrder::chd;
  FusedOrder fused_read = FusedOrder::chd;
  BatchTime batch_time = BatchTime::claimed;
  HeadCount head_count = HeadCount::claimed;
  std::array<Reading, 3> reading{};  ///< of query, key, value
  bool cache_read_likewise = false;  ///< cached keys are split as the new ones; else they are right
  RopeRecipe rope{};
  CacheUse cache = CacheUse::claimed;
  std::array<Role, 3> arguments = own_roles;  ///< which tensor is passed as query, key, value
  BatchUse key_batch = BatchUse::own;         ///< and that of values
  HeadRecipe heads{};
  SlotRecipe slots{};
  OutputRecipe output{};
  bool operator==(const OperandRecipe&) const = default;
};

}  // namespace attest::check
