# Flags of every target, and helpers: a library per folder, one of generated code, a test program.

add_library(pushpull_flags INTERFACE)
# P1 (same bits): no contraction into fused multiply-add, no instruction set of the build machine.
target_compile_options(pushpull_flags INTERFACE
  "$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wpedantic;-Wshadow;-ffp-contract=off>"
  # g++ 12 wrongly warns of overlaps in std::string (GCC bug 105651)
  $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-restrict>
  # without -Wpedantic, which would warn about the line directives that nvcc writes
  "$<$<COMPILE_LANGUAGE:CUDA>:--fmad=false;-Xcompiler=-Wall,-Wextra,-Wshadow,-ffp-contract=off>")
if(PUSHPULL_WERROR)
  target_compile_options(pushpull_flags INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-Werror>
    "$<$<COMPILE_LANGUAGE:CUDA>:--Werror=all-warnings;-Xcompiler=-Werror>")
endif()
if(PUSHPULL_SANITIZE)
  target_compile_options(pushpull_flags INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${PUSHPULL_SANITIZE}>"
    "$<$<COMPILE_LANGUAGE:CXX>:-fno-omit-frame-pointer;-fno-sanitize-recover=all>")
  target_link_options(pushpull_flags INTERFACE -fsanitize=${PUSHPULL_SANITIZE})
  # function multiversioning runs its resolvers before the sanitizer's runtime is initialised
  target_compile_definitions(pushpull_flags INTERFACE PUSHPULL_NO_TARGET_CLONES)
endif()

# For a source with std::regex: under the address sanitizer g++ 12 wrongly warns that its members may be used
# uninitialized (GCC bug 105562).
function(pushpull_uses_regex source)
  if(PUSHPULL_SANITIZE MATCHES address AND CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS -Wno-maybe-uninitialized)
  endif()
endfunction()

# Keeps sources out of a unity build, because their helpers have the same names as those of another source of the
# target, or their headers clash.
function(pushpull_compile_alone)
  set_source_files_properties(${ARGN} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

# For a target that computes little: -O1 compiles its large sources in 60 % of the time of -O3.
function(pushpull_optimize_less target)
  if(CMAKE_BUILD_TYPE STREQUAL Release)
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-O1>)
  endif()
endfunction()

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

# pushpull_protobuf(TARGET FILE.proto...): a library of generated code, as "FOLDER/FILE.pb.h". It is
# compiled apart, without our warnings. Imports are relative to the root, which CMake's own
# protobuf_generate cannot do.
function(pushpull_protobuf target)
  file(RELATIVE_PATH folder ${PROJECT_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR})
  set(generated ${PROJECT_BINARY_DIR}/generated)
  file(MAKE_DIRECTORY ${generated}/${folder})
  list(TRANSFORM ARGN PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/ OUTPUT_VARIABLE protos)
  add_library(${target} STATIC)
  foreach(proto ${protos})
    cmake_path(GET proto STEM stem)
    set(outputs ${generated}/${folder}/${stem}.pb.h ${generated}/${folder}/${stem}.pb.cc)
    add_custom_command(OUTPUT ${outputs}
      COMMAND protobuf::protoc --cpp_out ${generated} -I ${PROJECT_SOURCE_DIR} ${proto}
      DEPENDS ${protos} protobuf::protoc VERBATIM)
    target_sources(${target} PRIVATE ${outputs})
  endforeach()
  # the generated files define equal names, which a unity build would merge
  set_target_properties(${target} PROPERTIES CXX_CLANG_TIDY "" UNITY_BUILD OFF)
  target_link_libraries(${target} PUBLIC protobuf::libprotobuf)
  target_include_directories(${target} SYSTEM PUBLIC ${PROJECT_BINARY_DIR}/generated)
  if(PUSHPULL_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=${PUSHPULL_SANITIZE})
  endif()
  if(PUSHPULL_SANITIZE MATCHES thread)
    # Under the sanitizer, map_field.h adds two members to a map. The system's libprotobuf was compiled
    # without them, and would read a map in a message at wrong offsets. libstdc++ has its own macro.
    target_compile_options(${target} PUBLIC -U__SANITIZE_THREAD__)
    target_compile_definitions(${target} PUBLIC _GLIBCXX_TSAN=1)
  endif()
endfunction()

# Flags for the sources of tests. They are not optimised in release builds and under sanitizers, where the product is:
# compiling them takes longer than running them, except for tests that compute much themselves (OPTIMIZED).
add_library(pushpull_test_flags INTERFACE)
target_link_libraries(pushpull_test_flags INTERFACE pushpull_flags)
if(CMAKE_BUILD_TYPE MATCHES "^(Release|Dev)$" OR PUSHPULL_SANITIZE)
  target_compile_options(pushpull_test_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-O0>)
