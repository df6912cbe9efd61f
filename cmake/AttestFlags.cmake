# SPDX-License-Identifier: MIT
# How everything of ours is compiled: linked PRIVATE by each of our targets, never handed to users.

add_library(attest_flags INTERFACE)
target_compile_features(attest_flags INTERFACE cxx_std_20)

# No fused multiply-add that is not written: the exact tier's bits must not depend on the compiler.
# No fast-math and no -march either, for the same reason.
target_compile_options(attest_flags INTERFACE -ffp-contract=off)

target_compile_options(attest_flags INTERFACE -Wall -Wextra -Wconversion -Wshadow)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # "text" + std::string makes g++ 12 warn about its own library (GCC bug 105651).
  target_compile_options(attest_flags INTERFACE -Wno-restrict)
endif()
if(ATTEST_WERROR)
  target_compile_options(attest_flags INTERFACE -Werror)
endif()

if(ATTEST_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "ATTEST_FUZZ needs clang: configure with the preset asan")
  endif()
endif()

# The address sanitizer calls a function before each access of a kernel, instead of writing the check
# out. What is found is the same, and tests take as long; but a check written out is one more exit of
# its loop, and clang's analysis of branches is quadratic in those: backward.cpp took 542 s for
# AVX-512, and takes 70.
add_library(attest_kernel_sanitizers INTERFACE)
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang" AND CMAKE_CXX_FLAGS MATCHES "-fsanitize=[a-z,]*address")
  target_compile_options(attest_kernel_sanitizers INTERFACE
    "SHELL:-mllvm -asan-instrumentation-with-call-threshold=0")
endif()
