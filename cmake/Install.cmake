# `cmake --install build/release [--prefix DIR]`: installs the programs, their data, man pages, completion of shells and
# the documentation. Components: `programs` (all that), `client` (libpushpull.so with header, CMake package and
# pkg-config file), and `tests`, which scripts/package.sh adds: the tests that need a device.

foreach(program pushpull pushpull-proxy pushpull-server pushpull-worker)
  if(TARGET ${program})
    install(TARGETS ${program} RUNTIME)
  endif()
endforeach()
install(PROGRAMS scripts/netlab.sh DESTINATION ${CMAKE_INSTALL_BINDIR} RENAME pushpull-netlab)
if(EXISTS ${PROJECT_SOURCE_DIR}/datasets/digits)
  install(DIRECTORY datasets/digits DESTINATION ${CMAKE_INSTALL_DATADIR}/pushpull)
endif()
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY docs/ DESTINATION ${CMAKE_INSTALL_DOCDIR} FILES_MATCHING PATTERN "*.md" PATTERN "*.ini" PATTERN "*.png")

# Made by the programs themselves, from their tables of options.
if(TARGET pushpull AND NOT PUSHPULL_SANITIZE)
  set(manual ${PROJECT_BINARY_DIR}/manual)
  set(programs pushpull pushpull-server pushpull-worker pushpull-proxy)
  add_custom_command(OUTPUT ${manual}/made
    COMMAND ${PROJECT_SOURCE_DIR}/scripts/manual.sh ${CMAKE_RUNTIME_OUTPUT_DIRECTORY} ${manual}
    COMMAND ${CMAKE_COMMAND} -E touch ${manual}/made
    DEPENDS ${programs} ${PROJECT_SOURCE_DIR}/scripts/manual.sh VERBATIM)
  add_custom_target(manual ALL DEPENDS ${manual}/made)
  install(DIRECTORY ${manual}/man/ DESTINATION ${CMAKE_INSTALL_MANDIR})
  install(DIRECTORY ${manual}/bash/ DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
  # Debian's zsh has no site-functions below /usr.
  install(CODE "
    set(folder site-functions)
    if(CMAKE_INSTALL_PREFIX MATCHES \"/usr$\")
      set(folder vendor-completions)
    endif()
    file(INSTALL ${manual}/zsh/ DESTINATION \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DATADIR}/zsh/\${folder}\")")
  install(DIRECTORY ${manual}/fish/ DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
endif()

# Each package of Debian has its own copies of these two.
configure_file(scripts/package/changelog.in ${PROJECT_BINARY_DIR}/package/changelog @ONLY)
execute_process(COMMAND gzip -9nf ${PROJECT_BINARY_DIR}/package/changelog COMMAND_ERROR_IS_FATAL ANY)
set(notes scripts/package/copyright ${PROJECT_BINARY_DIR}/package/changelog.gz)
install(FILES ${notes} DESTINATION ${CMAKE_INSTALL_DOCDIR})
if(TARGET pushpull_shared)
  install(FILES ${notes} DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/libpushpull-dev COMPONENT client EXCLUDE_FROM_ALL)
endif()

# `cpack -G DEB --config build/cpu/CPackConfig.cmake`, which scripts/package.sh --deb calls: two packages for Debian.
set(CPACK_PACKAGE_NAME pushpull)
set(CPACK_PACKAGE_VENDOR pushpull)
set(CPACK_PACKAGE_CONTACT "the authors of pushpull <maintainers@pushpull.invalid>")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
  OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_COMPONENTS_ALL programs client)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_PROGRAMS_PACKAGE_NAME pushpull)
set(CPACK_DEBIAN_PROGRAMS_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PROGRAMS_PACKAGE_SUGGESTS "iproute2, nftables, libpushpull-dev")
set(CPACK_COMPONENT_PROGRAMS_DESCRIPTION "Servers hold the weights and apply the optimizer; workers compute
gradients, push them and pull the new weights. One job file runs under
several strategies, from synchronous to asynchronous. In sync, the
trained weights have the same bits for any number of workers and servers.")
set(CPACK_DEBIAN_CLIENT_PACKAGE_NAME libpushpull-dev)
set(CPACK_DEBIAN_CLIENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_CLIENT_PACKAGE_CONTROL_EXTRA ${PROJECT_SOURCE_DIR}/scripts/package/triggers)
set(CPACK_COMPONENT_CLIENT_DESCRIPTION "This package has libpushpull.so, a worker for programs with a model of
their own, with its header in C, and the files for CMake and pkg-config.")
include(CPack)
