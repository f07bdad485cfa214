# `cmake --install build/release [--prefix DIR]`: the programs, the data that ship with them, and
# what a person reads first.
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
install(DIRECTORY docs/ DESTINATION ${CMAKE_INSTALL_DOCDIR} FILES_MATCHING PATTERN "*.md" PATTERN "*.ini")
