// SPDX-License-Identifier: MIT
#include <string>