endif()

# Time limit of a test, in seconds.
set(PUSHPULL_TEST_SECONDS 600)
if(PUSHPULL_SANITIZE MATCHES thread)
  set(PUSHPULL_TEST_SECONDS 900)
endif()

# The main function of all test programs.
function(pushpull_test_main)
  add_library(pushpull_test_main STATIC ${PROJECT_SOURCE_DIR}/tests/main.cpp)
  target_link_libraries(pushpull_test_main PRIVATE pushpull_test_flags PUBLIC GTest::gmock)
endfunction()

# All programs that `ctest -L fast` runs.
add_custom_target(fast_tests)

# pushpull_add_test(NAME PROGRAM [LABEL LABEL] [SHARDS N] [FILTER FILTER] [PROPERTIES ...])
# One process for all tests of a program, or one for each of N shards. Nothing runs at build time.
function(pushpull_add_test name program)
  cmake_parse_arguments(ARG "" "LABEL;SHARDS;FILTER" "PROPERTIES" ${ARGN})
  set(command $<TARGET_FILE:${program}> --gtest_brief=1)
  if(ARG_FILTER)
    list(APPEND command "--gtest_filter=${ARG_FILTER}")
  endif()
  if(NOT ARG_SHARDS)
    set(ARG_SHARDS 1)
  endif()
  math(EXPR last "${ARG_SHARDS} - 1")
  foreach(shard RANGE ${last})
    set(test ${name})
    set(environment)
    if(last GREATER 0)
      set(test ${name}.${shard})
      set(environment GTEST_TOTAL_SHARDS=${ARG_SHARDS} GTEST_SHARD_INDEX=${shard})
    endif()
    add_test(NAME ${test} COMMAND ${CMAKE_COMMAND} -E env ${environment} ${command})
    set_tests_properties(${test} PROPERTIES TIMEOUT ${PUSHPULL_TEST_SECONDS} SKIP_RETURN_CODE 77
      LABELS "${ARG_LABEL}" ${ARG_PROPERTIES})
  endforeach()
endfunction()

# pushpull_test(NAME SOURCES ... LINK ... [DEVICE FILTER] [OPTIMIZED] [SLOW] [SHARDS N])
# OPTIMIZED: the tests themselves compute much, and are compiled with optimisation.
# SLOW: they take more than a few seconds. ctest runs them under the label `slow`; all others under `fast`.
# SHARDS: processes that share the tests of a SLOW program.
# DEVICE: tests that match it need a GPU (tests/device/need_device.h); they run one at a time, have the
# label gpu, and are part of a package.
function(pushpull_test name)
  cmake_parse_arguments(ARG "OPTIMIZED;SLOW" "DEVICE;SHARDS" "SOURCES;LINK" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE ${ARG_LINK} pushpull_test_main)
  target_compile_definitions(${name} PRIVATE
    PUSHPULL_SOURCE_DIR="${PROJECT_SOURCE_DIR}" PUSHPULL_BINARY_DIR="${CMAKE_RUNTIME_OUTPUT_DIRECTORY}")
  # precompiled headers for these flags, with protobuf if most of the sources include it
  set(kind std)
  if("${ARG_LINK}" MATCHES "pushpull::(net|shm|launch|ps|worker|cli)")
    set(kind wire)
  endif()
  if(ARG_OPTIMIZED)
    target_link_libraries(${name} PRIVATE pushpull_flags)
    pushpull_precompiled(${kind} ${name})
  else()
    target_link_libraries(${name} PRIVATE pushpull_test_flags)
    pushpull_precompiled(test_${kind} ${name})
  endif()
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  set(filter)
  if(ARG_DEVICE)
    pushpull_add_test(${name}.gpu ${name} LABEL gpu FILTER "${ARG_DEVICE}" PROPERTIES RESOURCE_LOCK gpu)
    set(filter FILTER "-${ARG_DEVICE}")
    install(TARGETS ${name} RUNTIME DESTINATION tests COMPONENT tests EXCLUDE_FROM_ALL)
    # tells scripts/gpu-check.sh which tests to run
    file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/${name}.filter "${ARG_DEVICE}\n")
    install(FILES ${CMAKE_CURRENT_BINARY_DIR}/${name}.filter DESTINATION tests COMPONENT tests EXCLUDE_FROM_ALL)
  endif()
  if(ARG_SLOW)
    pushpull_add_test(${name} ${name} LABEL slow SHARDS ${ARG_SHARDS} ${filter} PROPERTIES COST 15)
  else()
    pushpull_add_test(${name} ${name} LABEL fast ${filter})
    add_dependencies(fast_tests ${name})
  endif()
endfunction()
