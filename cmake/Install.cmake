# `cmake --install build/release [--prefix DIR]`: installs the programs, their data and the documentation. The
# component `tests`, which scripts/package.sh adds, contains the tests that need a device.

# A package contains the libraries that a bare machine lacks. Programs find them relative to their own folder, wherever
# the package is unpacked; without a package the folder does not exist. Uses DT_RPATH, which also applies to the
# libraries' own dependencies; DT_RUNPATH does not.
function(pushpull_relocatable target)
  # In the build tree too: CMake would pad the path with colons there, and an empty entry means the current folder.
  set_target_properties(${target} PROPERTIES BUILD_WITH_INSTALL_RPATH ON
    INSTALL_RPATH "$ORIGIN/../lib/pushpull")
  target_link_options(${target} PRIVATE -Wl,--disable-new-dtags)
endfunction()

foreach(program pushpull pushpull-proxy pushpull-server pushpull-worker)
  if(TARGET ${program})
    pushpull_relocatable(${program})
    install(TARGETS ${program} RUNTIME)
  endif()
endforeach()
install(PROGRAMS scripts/netlab.sh DESTINATION ${CMAKE_INSTALL_BINDIR} RENAME pushpull-netlab)
if(EXISTS ${PROJECT_SOURCE_DIR}/datasets/digits)
  install(DIRECTORY datasets/digits DESTINATION ${CMAKE_INSTALL_DATADIR}/pushpull)
endif()
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY docs/ DESTINATION ${CMAKE_INSTALL_DOCDIR} FILES_MATCHING PATTERN "*.md" PATTERN "*.ini")
