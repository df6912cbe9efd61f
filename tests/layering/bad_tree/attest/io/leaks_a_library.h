// SPDX-License-Identifier: MIT
#include <sys/stat.h>
#include "attest/base/tensor.h"
#include <nlohmann/json.hpp>  // forbidden
#include <Eigen/Core>  // forbidden
