# Flags of every target, and two helpers: a library per folder, a test program per folder.

add_library(pushpull_flags INTERFACE)
# P1 (same bits): no contraction into fused multiply-add, no instruction set of the build machine.
target_compile_options(pushpull_flags INTERFACE -Wall -Wextra -Wpedantic -Wshadow -ffp-contract=off
  # g++ 12 sees overlaps in std::string that are not there (GCC bug 105651)
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>)
if(PUSHPULL_WERROR)
  target_compile_options(pushpull_flags INTERFACE -Werror)
endif()
if(PUSHPULL_SANITIZE)
  target_compile_options(pushpull_flags INTERFACE -fsanitize=${PUSHPULL_SANITIZE}
    -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(pushpull_flags INTERFACE -fsanitize=${PUSHPULL_SANITIZE})
  # function multiversioning resolves before the sanitizer's run time is up
  target_compile_definitions(pushpull_flags INTERFACE PUSHPULL_NO_TARGET_CLONES)
endif()

# pushpull_library(NAME SOURCES ... HEADERS ... LINK ...)
function(pushpull_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;HEADERS;LINK" ${ARGN})
  add_library(pushpull_${name} STATIC ${ARG_SOURCES})
  add_library(pushpull::${name} ALIAS pushpull_${name})
  target_sources(pushpull_${name} PUBLIC FILE_SET HEADERS
    BASE_DIRS ${PROJECT_SOURCE_DIR} FILES ${ARG_HEADERS})
  set_target_properties(pushpull_${name} PROPERTIES VERIFY_INTERFACE_HEADER_SETS ON)
  target_link_libraries(pushpull_${name} PUBLIC pushpull_flags ${ARG_LINK})
endfunction()

# pushpull_test(NAME SOURCES ... LINK ...)
function(pushpull_test name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE pushpull_flags ${ARG_LINK} GTest::gmock GTest::gtest_main)
  target_compile_definitions(${name} PRIVATE
    PUSHPULL_SOURCE_DIR="${PROJECT_SOURCE_DIR}" PUSHPULL_BINARY_DIR="${CMAKE_RUNTIME_OUTPUT_DIRECTORY}")
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  gtest_discover_tests(${name} DISCOVERY_TIMEOUT 60 PROPERTIES TIMEOUT 300)
endfunction()
