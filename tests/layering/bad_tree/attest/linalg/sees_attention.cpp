// SPDX-License-Identifier: MIT
#include "attest/linalg/kernels/gemm.h"
#include "attest/attention/attention.h"  // forbidden
