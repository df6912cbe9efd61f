# SPDX-License-Identifier: MIT
# Runs the experiments of self_test.txt, none of which is as it must be but two, and expects every
# complaint in its own words, and no other.
execute_process(COMMAND "${DRIVER}" "${SETUP}" --table "${TABLE}" --work "${WORK}"
                RESULT_VARIABLE code OUTPUT_VARIABLE said ERROR_VARIABLE errors)
message("${said}${errors}")
if(NOT code EQUAL 1)
  message(FATAL_ERROR "self_test: the exit code must be 1, but was ${code}")
endif()
set(expected
  "comment_changed: SURVIVED"
  "comment_changed: no fixture shows it"
  "not_found: DID NOT APPLY, the edit did not apply: found 0 times"
  "found_twice: DID NOT APPLY, the edit did not apply: found"
  "second_place_not_found: DID NOT APPLY, the edit did not apply: found 0 times"
  "not_c_plus_plus: DID NOT COMPILE"
  "crash: FAILED, BUT NOT BY ASSERTION, breaks off in "
  "no_scale_again: looks like no_scale on all fixtures"
  "2 of 8 mistakes killed, 8 complaints")
foreach(words IN LISTS expected)
  string(FIND "${said}" "${words}" place)
  if(place EQUAL -1)
    message(FATAL_ERROR "self_test: missing: ${words}")
  endif()
endforeach()
