// SPDX-License-Identifier: MIT
// Tensors hold numbers: what is copied byte by byte.
// expect: (static assertion|static_assert)

#include <string>

#include "attest/base/tensor.h"

attest::Tensor<double> numbers({2, 2});
#ifdef ATTEST_BAD
attest::Tensor<std::string> texts({2, 2});
#endif
