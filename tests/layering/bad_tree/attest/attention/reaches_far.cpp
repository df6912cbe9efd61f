// SPDX-License-Identifier: MIT
#include "attest/attention/kernels/tile.h"
#include "attest/linalg/gemm.h"
#include "attest/linalg/kernels/gemm.h"  // forbidden
#include "attest/lab/attention.h"  // forbidden
#include "attest/io/npy.h"  // forbidden
