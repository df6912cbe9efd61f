// SPDX-License-Identifier: MIT
// The foundation knows nobody.
#include <vector>
#include "attest/base/view.h"
#include "attest/lab/exact_sum.h"  // forbidden
#include <attest/io/npy.h>  // forbidden
#include <boost/multiprecision/cpp_int.hpp>  // forbidden
/* A picture in a comment is no arrow:
#include "attest/lab/exact_sum.h"
*/
