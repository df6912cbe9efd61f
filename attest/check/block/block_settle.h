// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "attest/check/block/block.h"
#include "attest/check/block/block_file.h"

/// What a block is, from its weights, its tables and what was said of it.
namespace attest::check::block {

/// What the names of a file's tables show.
struct TablesShown {
  bool gate = false;
  bool rope = false;                    ///< turned queries or keys
  bool gate_up = false;                 ///< one matrix holds gate and up
  bool qkv = false;                     ///< one matrix, or one table, holds query, key and value
  std::optional<PackedOrder> packed{};  ///< in this order, as the shape of a table shows
};

struct Said {
  std::vector<std::string>& assumed;  ///< "assumed: …; --norm says it"
  std::vector<std::string>& shown;    ///< what a tensor shows
};

/// Fills the config, but for its extents, and `assumed`; cuts packed weights as they are said, shown or
/// assumed to lie. Drops parameters that the block has no place for.
[[nodiscard]] Result<void> settle(BlockDump& dump, const BlockFileOptions& options,
                                  const TablesShown& tables, const Said& said);

}  // namespace attest::check::block
