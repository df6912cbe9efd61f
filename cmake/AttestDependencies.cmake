# SPDX-License-Identifier: MIT
# What the library itself needs; the command, tests and benchmarks look for their own needs.

find_package(Threads REQUIRED)
find_package(ZLIB REQUIRED)                # compressed npz
find_package(nlohmann_json 3.11 REQUIRED)  # JSON tensors; headers only
find_package(Boost 1.74 REQUIRED)          # the oracle's 50-digit numbers; headers only
