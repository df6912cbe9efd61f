# SPDX-License-Identifier: MIT
# One test with the label tidy for each source file of the library and the command.

find_program(CLANG_TIDY NAMES clang-tidy-14 clang-tidy REQUIRED)

file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/attest/*.cpp"
                                            "${PROJECT_SOURCE_DIR}/frontends/*.cpp")
foreach(source IN LISTS sources)
  cmake_path(RELATIVE_PATH source BASE_DIRECTORY "${PROJECT_SOURCE_DIR}" OUTPUT_VARIABLE name)
  add_test(NAME tidy.${name}
           COMMAND "${CLANG_TIDY}" --quiet -p "${PROJECT_BINARY_DIR}" "${source}")
  set_tests_properties(tidy.${name} PROPERTIES LABELS tidy TIMEOUT 300)
endforeach()
