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
    list(FILTER sources EXCLUDE REGEX "/kernels/")
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
  # Kernel headers go along, since others name them, but only those of the public set stand alone: a
  # kernel's header needs ATTEST_ISA.
  set(kernels ${headers})
  list(FILTER kernels INCLUDE REGEX "/kernels/")
  list(FILTER headers EXCLUDE REGEX "/kernels/")
  target_sources(${target} ${scope}
    FILE_SET HEADERS BASE_DIRS "${PROJECT_SOURCE_DIR}" FILES ${headers}
    FILE_SET kernels TYPE HEADERS BASE_DIRS "${PROJECT_SOURCE_DIR}" FILES ${kernels})
  set_target_properties(${target} PROPERTIES INTERFACE_HEADER_SETS_TO_VERIFY HEADERS)
  set_property(GLOBAL APPEND PROPERTY ATTEST_ROOMS ${target})
  attest_kernels(${name})
endfunction()

# Every attest/ROOM/kernels/NAME.cpp is compiled once for each instruction set, as namespace
# attest::kernels::ISA; NAME_avx512bf16.cpp and NAME_amx.cpp for that set alone. docs/kernels.md.
function(attest_kernels room)
  file(GLOB bodies CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/attest/${room}/kernels/*.cpp")
  if(NOT bodies)
    return()
  endif()
  set(own_avx512bf16 ${bodies})
  list(FILTER own_avx512bf16 INCLUDE REGEX "_avx512bf16\\.cpp$")
  set(own_amx ${bodies})
  list(FILTER own_amx INCLUDE REGEX "_amx\\.cpp$")
  list(FILTER bodies EXCLUDE REGEX "_(avx512bf16|amx)\\.cpp$")

  attest_kernels_for(${room} portable "" "${bodies}")
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
    set(avx2 -mavx2 -mfma -mf16c)
    set(avx512 ${avx2} -mavx512f -mavx512bw -mavx512dq -mavx512vl)
    attest_kernels_for(${room} avx2 "${avx2}" "${bodies}")
    attest_kernels_for(${room} avx512 "${avx512}" "${bodies}")
    attest_kernels_for(${room} avx512bf16 "${avx512};-mavx512bf16" "${own_avx512bf16}")
    attest_kernels_for(${room} amx "${avx512};-mavx512bf16;-mamx-tile;-mamx-bf16" "${own_amx}")
  endif()
endfunction()

function(attest_kernels_for room isa flags sources)
  if(NOT sources)
    return()
  endif()
  set(target attest_${room}_${isa})
  add_library(${target} OBJECT ${sources})
  set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF POSITION_INDEPENDENT_CODE ON)
  target_link_libraries(${target} PRIVATE attest_flags attest_kernel_sanitizers)
  target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}")
  target_compile_definitions(${target} PRIVATE ATTEST_ISA=${isa})
  # A warning about how wide vectors are passed does not matter where everything is inlined.
  set(speed -O3)
  if(CMAKE_CXX_FLAGS MATCHES "-fsanitize=")
    set(speed -O1)
  endif()
  target_compile_options(${target} PRIVATE ${speed} -fno-exceptions -Wno-psabi ${flags})
  # Twice the time of all other checks together, for what the same bodies say of themselves in the copies
  # for portable and avx2: arithmetic on null pointers and around the end of memory.
  if(isa STREQUAL "avx512" AND CMAKE_CXX_FLAGS MATCHES "-fsanitize=[a-z,]*undefined")
    target_compile_options(${target} PRIVATE -fno-sanitize=pointer-overflow)
  endif()
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    # g++ 12 finds its own AVX-512 headers uninitialized (GCC bug 105593).
    target_compile_options(${target} PRIVATE -Wno-uninitialized -Wno-maybe-uninitialized)
  endif()
  target_sources(attest_${room} PRIVATE $<TARGET_OBJECTS:${target}>)
endfunction()
