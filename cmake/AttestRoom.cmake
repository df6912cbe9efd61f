# SPDX-License-Identifier: MIT
# attest_room(NAME [USES ROOM...]) makes a static library of one folder below attest/.
#
# The folder list is the architecture: a file added to a room is found without a second edit, and a
# room may use only the rooms that the picture in tests/layering allows. Two parts of lab are rooms of
# their own, so that the exact tier is seen to need neither: `oracle` and `bound`.
function(attest_room name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "USES")
  set(parts_of_lab oracle bound)
  if(name IN_LIST parts_of_lab)
    set(pattern "${PROJECT_SOURCE_DIR}/attest/lab/${name}")
    file(GLOB_RECURSE headers CONFIGURE_DEPENDS "${pattern}.h" "${pattern}_*.h" "${pattern}/*.h")
    file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${pattern}.cpp" "${pattern}_*.cpp"
                                                "${pattern}/*.cpp")
  else()
    set(folder "${PROJECT_SOURCE_DIR}/attest/${name}")
    file(GLOB_RECURSE headers CONFIGURE_DEPENDS "${folder}/*.h")
    file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${folder}/*.cpp")
    list(FILTER headers EXCLUDE REGEX "/attest/lab/(oracle|bound)[./_]")
    list(FILTER sources EXCLUDE REGEX "/attest/lab/(oracle|bound)[./_]")
  endif()
  list(TRANSFORM arg_USES PREPEND attest_)

  set(target attest_${name})
  set(scope PUBLIC)
  if(sources)
    add_library(${target} STATIC ${sources})
    set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF POSITION_INDEPENDENT_CODE ON)
    # BUILD_INTERFACE: the flags are ours alone, an installed package need not know them.
    target_link_libraries(${target} PRIVATE $<BUILD_INTERFACE:attest_flags>)
    if(ATTEST_FUZZ)  # coverage for the fuzzers; the other programs do not notice
      target_compile_options(${target} PRIVATE -fsanitize=fuzzer-no-link)
    endif()
  else()  # headers only, or nothing yet
    add_library(${target} INTERFACE)
    set(scope INTERFACE)
  endif()
  add_library(attest::${name} ALIAS ${target})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${name})
  target_compile_features(${target} ${scope} cxx_std_20)
  target_link_libraries(${target} ${scope} ${arg_USES})
  target_sources(${target} ${scope} FILE_SET HEADERS BASE_DIRS "${PROJECT_SOURCE_DIR}"
                                    FILES ${headers})
  set_property(GLOBAL APPEND PROPERTY ATTEST_ROOMS ${target})
endfunction()
