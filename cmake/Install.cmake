# `cmake --install build/release [--prefix DIR]`: the programs, the data that ship with them, and
# what a person reads first. The component `tests` is what scripts/package.sh adds: tests that need a
# device.

# Where a package brings the libraries that a bare machine lacks, programs find them beside
# themselves, wherever it was unpacked; elsewhere there is no such folder. As DT_RPATH, which the
# libraries' own needs follow too; DT_RUNPATH would not do.
function(pushpull_relocatable target)
  # in the build tree too: CMake would write colons there to make room, and each means the folder in
  # which the program is started
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
