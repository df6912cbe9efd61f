// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "attest/base/attention_case.h"
#include "attest/base/dtype.h"
#include "attest/base/result.h"
#include "attest/check/difference.h"
#include "attest/lab/attention.h"
#include "attest/lab/visibility.h"
#include "attest/linalg/isa.h"

/// One attention call computed by every tier, and how far they are from each other.
namespace attest::check {

/// What the exact tier has to do for a call, in steps of about 8 ns on one core of a 2025 processor
/// (docs/accuracy.md): B·H·T·S·(D + E + 8), whatever the mask hides. A function of the shape alone.
[[nodiscard]] double exact_work(const lab::AttentionShape& shape) noexcept;

/// About a second of it. Beyond, the command takes the engine, and compares a sample of the rows.
inline constexpr double much_exact_work = 0x1p27;

/// About half a second of the oracle's.
inline constexpr double much_oracle_work = 0x1p20;

/// Whether the engine takes heads of that size: D and E at most 512.
[[nodiscard]] constexpr bool fits_engine(const lab::AttentionShape& shape) noexcept {
  return shape.D <= 512 && shape.E <= 512;
}

struct CompareTiersOptions {
  DType storage = DType::f32;  ///< what the engine computes in: f64, f32, bf16 or f16
  std::vector<Isa> isas{};     ///< empty: all that this machine has
  /// Compared with one; 0: one for each processor, but at least 2. 1: nothing is compared with one.
  int threads = 0;
  /// How many rows of the exact tier are looked at. Nothing: all of them, if that is not much exact
  /// work, else as many as are, but at least 16.
  std::optional<std::int64_t> rows{};
  lab::RowProgress progress{};
};

/// One stage of one tier beside the tier that judges it.
struct TierFit {
  std::string stage;            ///< "output" or "log_sum_exp"
  std::int64_t numbers = 0;     ///< looked at
  std::int64_t unpromised = 0;  ///< of these, where the bound is infinite
  std::int64_t nan_apart = 0;   ///< of those, where one of the two tiers alone gives NaN
  std::int64_t broken = 0;      ///< beyond their bound, or NaN where a number is due
  double largest_error = 0;     ///< where something is promised
  std::string error_at{};       ///< its address; "" if every number is equal
  double bound_there = 0;
  double used = 0;        ///< the largest |found − expected| / bound
  std::string used_at{};  ///< its address

  /// Counts one number. `where` makes its address, if that is wanted.
  void add(double found, double expected, double bound, const std::function<std::string()>& where);
  /// The same for a distance that is known already; NaN if only one of the two numbers is.
  void add_error(double error, double bound, const std::function<std::string()>& where);
};

struct TierRun {
  std::string name;     ///< "exact", "plain loop", "engine avx2"
  std::string against;  ///< "oracle", "exact"
  std::vector<TierFit> fits{};
  std::optional<bool> same_bits{};  ///< with one thread and with several, if both were run
  std::string skipped{};            ///< why it was not run; "" if it was
  bool judged = true;               ///< false: promises nothing, and is seen beside another's bound
};

struct TierComparison {
  lab::AttentionShape shape;
  DType storage = DType::f32;
  int threads = 0;                 ///< that were compared with one; 1: one thread alone was run
  std::int64_t rows = 0;           ///< of the call, B·H·T
  std::int64_t rows_compared = 0;  ///< of these, with the exact tier
  std::vector<TierRun> runs{};

  /// `differs` if any bound is broken or any bits differ; `undecided` if a tier or set that was run
  /// promises nothing of any number, or none was run.
  [[nodiscard]] Verdict verdict() const;
};

/// Runs the engine on each instruction set, with one thread and with several, and compares it with
/// the exact tier and the engine's bound; the plain loop (plain_row.h) likewise, for which nothing is
/// promised; and the exact tier, where the call is small, with the oracle and the exact tier's bound.
///
/// Shapes        any call's. The engine is skipped if D or E is more than its 512. Rows that are
///               compared are spread evenly over batch, heads and queries, the first and the last
///               among them; whether bits are the same is asked of all.
/// Edge cases    Every number of query, key and value must be one of the storage type, and every
///               number of the bias one of the type that it is summed in: nothing is rounded first.
/// Determinism   a function of the call, the options and the instruction sets that there are.
/// Fails         bad-option, bad-isa, and as `attention`; no-visible-key if a row is empty and
///               the call's empty_row is `error`.
/// Cost          the engine's, twice for each instruction set (once if threads is 1), and about
///               twice the exact tier's for the rows that are compared.
/// See also      engine_bound · lab::bound_attention.
[[nodiscard]] Result<TierComparison> compare_tiers(const AttentionCase& call,
                                                   const CompareTiersOptions& options);

/// A line for each tier and stage: the largest error, the bound of that number, the largest used
/// fraction of a bound and where that is; then the verdict.
[[nodiscard]] std::string to_text(const TierComparison& comparison);
[[nodiscard]] std::string to_json(const TierComparison& comparison);

}  // namespace attest::check
