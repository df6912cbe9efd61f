// SPDX-License-Identifier: MIT
#pragma once

/// The one header of the fast tier: attention and the layers around it, forward and backward.
///
/// The exact tier has headers of its own (attest/lab/…), and so have files (attest/io/…), the checker
/// (attest/check/…) and the C interface (attest/attention/attest_c.h).

#include "attest/attention/attention.h"
#include "attest/attention/attention_backward.h"
#include "attest/attention/kv_cache.h"
#include "attest/attention/onnx_attention.h"
#include "attest/base/attention_call.h"
#include "attest/base/config.h"
#include "attest/base/dtype.h"
#include "attest/base/error.h"
#include "attest/base/mask.h"
#include "attest/base/result.h"
#include "attest/base/tensor.h"
#include "attest/base/threads.h"
#include "attest/base/view.h"
#include "attest/linalg/activations.h"
#include "attest/linalg/execution.h"
#include "attest/linalg/gemm.h"
#include "attest/linalg/isa.h"
#include "attest/linalg/norms.h"
#include "attest/linalg/rope.h"
#include "attest/linalg/softmax.h"
