// SPDX-License-Identifier: MIT
#pragma once

#include <vector>

#include "attest/base/dtype.h"
#include "attest/lab/attention_row.h"

namespace attest::check {

/// One row of output by the loop that everybody writes first: all scores, their exponentials, their
/// sum, then the mix, one after another in the type that `storage` is summed in, with the host's exp
/// and tanh. What the engine's errors are seen beside; nothing is promised of it.
///
/// Shapes        [E], rounded to the storage type.
/// Mask          as `exact` says, which is that row of the exact tier; so are ALiBi's terms.
/// Edge cases    zeros where no key is visible.
/// Cost          2·(D + E) operations a visible key, one by one.
[[nodiscard]] std::vector<double> plain_row(const lab::AttentionCall& call, lab::RowPlace at,
                                            const lab::AttentionRow& exact, DType storage);

}  // namespace attest::check
