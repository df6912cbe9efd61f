// SPDX-License-Identifier: MIT
#include "attest/io/json.h"
#include "attest/model/transformer.h"  // forbidden
