// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "attest/base/dtype.h"
#include "attest/base/mask.h"
#include "attest/base/result.h"
#include "attest/base/tensor.h"

namespace attest {

// What other attention libraries mean by the same words, as data, and the way from their masks and
// options to ours and back. docs/conventions.md has the same table in prose. `not_stated` says that
// nobody here has seen it written down or tried it: such a field refuses to be used.
//
// Failure ids of this header:
//
//   unknown-convention  no preset of that name; the sentence lists those there are
//   not-stated          what this framework does is not recorded
//   not-offered         it does something that has no equal here; the sentence says what
//   wrong-dtype         a mask of a number type that this framework does not take (kind: type)
//   ambiguous-mask      a floating-point mask of nothing but 0 and 1
//   bad-mask            an integer mask with another number than 0 and 1, or a vector of lengths
//   bad-window          a width that no window can have, or one number where there should be two

enum class BooleanMask { not_stated, true_visible, true_hidden };

/// What becomes of a mask of floating-point numbers.
enum class FloatMask {
  not_stated,
  added,    ///< it is a bias: a number added to the scaled, capped score
  refused,  ///< masks are boolean; what is added is another argument
};

enum class IntegerMask {
  not_stated,
  one_keeps,    ///< 1 = may see, 0 = hidden
  unexplained,  ///< taken, but no text says what the numbers mean
  refused,
};

/// What the framework's causal flag alone means when there are not as many queries as keys.
enum class CausalCorner {
  not_stated,
  square,                  ///< an error
  top_left,                ///< query i sees keys j ≤ i
  top_left_last_row_open,  ///< the same, but the last query sees every key
  bottom_right,            ///< the last query stands at the last key
  by_cache_offset,         ///< the first query stands behind the cached keys; top-left without any
  mask_alone,              ///< the flag is a hint for speed; the mask must say it
};

enum class CausalAndMask {
  not_stated,
  both_apply,
  refused,
  mask_required,  ///< the flag may only come with the mask that says the same
};

/// How the number, or the two numbers, that say a window are counted.
enum class WindowCounts {
  not_stated,
  none,                      ///< there is no such option
  beside_self,               ///< two: keys to the left and to the right of the query's own
  width_with_self,           ///< one, W: the query's own key and the W − 1 before it
  width_beside_self,         ///< one, W: the query's own key and the W before it, so W + 1 keys
  width_with_self_each_way,  ///< one, W: the query's own key and W − 1 on each side
};

enum class DefaultScale {
  not_stated,
  one_over_root_d,  ///< 1/√D, D the query/key width
  one,              ///< the dot product as it is
  must_be_given,
};

/// What a query that may see no key is given.
enum class EmptyRowGives {
  not_stated,
  error,
  zero,
  nan,
  uniform,      ///< the mean of all values, hidden ones included
  as_unmasked,  ///< as if there were no mask
  varies,       ///< more than one of these, by the path that the call takes
};

/// The order of the axes in memory, outermost first; "(hd)" means heads side by side in one row.
enum class Layout {
  not_stated,
  bhtd,
  bthd,
  bt_hd,        ///< packed [B, T, H·D]
  lbe,          ///< packed [T, B, H·D]
  bhtd_to_bthd  ///< inputs [B, H, T, D], output [B, T, H, E]
};

/// Which key/value head query head h reads, of G for H.
enum class GroupedHeads {
  not_stated,
  interleave,  ///< h div (H/G)
  tile,        ///< h mod G
};

enum class SoftcapPlace { not_stated, before_bias_and_mask, after_mask, by_the_caller };
enum class LogSumExpBase { not_stated, natural, two };
enum class EmptyLogSumExp { not_stated, minus_infinity, plus_infinity, varies };

/// One framework's habits.
struct Convention {
  std::string_view name{};      ///< "pytorch-sdpa"
  std::string_view title{};     ///< what it is called at home
  std::string_view versions{};  ///< for which all this holds; empty: no version is recorded
  BooleanMask boolean_mask{};
  FloatMask float_mask{};
  DType float_mask_dtype = DType::f32;  ///< that `from_visible` writes
  IntegerMask integer_mask{};
  CausalCorner causal{};
  CausalAndMask causal_and_mask{};
  WindowCounts window{};
  bool minus_one_opens_window = false;  ///< −1 on a side: no limit there
  DefaultScale scale{};
  EmptyRowGives empty_row{};
  Layout layout{};
  GroupedHeads grouped_heads{};
  SoftcapPlace softcap{};
  LogSumExpBase log_sum_exp{};
  EmptyLogSumExp empty_log_sum_exp{};
  std::string_view note{};  ///< what does not fit a field; may be empty
};

/// All presets, ours first.
[[nodiscard]] std::span<const Convention> conventions() noexcept;

/// The preset of that name. Fails        unknown-convention.
[[nodiscard]] Result<Convention> find_convention(std::string_view name);

/// A framework's mask in our terms: one of the two is present.
struct ConvertedMask {
  std::optional<Tensor<bool>> visible{};  ///< true = may see
  std::optional<Tensor<double>> bias{};   ///< added to the scaled, capped score
};

/// Reads a mask as the framework would.
///
/// Formula       booleans: visible = mask, or its opposite, by the framework's polarity
///               integers: visible = (mask = 1), where the framework says so
///               floating point: bias = mask, where the framework adds it
/// Shapes        kept; what the axes mean is the caller's to say.
/// Edge cases    A floating-point mask of nothing but 0 and 1, with a 1 in it, is refused whatever
///               the framework: it can mean "1 = may see", "1 = hidden" or "add 1 to the score",
///               and files of all three kinds exist. All zeros are a bias that changes nothing. A
///               large negative number stays what it is, a bias: it hides nothing.
/// Accuracy      exact.
/// Fails         wrong-dtype, ambiguous-mask, bad-mask, not-stated; `name` is the mask's in them.
/// Cost          one pass.
/// See also      from_visible.
[[nodiscard]] Result<ConvertedMask> to_visible(const AnyTensor& mask, const Convention& convention,
                                               std::string_view name);

/// Our mask in the framework's terms: booleans of its polarity; where it takes none, 1 and 0 as
/// i32, or 0 and −∞ to be added. `to_visible` undoes it, −∞ then being a bias. Fails not-stated.
[[nodiscard]] Result<AnyTensor> from_visible(const Tensor<bool>& visible,
                                             const Convention& convention);

/// The window that a framework says with one number. A width that looks back has right = 0.
/// Fails         bad-window, not-offered, not-stated.
[[nodiscard]] Result<Window> to_window(std::int64_t width, const Convention& convention);

/// The window that a framework says with two numbers, left and right of the query's own key.
/// Fails         as above.
[[nodiscard]] Result<Window> to_window(std::int64_t left, std::int64_t right,
                                       const Convention& convention);

/// Whether keys from earlier calls stand before those of this one.
enum class Cache { none, present };

/// What a framework's causal flag alone means. `at_offset` leaves the offset, the number of cached
/// keys, to the caller. A flag that means something of its own only when T ≠ S gives `square`.
/// Fails         not-offered, not-stated.
[[nodiscard]] Result<Corner> corner_of(const Convention& convention, Cache cache);

/// What a framework gives a query that sees no key.
/// Fails         not-offered if it makes up a distribution there, saying which; not-stated.
[[nodiscard]] Result<EmptyRow> empty_row_of(const Convention& convention);

/// The scale that a framework uses unless told otherwise; nothing means ours, divide by √D.
/// Fails         not-offered if the framework has no default; not-stated.
[[nodiscard]] Result<std::optional<double>> scale_of(const Convention& convention);

}  // namespace attest
