# PUSHPULL_BUNDLE: makes the target pushpull_bundled, a libpushpull.so.0 that contains all libraries but glibc's own, and
# runs with PUSHPULL_BUNDLE_GLIBC or newer. The Python wheel needs it so: it must load on any Linux, beside another
# protobuf or libzmq in the same process. It links the objects of libpushpull.so, so that one build makes both, and the
# programs.
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

set(source ${PUSHPULL_BUNDLE}/protobuf/src/google/protobuf)
file(STRINGS ${source}/port_def.inc version REGEX "define PROTOBUF_VERSION ")
file(STRINGS ${Protobuf_INCLUDE_DIR}/google/protobuf/port_def.inc installed REGEX "define PROTOBUF_VERSION ")
if(NOT version STREQUAL installed)
  message(FATAL_ERROR "[bundle] ${PUSHPULL_BUNDLE}/protobuf has '${version}', libprotobuf-dev '${installed}'; upgrade the "
    "package, remove ${PUSHPULL_BUNDLE} and run scripts/wheel.sh again")
endif()
add_library(pushpull_bundled_protobuf OBJECT EXCLUDE_FROM_ALL ${source}/arena.cc ${source}/stubs/common.cc)
target_include_directories(pushpull_bundled_protobuf PRIVATE ${PUSHPULL_BUNDLE}/protobuf/src)
set_target_properties(pushpull_bundled_protobuf PROPERTIES POSITION_INDEPENDENT_CODE ON UNITY_BUILD OFF CXX_CLANG_TIDY "")

# A build of its own: its targets have the names of those of the installed libzmq. Some of its warnings are wrong, hence -w.
include(ExternalProject)
set(zmq ${PROJECT_BINARY_DIR}/zeromq3)
ExternalProject_Add(pushpull_bundled_zmq EXCLUDE_FROM_ALL ON SOURCE_DIR ${PUSHPULL_BUNDLE}/zeromq3 BINARY_DIR ${zmq}
  CMAKE_ARGS -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_COMPILER=${CMAKE_CXX_COMPILER} -DCMAKE_CXX_STANDARD=17
    -DCMAKE_POSITION_INDEPENDENT_CODE=ON -DCMAKE_POLICY_DEFAULT_CMP0063=NEW -DCMAKE_CXX_VISIBILITY_PRESET=hidden
    "-DCMAKE_CXX_FLAGS=-w -ffunction-sections -fdata-sections -ffile-prefix-map=${PUSHPULL_BUNDLE}/="
    -DBUILD_SHARED=OFF -DBUILD_STATIC=ON -DBUILD_TESTS=OFF -DENABLE_CPACK=OFF -DENABLE_DRAFTS=OFF -DWITH_DOC=OFF -DWITH_DOCS=OFF
    -DWITH_LIBBSD=OFF -DWITH_NSS=OFF -DWITH_PERF_TOOL=OFF -DWITH_TLS=OFF -DWITH_LIBSODIUM=ON -DENABLE_CURVE=ON -Wno-dev
  BUILD_COMMAND ${CMAKE_COMMAND} --build ${zmq} --target libzmq-static INSTALL_COMMAND "" BUILD_BYPRODUCTS ${zmq}/lib/libzmq.a)

find_program(PUSHPULL_BUNDLE_PYTHON python3 REQUIRED)
mark_as_advanced(PUSHPULL_BUNDLE_PYTHON)
set(stubs ${PROJECT_BINARY_DIR}/glibc-${PUSHPULL_BUNDLE_GLIBC})
execute_process(COMMAND ${PUSHPULL_BUNDLE_PYTHON} ${PROJECT_SOURCE_DIR}/scripts/wheel/glibc_stubs.py ${PUSHPULL_BUNDLE_GLIBC} ${stubs}
  COMMAND_ERROR_IS_FATAL ANY)

# Archives by their paths: the targets would bring Debian's shared libraries. The group lets them need each other.
set(ours common datasets device direct io keys launch net record_proto shm wire worker)
list(TRANSFORM ours REPLACE "(.+)" "$<TARGET_FILE:pushpull_\\1>" OUTPUT_VARIABLE archives)
foreach(library protobuf boost_program_options crypto sodium)
  find_library(PUSHPULL_BUNDLE_${library} lib${library}.a REQUIRED)
  mark_as_advanced(PUSHPULL_BUNDLE_${library})
  list(APPEND archives ${PUSHPULL_BUNDLE_${library}})
endforeach()
set(exports ${PROJECT_SOURCE_DIR}/client/exports.map)
set(old_glibc ${PROJECT_SOURCE_DIR}/client/old_glibc.cpp)
set_source_files_properties(${old_glibc} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON SKIP_PRECOMPILE_HEADERS ON)
add_library(pushpull_bundled SHARED EXCLUDE_FROM_ALL ${old_glibc} $<TARGET_OBJECTS:pushpull_client> $<TARGET_OBJECTS:pushpull_shared>
  $<TARGET_OBJECTS:pushpull_bundled_protobuf>)
add_dependencies(pushpull_bundled pushpull_bundled_zmq)
target_link_libraries(pushpull_bundled PRIVATE -Wl,--start-group ${archives} ${zmq}/lib/libzmq.a -Wl,--end-group)
# Replaces the options of the directory: the stubs are for the linker of binutils.
# -u: libstdc++ refers to it only weakly, which takes nothing from an archive
set_target_properties(pushpull_bundled PROPERTIES LINKER_LANGUAGE CXX OUTPUT_NAME pushpull SOVERSION 0 LINK_DEPENDS ${exports}
  LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bundled
  LINK_OPTIONS "-fuse-ld=bfd;-L${stubs};-static-libstdc++;-static-libgcc;-Wl,--version-script=${exports};-Wl,--no-undefined;-Wl,--as-needed;-Wl,--gc-sections;-Wl,-z,nodelete;-Wl,--exclude-libs,ALL;-Wl,-z,relro,-z,now;-Wl,-u,__cxa_pure_virtual;-Wl,--wrap=environ")
