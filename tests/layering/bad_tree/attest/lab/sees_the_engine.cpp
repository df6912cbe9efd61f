// SPDX-License-Identifier: MIT
// The exact tier must not see what it judges, nor who judges it.
#include "attest/lab/exact_sum.h"
#include "attest/base/mask.h"
#include "attest/attention/attention.h"  // forbidden
#  include "attest/linalg/gemm.h"  // forbidden
#include "attest/model/transformer.h"  // forbidden
#include "attest/check/compare.h"  // forbidden
#include "attest/lab/oracle/real.h"  // forbidden
#include "attest/lab/bound_row.h"  // forbidden
#include "attest/attic/old.h"  // forbidden
#include <fmt/format.h>  // forbidden
