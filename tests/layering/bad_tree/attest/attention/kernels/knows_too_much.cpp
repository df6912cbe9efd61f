// SPDX-License-Identifier: MIT
#include "attest/attention/kernels/tile.h"
#include "attest/attention/attention.h"  // forbidden
#include "attest/base/tensor.h"  // forbidden
