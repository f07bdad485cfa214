# PUSHPULL_BUNDLE: libpushpull.so contains all libraries but glibc's own, and runs with PUSHPULL_BUNDLE_GLIBC or newer.
# The Python wheel needs it so: it must load on any Linux, beside another protobuf or libzmq in the same process.
#
# Debian's static archives serve where they can. They are compiled for programs (-fPIE), which suits a shared library
# whose symbols are all private, with these exceptions:
#   libprotobuf.a  arena.o addresses a thread's data, and common.o stderr, as only a program can. These two are compiled
#                  from Debian's source package; all of protobuf would take minutes.
#   libzmq.a       needs Kerberos, which has no archive, and PGM, which each libzmq context would start. libzmq is
#                  compiled from Debian's source package without them. The alternative, Debian's shared libraries under
#                  private names, would be 12 more files (3.5 MB), whose symbols those of other libraries could replace.
# PUSHPULL_BUNDLE is the folder with these two source packages, unpacked by scripts/wheel/sources.sh.
set(PUSHPULL_BUNDLE_GLIBC 2.17 CACHE STRING "Oldest glibc that a bundled libpushpull.so runs with")

set(Protobuf_USE_STATIC_LIBS ON)
set(Boost_USE_STATIC_LIBS ON)
set(OPENSSL_USE_STATIC_LIBS ON)
set(ZLIB_USE_STATIC_LIBS ON)

# Makes the target cppzmq, with a libzmq that is compiled here.
function(pushpull_bundle_zmq)
  find_library(SODIUM_LIBRARIES libsodium.a REQUIRED)
  set(CMAKE_POLICY_DEFAULT_CMP0077 NEW)  # options take the values below
  set(CMAKE_POLICY_DEFAULT_CMP0063 NEW)
  foreach(off BUILD_SHARED BUILD_TESTS ENABLE_CPACK ENABLE_DRAFTS WITH_DOC WITH_DOCS WITH_LIBBSD WITH_NSS WITH_PERF_TOOL WITH_TLS CMAKE_UNITY_BUILD)
    set(${off} OFF)
  endforeach()
  set(CMAKE_CXX_STANDARD 17)
  set(CMAKE_POSITION_INDEPENDENT_CODE ON)
  set(CMAKE_WARN_DEPRECATED OFF CACHE INTERNAL "")  # about the old CMake that libzmq's own file asks for
  find_package(Threads REQUIRED)
  add_subdirectory(${PUSHPULL_BUNDLE}/zeromq3 ${PROJECT_BINARY_DIR}/zeromq3 EXCLUDE_FROM_ALL)
  find_path(PUSHPULL_CPPZMQ_INCLUDE zmq.hpp REQUIRED)
  mark_as_advanced(PUSHPULL_CPPZMQ_INCLUDE)
  add_library(cppzmq INTERFACE)
  target_include_directories(cppzmq SYSTEM INTERFACE ${PUSHPULL_CPPZMQ_INCLUDE})
  target_link_libraries(cppzmq INTERFACE libzmq-static)
endfunction()

# pushpull_bundle(TARGET): puts everything into the shared library TARGET.
function(pushpull_bundle target)
  set(source ${PUSHPULL_BUNDLE}/protobuf/src/google/protobuf)
  file(STRINGS ${source}/port_def.inc version REGEX "define PROTOBUF_VERSION ")
  file(STRINGS ${Protobuf_INCLUDE_DIR}/google/protobuf/port_def.inc installed REGEX "define PROTOBUF_VERSION ")
  if(NOT version STREQUAL installed)
    message(FATAL_ERROR "[bundle] ${PUSHPULL_BUNDLE}/protobuf has '${version}', libprotobuf-dev '${installed}'; upgrade the "
      "package, remove ${PUSHPULL_BUNDLE} and run scripts/wheel.sh again")
  endif()
  add_library(pushpull_bundled_protobuf OBJECT ${source}/arena.cc ${source}/stubs/common.cc)
  target_include_directories(pushpull_bundled_protobuf PRIVATE ${PUSHPULL_BUNDLE}/protobuf/src)
  set_target_properties(pushpull_bundled_protobuf PROPERTIES POSITION_INDEPENDENT_CODE ON UNITY_BUILD OFF CXX_CLANG_TIDY "")

  find_program(PUSHPULL_BUNDLE_PYTHON python3 REQUIRED)
  mark_as_advanced(PUSHPULL_BUNDLE_PYTHON)
  set(stubs ${PROJECT_BINARY_DIR}/glibc-${PUSHPULL_BUNDLE_GLIBC})
  execute_process(COMMAND ${PUSHPULL_BUNDLE_PYTHON} ${PROJECT_SOURCE_DIR}/scripts/wheel/glibc_stubs.py ${PUSHPULL_BUNDLE_GLIBC} ${stubs}
    COMMAND_ERROR_IS_FATAL ANY)
  target_sources(${target} PRIVATE old_glibc.cpp $<TARGET_OBJECTS:pushpull_bundled_protobuf>)
  set_source_files_properties(old_glibc.cpp PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON SKIP_PRECOMPILE_HEADERS ON)
  # -u: libstdc++ refers to it only weakly, which takes nothing from an archive
  target_link_options(${target} PRIVATE -L${stubs} -static-libstdc++ -static-libgcc -Wl,--exclude-libs,ALL -Wl,--gc-sections
    -Wl,--as-needed -Wl,-z,relro,-z,now -Wl,-u,__cxa_pure_virtual -Wl,--wrap=environ)
endfunction()
