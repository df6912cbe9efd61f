// SPDX-License-Identifier: MIT
#include "attest/text/tokens.h"
#include "attest/lab/layers.h"  // forbidden
