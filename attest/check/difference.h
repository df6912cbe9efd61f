// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "attest/base/dtype.h"
#include "attest/base/tensor.h"
#include "attest/io/named_tensors.h"
#include "attest/lab/stage.h"

namespace attest::check {

/// Named tables in order of computation: what a file, or a trace, holds.
using NamedStages = std::vector<std::pair<std::string, AnyTensor>>;
[[nodiscard]] NamedStages to_stages(const io::NamedTensors& tensors);
[[nodiscard]] NamedStages to_stages(const std::vector<lab::Stage>& stages);

/// What a NaN that stands at the same place in both sets proves.
enum class SharedNaN {
  undecided,  ///< nothing: a comparison with NaN cannot pass, so the verdict is no match
  matches,    ///< that the patterns agree: for rows that are NaN on purpose (EmptyRow::nan)
};

/// When two numbers count as the same. Nothing chosen: only if they are the same number, the signs
/// of zeros included. Otherwise it is enough that any one of the chosen limits holds.
struct DifferenceOptions {
  std::optional<std::uint64_t> ulp{};  ///< steps on the grid of the coarser dtype
  std::optional<double> absolute{};    ///< |second − first|
  std::optional<double> relative{};    ///< |second − first| / |first|
  SharedNaN shared_nan = SharedNaN::undecided;
};

enum class DifferenceKind {
  none,
  number,    ///< two finite numbers outside the tolerance
  infinity,  ///< an infinity, and another number
  nan,       ///< a NaN in one of them
  shape,     ///< no element of this stage can be compared
  missing,   ///< the stage is in one of the sets only
};
/// "number", "nan" …
[[nodiscard]] std::string_view name_of(DifferenceKind kind) noexcept;

enum class Verdict {
  match,      ///< every number was compared, and there was at least one
  differs,    ///< some number, shape or name differs
  undecided,  ///< nothing differs, but 0 elements were compared, or a NaN stands in both
};
[[nodiscard]] std::string_view name_of(Verdict verdict) noexcept;

/// Two numbers at one address, and how far apart they are.
struct ElementDifference {
  std::string address;  ///< "h1.weights[2,0]"
  DifferenceKind kind = DifferenceKind::none;
  double first = 0;
  double second = 0;
  double absolute = 0;    ///< |second − first|; infinite for infinities, NaN beside a NaN
  double relative = 0;    ///< absolute / |first|; 0 if equal, infinite if first is 0
  std::uint64_t ulp = 0;  ///< the largest there is for NaN and infinities
};

/// Everything about one name.
struct StageDifference {
  std::string name;
  Verdict verdict = Verdict::undecided;
  DifferenceKind structure = DifferenceKind::none;  ///< shape, missing, or none
  std::string note;                                 ///< "only in the first set", both shapes, …
  DType coarser = DType::f64;                       ///< ulps are counted on this grid
  std::int64_t compared = 0;                        ///< elements where both are numbers
  std::int64_t differing = 0;  ///< elements outside the tolerance, NaNs included
  std::int64_t nan_in_both = 0;
  std::int64_t nan_in_first = 0;   ///< alone
  std::int64_t nan_in_second = 0;  ///< alone
  double max_absolute = 0;         ///< over compared elements
  double max_relative = 0;
  std::uint64_t max_ulp = 0;
  std::optional<ElementDifference> first;  ///< the first place that differs; NaNs before all
  std::optional<ElementDifference> worst;  ///< the place of max_absolute, if it is not 0
};

struct DifferenceReport {
  std::vector<StageDifference> stages;  ///< as in the first set, then those of the second alone
  Verdict verdict = Verdict::undecided;
  std::int64_t compared = 0;
  std::int64_t differing = 0;
  std::optional<ElementDifference> first;  ///< of the first stage that differs
};

/// How many numbers of that type one must step over from a to b: 1 for neighbours, 0 between +0 and
/// −0, across zero the steps on both sides. Values are first rounded to the type. The largest
/// number there is if one is NaN, or exactly one of them infinite. Integers and booleans: |a − b|,
/// at most 2⁶³.
[[nodiscard]] std::uint64_t ulp_distance(double a, double b, DType grid) noexcept;

/// The floating-point dtype with fewer fraction bits; f64 if there is none among the two.
[[nodiscard]] DType coarser_of(DType a, DType b) noexcept;

/// Compares two dumps name by name, the first set being the reference.
///
/// Order         patterns before numbers: the first difference of a stage is a place where exactly
///               one of them is NaN, if there is one, else the first place outside the tolerance.
/// Edge cases    A NaN never passes. Infinities are equal if their signs are. Stages of other shape
///               or missing in one set differ. A comparison of 0 elements is undecided, never a
///               match. Integers are compared exactly, also those that a double cannot hold.
/// Cost          one walk over both sets.
[[nodiscard]] DifferenceReport compare(const NamedStages& first, const NamedStages& second,
                                       const DifferenceOptions& options = {});

/// One line a stage, then the first difference, then the verdict with the count compared.
[[nodiscard]] std::string to_text(const DifferenceReport& report);
[[nodiscard]] std::string to_json(const DifferenceReport& report);

}  // namespace attest::check
