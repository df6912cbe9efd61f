# SPDX-License-Identifier: MIT
# cmake --install brings the libraries, the headers under attest/, the CMake package, the program,
# its man page and completions, and the licence.

include(CMakePackageConfigHelpers)
set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/attest")

get_property(rooms GLOBAL PROPERTY ATTEST_ROOMS)
install(TARGETS ${rooms} attest_everything EXPORT attest_targets FILE_SET HEADERS FILE_SET kernels)
install(EXPORT attest_targets NAMESPACE attest:: FILE attestTargets.cmake DESTINATION ${package_dir})

configure_package_config_file(cmake/attestConfig.cmake.in attestConfig.cmake
                              INSTALL_DESTINATION ${package_dir})
# Before 1.0 a minor version may change the interface.
write_basic_package_version_file(attestConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/attestConfig.cmake"
              "${PROJECT_BINARY_DIR}/attestConfigVersion.cmake" DESTINATION ${package_dir})

install(FILES LICENSE DESTINATION "${CMAKE_INSTALL_DATADIR}/doc/attest")

if(ATTEST_CLI)
  install(TARGETS attest)
  install(FILES docs/man/attest.1 DESTINATION "${CMAKE_INSTALL_MANDIR}/man1")
  set(completions "${PROJECT_SOURCE_DIR}/frontends/cli/completions")
  install(FILES "${completions}/attest.bash" RENAME attest
          DESTINATION "${CMAKE_INSTALL_DATADIR}/bash-completion/completions")
  install(FILES "${completions}/_attest"
          DESTINATION "${CMAKE_INSTALL_DATADIR}/zsh/site-functions")
  install(FILES "${completions}/attest.fish"
          DESTINATION "${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d")
endif()
