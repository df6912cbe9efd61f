# SPDX-License-Identifier: MIT
# Fails unless all files of OUTPUTS hold the same text.

list(LENGTH OUTPUTS count)
if(count LESS 2)
  message(FATAL_ERROR "bits: nothing to compare")
endif()
list(POP_FRONT OUTPUTS first)
file(READ "${first}" expected)
cmake_path(GET first STEM first_name)
foreach(file IN LISTS OUTPUTS)
  file(READ "${file}" said)
  if(NOT said STREQUAL expected)
    cmake_path(GET file STEM name)
    message(SEND_ERROR "bits: ${name} differs from ${first_name}\n"
                       "${first_name}:\n${expected}\n${name}:\n${said}")
  endif()
endforeach()
