// SPDX-License-Identifier: MIT
#pragma once

#include <optional>

#include "attest/base/config.h"
#include "attest/base/dtype.h"
#include "attest/base/result.h"
#include "attest/base/view.h"
#include "attest/linalg/execution.h"

/// Matrix products.
namespace attest {

/// What becomes of what was in C.
enum class Into {
  overwrite,   ///< it is never read
  accumulate,  ///< the product is added to it: sums of gradients
};

/// Options of `gemm`; Sum is float, or double for double matrices.
template <class Sum>
struct GemmOptions {
  View<const Sum, 1> bias{};               ///< [N], added to each row; absent: none
  std::optional<Activation> activation{};  ///< of every element, after the bias; nothing: none
  Into into = Into::overwrite;             ///< accumulate takes neither bias nor activation
};

/// The product of two matrices. Overwrites `c`, or accumulates into it.
///
///     c = activation(a·b + bias)     or     c = c + a·b
///
///     relu       max(0, x), NaN stays          gelu_erf   x·Φ(x) = x/2 · (1 + erf(x/√2))
///     silu       x / (1 + exp(−x))             gelu_tanh  x/2 · (1 + tanh(√(2/π)·(x + 0.044715 x³)))
///
/// Shapes        a [M, K], b [K, N], c [M, N], bias [N]; any of M, N, K may be 0. Strides say
///               transposes: `a.swapped(0, 1)`. Any strides are read (fast: either axis of stride 1);
///               c is written anywhere, fast if its columns lie beside each other. c overlaps nothing.
/// Types         float, double; Half and BFloat16 into their own type or float, summed in float.
/// Edge cases    K = 0: the sum is 0. NaN and infinity propagate as IEEE 754 has it: 0·∞ is NaN.
///               The instruction sets avx512bf16 and amx take subnormal bfloat16 inputs, and
///               subnormal sums, for 0.
/// Accuracy      |error| ≤ γ·Σ_k |a_ik·b_kj|, γ = n·u/(1 − n·u), n = min(K, 512) + ⌈K/224⌉, one
///               more when accumulating; then one rounding for the bias, the activation's (that of
///               activations.h), and one to 16 bits. docs/accuracy.md, "Matrix products".
/// Determinism   the same bits for any number of threads, per instruction set, and whatever the host's
///               rounding mode; and a row of c does not depend on how many other rows there are: it is
///               summed in one order always.
/// Throws        ShapeError, ValueError: shape-mismatch, bad-option, bad-isa.
/// Cost          2·M·N·K flops; up to 8 rows, 16 if b's columns lie in memory, read b once, in place
///               (not amx). Scratch of at most 13 MiB and 0.6 MiB a worker, which the calling thread keeps.
/// Sources       Goto, van de Geijn 2008 (doi:10.1145/1356052.1356053); Van Zee, van de Geijn 2015
///               (doi:10.1145/2764454).
/// See also      lab::workbook::matmul.
void gemm(View<float, 2> c, View<const float, 2> a, View<const float, 2> b,
          const GemmOptions<float>& options = {}, const Execution& execution = {});
void gemm(View<double, 2> c, View<const double, 2> a, View<const double, 2> b,
          const GemmOptions<double>& options = {}, const Execution& execution = {});
void gemm(View<BFloat16, 2> c, View<const BFloat16, 2> a, View<const BFloat16, 2> b,
          const GemmOptions<float>& options = {}, const Execution& execution = {});
void gemm(View<float, 2> c, View<const BFloat16, 2> a, View<const BFloat16, 2> b,
          const GemmOptions<float>& options = {}, const Execution& execution = {});
void gemm(View<Half, 2> c, View<const Half, 2> a, View<const Half, 2> b,
          const GemmOptions<float>& options = {}, const Execution& execution = {});
void gemm(View<float, 2> c, View<const Half, 2> a, View<const Half, 2> b,
          const GemmOptions<float>& options = {}, const Execution& execution = {});

/// The same without exceptions, for callers that have none. Never throws but for memory that cannot
/// be had. On failure `c` is untouched.
[[nodiscard]] Result<void> try_gemm(View<float, 2> c, View<const float, 2> a,
                                    View<const float, 2> b, const GemmOptions<float>& options = {},
                                    const Execution& execution = {});
[[nodiscard]] Result<void> try_gemm(View<double, 2> c, View<const double, 2> a,
                                    View<const double, 2> b,
                                    const GemmOptions<double>& options = {},
                                    const Execution& execution = {});
[[nodiscard]] Result<void> try_gemm(View<BFloat16, 2> c, View<const BFloat16, 2> a,
                                    View<const BFloat16, 2> b,
                                    const GemmOptions<float>& options = {},
                                    const Execution& execution = {});
[[nodiscard]] Result<void> try_gemm(View<float, 2> c, View<const BFloat16, 2> a,
                                    View<const BFloat16, 2> b,
                                    const GemmOptions<float>& options = {},
                                    const Execution& execution = {});
[[nodiscard]] Result<void> try_gemm(View<Half, 2> c, View<const Half, 2> a, View<const Half, 2> b,
                                    const GemmOptions<float>& options = {},
                                    const Execution& execution = {});
[[nodiscard]] Result<void> try_gemm(View<float, 2> c, View<const Half, 2> a, View<const Half, 2> b,
                                    const GemmOptions<float>& options = {},
                                    const Execution& execution = {});

}  // namespace attest
