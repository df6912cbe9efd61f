// SPDX-License-Identifier: MIT
#include <nlohmann/json.hpp>
#include "npy.h"  // forbidden
#include "../base/view.h"  // forbidden
#include ATTEST_HIDDEN_INCLUDE  // forbidden
