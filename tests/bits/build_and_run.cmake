# SPDX-License-Identifier: MIT
# Configures and builds tests/bits/program with one compiler and runs it into OUTPUT.

set(step COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${CMAKE_COMMAND} -S "${PROJECT}" -B "${BUILD}" -G "${GENERATOR}"
                "-DCMAKE_CXX_COMPILER=${COMPILER}" "-DCMAKE_CXX_FLAGS=${FLAGS}"
                "-DCMAKE_CXX_COMPILER_LAUNCHER=${LAUNCHER}" ${step})
execute_process(COMMAND ${CMAKE_COMMAND} --build "${BUILD}" ${step})
execute_process(COMMAND "${BUILD}/hash_bits" OUTPUT_VARIABLE said ${step})
if(said STREQUAL "")
  message(FATAL_ERROR "bits: the program printed nothing")
endif()
file(WRITE "${OUTPUT}" "${said}")
message("${said}")
