// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "attest/base/result.h"
#include "attest/base/tensor.h"
#include "attest/lab/visibility.h"
#include "frontends/cli/case_layout.h"
#include "frontends/cli/check_options.h"

namespace attest::cli {

/// The shapes of a dump as they lie in its files; an empty shape is an absent tensor.
struct GivenShapes {
  Shape query{}, key{}, value{};
  Shape output{};
  Shape table{};                             ///< of the first score or weight table
  std::optional<std::int64_t> packed_end{};  ///< T, as cumulative lengths say it
};

/// How the inputs lie, and why that was taken.
struct ChosenLayout {
  FileLayout layout = FileLayout::bhtd;
  std::int64_t heads = 0, kv_heads = 0;  ///< of packed rows alone
  std::string why{};                     ///< a remark, or nothing where nothing was open
  /// Rank 3 was read as heads apart, and nothing says that it is: so many could stand side by side.
  std::vector<std::int64_t> packed_heads{};
};

/// The layout that the options say; else the only one in which query, key, value and what was produced
/// fit each other; else the convention's, or [B, H, T, D]. Fails with bad-layout, bad-heads, bad-rank.
[[nodiscard]] Result<ChosenLayout> choose_layout(const DumpOptions& options,
                                                 const std::optional<Convention>& convention,
                                                 const GivenShapes& shapes);

/// Where [B, H, T, E] stands in a table of a shape that has these extents in some order, with axes of 1
/// left out or heads side by side.
struct Arrangement {
  std::string axes{};  ///< "[B, T, H*E]"
  std::array<std::int64_t, 4> strides{};
};

/// Every way to read a tensor of that shape as [B, H, T, E]; those that give the same numbers count
/// once. The layout of the inputs stands first.
[[nodiscard]] std::vector<Arrangement> arrangements(const Shape& shape,
                                                    const std::array<std::int64_t, 4>& extents,
                                                    FileLayout first);

/// The tensor in the order [B, H, T, E]. `word` is what --output-layout says, or "". Remarks what was
/// chosen where several fit. Fails with bad-output-shape.
struct OutputRequest {
  std::string name;
  std::array<std::int64_t, 4> extents{};
  FileLayout inputs = FileLayout::bhtd;
  std::string word{};
};
[[nodiscard]] Result<Tensor<double>> arranged(const Tensor<double>& tensor,
                                              const OutputRequest& request,
                                              std::vector<std::string>& remarks);

/// A table [B, H, T, S], or log_sum_exp [B, H, T] (S = 0), of a shape that may lack axes of 1, have
/// batch and heads as one axis, or end with an axis of 1. Fails with bad-table-shape.
[[nodiscard]] Result<Tensor<double>> table_of(Tensor<double> tensor, std::string_view name,
                                              const lab::AttentionShape& shape);

}  // namespace attest::cli
