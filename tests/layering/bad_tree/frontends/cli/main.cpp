// SPDX-License-Identifier: MIT
#include <CLI/CLI.hpp>
#include "attest/check/compare.h"
#include "frontends/cli/options.h"
#include "options.h"
#include "attest/attention/kernels/tile.h"  // forbidden
#include "frontends/python/module.h"  // forbidden
#include "nowhere.h"  // forbidden
#include <zlib.h>  // forbidden
