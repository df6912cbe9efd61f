// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>

#include "attest/check/gradients/evaluate.h"

/// Which queries and keys of a large call are looked at.
namespace attest::check::gradients {

/// The queries and keys that are most wrong, some that lie about, and those where wrong begins and ends.
[[nodiscard]] Sample telling_sample(const Problem& problem, const AllCells& right);

/// Three queries and two keys of each head: enough to see that most recipes do not fit.
[[nodiscard]] Workspace few_cells(const Workspace& workspace);

/// So many single mistakes are paired that the few cells of all pairs take about a second.
[[nodiscard]] std::size_t most_paired(const Workspace& few);

/// Backward passes over the whole call that a search may take: as many as 4·10¹⁰ products have, one of
/// 12 heads of 1024 × 1024 pairs and 64 features having 4·10⁹; two at least.
[[nodiscard]] int most_whole_passes(const Problem& problem);

/// Products of one backward pass.
[[nodiscard]] double products_of(const Problem& problem);

}  // namespace attest::check::gradients
