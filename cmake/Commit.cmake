# Writes OUTPUT, a C++ file with the commit of SOURCE_DIR. Run at every build
# (`cmake -DSOURCE_DIR=... -DOUTPUT=... -DTEMPLATE=... -P Commit.cmake`). The file changes, and is recompiled, only when
# the commit or the state of the tree does. The commit is empty without git or a repository.
find_program(GIT git)
set(COMMIT "")
if(GIT)
  execute_process(COMMAND ${GIT} -C ${SOURCE_DIR} describe --always --dirty --abbrev=12 --exclude=*
    OUTPUT_VARIABLE COMMIT OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE code)
  # In a copy without its own repository, git would report the commit of an enclosing one.
  execute_process(COMMAND ${GIT} -C ${SOURCE_DIR} rev-parse --show-toplevel
    OUTPUT_VARIABLE top OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  file(REAL_PATH ${SOURCE_DIR} source)
  if(NOT code EQUAL 0 OR NOT top STREQUAL source)
    set(COMMIT "")
  endif()
endif()
configure_file(${TEMPLATE} ${OUTPUT} @ONLY)
