// SPDX-License-Identifier: MIT
// Two answers that share arithmetic are one answer.
#include <boost/multiprecision/cpp_bin_float.hpp>
#include "attest/lab/elementary.h"  // forbidden
#include "attest/lab/bound.h"  // forbidden
