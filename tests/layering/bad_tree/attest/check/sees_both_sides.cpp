// SPDX-License-Identifier: MIT
#include "attest/lab/attention.h"
#include "attest/lab/oracle/attention.h"
#include "attest/attention/attention.h"
#include "attest/model/transformer.h"
#include "attest/text/tokens.h"  // forbidden
