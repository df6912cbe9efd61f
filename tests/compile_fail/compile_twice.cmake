# SPDX-License-Identifier: MIT
# cmake -DCOMPILER=… -DFLAGS=… -DINCLUDE=… -DSOURCE=… -P compile_twice.cmake

file(STRINGS "${SOURCE}" expected REGEX "^// expect: ")
if(NOT expected)
  message(FATAL_ERROR "compile_fail: no_expectation: ${SOURCE} has no line '// expect: REGEX'")
endif()
string(REPLACE "// expect: " "" expected "${expected}")

# One warning of its own must not stop the good half: only what the project promises is an error.
set(command "${COMPILER}" -std=c++20 ${FLAGS} -Wno-unused-variable -Wno-unused-parameter
            -Wno-unused-but-set-variable "-I${INCLUDE}" -fsyntax-only)
execute_process(COMMAND ${command} "${SOURCE}" RESULT_VARIABLE good ERROR_VARIABLE said)
if(NOT good EQUAL 0)
  message(FATAL_ERROR "compile_fail: good_half_fails: without its bad line too\n${said}")
endif()
execute_process(COMMAND ${command} -DATTEST_BAD "${SOURCE}"
                RESULT_VARIABLE bad ERROR_VARIABLE said)
if(bad EQUAL 0)
  message(FATAL_ERROR "compile_fail: bad_line_compiles: the forbidden line is allowed\n${said}")
endif()
if(NOT said MATCHES "${expected}")
  message(FATAL_ERROR
          "compile_fail: other_reason: it fails, but not with '${expected}':\n${said}")
endif()
