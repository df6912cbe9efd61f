// SPDX-License-Identifier: MIT
// Every float there is: what docs/accuracy.md says of exp2, tanh and log2 in f32 is proved by trying.
#include "tests/linalg/exp2_cases.h"

namespace attest::test {
namespace {

TEST(Exp2Long, OfEveryFloatErrsByLessThanItsConstant) { judge_exp2(1); }
TEST(Exp2Long, OfEveryProductRoundsTheProductOnce) { judge_exp2_of_product(1); }
TEST(Exp2Long, TanhOfEveryFloatErrsByLessThanItsConstant) { judge_tanh(1); }
TEST(Exp2Long, Log2OfEveryFloatErrsByLessThanItsConstant) { judge_log2(1); }

}  // namespace
}  // namespace attest::test
