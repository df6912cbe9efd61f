// SPDX-License-Identifier: MIT
#include "attest/base/view.h"  // forbidden
