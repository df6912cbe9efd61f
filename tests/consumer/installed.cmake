# SPDX-License-Identifier: MIT
# Every header of attest/ is installed under its own path, and so are the other files.

file(GLOB_RECURSE headers RELATIVE "${SOURCE}" "${SOURCE}/attest/*.h")
list(TRANSFORM headers PREPEND "${INCLUDE}/")
set(files ${headers} "${MAN}/man1/attest.1" "${DATA}/doc/attest/LICENSE"
    "${DATA}/bash-completion/completions/attest" "${DATA}/zsh/site-functions/_attest"
    "${DATA}/fish/vendor_completions.d/attest.fish")
foreach(file IN LISTS files)
  if(NOT EXISTS "${PREFIX}/${file}")
    message(SEND_ERROR "not installed: ${file}")
  endif()
endforeach()
