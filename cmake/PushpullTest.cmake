# Tests, each of one part and one tier.
#
# A test has two labels. Its part (`units`, `jobs`, ...) is a word of `scripts/test.sh --PART`, which lists them. Its
# tier is `first` or `second`: scripts/test.sh alone builds and runs the first tier ("is it whole?"), which shall take ten
# minutes with the build; `scripts/test.sh --all` runs both. A unit test is in the first tier if it takes a second or two;
# a job (tests/e2e) if it is marked with @first, which names what it shows.

# Flags for the sources of tests. They are not optimised in release builds and under sanitizers, where the product is:
# compiling them takes longer than running them, except for tests that compute much themselves (OPTIMIZED, -O1).
add_library(pushpull_test_flags INTERFACE)
target_link_libraries(pushpull_test_flags INTERFACE pushpull_flags)
if(CMAKE_BUILD_TYPE MATCHES "^(Release|Dev)$" OR PUSHPULL_SANITIZE)
  target_compile_options(pushpull_test_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-O0>)
endif()

# Time limit of a test, in seconds, and the factor of all deadlines in a test of jobs.
set(PUSHPULL_TEST_SECONDS 600)
set(PUSHPULL_TEST_SCALE 1)
if(PUSHPULL_SANITIZE MATCHES thread)
  set(PUSHPULL_TEST_SECONDS 900)
  set(PUSHPULL_TEST_SCALE 8)
elseif(PUSHPULL_SANITIZE)
  set(PUSHPULL_TEST_SCALE 4)
endif()

# The system's python3 is tried first: Debian's PyTorch belongs to it.
find_program(PUSHPULL_PYTHON python3 PATHS /usr/bin NO_DEFAULT_PATH)
find_program(PUSHPULL_PYTHON python3)

# Programs of the unit tests, of the first tier, and of the parts cuda and gpu.
add_custom_target(unit_tests)
add_custom_target(first_tier)
add_custom_target(cuda_tests)

# The main function of all test programs.
function(pushpull_test_main)
  add_library(pushpull_test_main STATIC ${PROJECT_SOURCE_DIR}/tests/main.cpp)
  target_link_libraries(pushpull_test_main PRIVATE pushpull_test_flags PUBLIC GTest::gmock)
endfunction()

# pushpull_add_test(NAME PART PART [FIRST] COMMAND ... [SECONDS N] [COST N] [PROPERTIES ...])
# Adds a test of the second tier, or with FIRST of the first. Exit code 77 means skipped.
# SECONDS: its time limit, PUSHPULL_TEST_SECONDS by default. COST: tests with a higher one start earlier.
function(pushpull_add_test name)
  cmake_parse_arguments(ARG "FIRST" "PART;SECONDS;COST" "COMMAND;PROPERTIES" ${ARGN})
  if(NOT ARG_SECONDS)
    set(ARG_SECONDS ${PUSHPULL_TEST_SECONDS})
  endif()
  if(NOT ARG_COST)
    set(ARG_COST 1)
  endif()
  set(tier second)
  if(ARG_FIRST)
    set(tier first)
  endif()
  add_test(NAME ${name} COMMAND ${ARG_COMMAND})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${ARG_SECONDS} SKIP_RETURN_CODE 77 COST ${ARG_COST}
    LABELS "${ARG_PART};${tier}" ${ARG_PROPERTIES})
endfunction()

# pushpull_script_test(NAME PART PART SCRIPT ARGUMENT... [FIRST] ...): as pushpull_add_test, for a script in Python.
# Skipped where there is no python3.
function(pushpull_script_test name)
  cmake_parse_arguments(ARG "FIRST" "PART;SECONDS;COST" "SCRIPT;PROPERTIES" ${ARGN})
  set(first)
  if(ARG_FIRST)
    set(first FIRST)
  endif()
  set(command sh -c "echo 'skipped: no python3'; exit 77")
  if(PUSHPULL_PYTHON)
    list(POP_FRONT ARG_SCRIPT script)
    cmake_path(ABSOLUTE_PATH script BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR})
    set(command ${PUSHPULL_PYTHON} ${script} ${ARG_SCRIPT})
  endif()
  pushpull_add_test(${name} PART ${ARG_PART} ${first} COMMAND ${command} SECONDS ${ARG_SECONDS} COST ${ARG_COST}
    PROPERTIES ${ARG_PROPERTIES})
endfunction()

# pushpull_run_program(NAME PROGRAM PART PART [FIRST] [SHARDS N] [FILTER FILTER] [PROPERTIES ...])
# Adds the tests of a program as one process, or as one for each of N shards. Nothing runs at build time.
function(pushpull_run_program name program)
  cmake_parse_arguments(ARG "FIRST" "PART;SHARDS;FILTER;COST" "PROPERTIES" ${ARGN})
  set(command $<TARGET_FILE:${program}> --gtest_brief=1)
  if(ARG_FILTER)
    list(APPEND command "--gtest_filter=${ARG_FILTER}")
  endif()
  set(first)
  if(ARG_FIRST)
    set(first FIRST)
    add_dependencies(first_tier ${program})
  endif()
  if(ARG_PART MATCHES "^(cuda|gpu)$")
    add_dependencies(cuda_tests ${program})
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
    pushpull_add_test(${test} PART ${ARG_PART} ${first} COST ${ARG_COST}
      COMMAND ${CMAKE_COMMAND} -E env ${environment} ${command} PROPERTIES ${ARG_PROPERTIES})
  endforeach()
endfunction()

# pushpull_test_program(NAME SOURCES ... LINK ... [OPTIMIZED]): a program of tests that ctest does not run by itself.
# OPTIMIZED: the tests themselves compute much, and are compiled with -O1.
function(pushpull_test_program name)
  cmake_parse_arguments(ARG "OPTIMIZED" "" "SOURCES;LINK" ${ARGN})
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
    pushpull_optimize_less(${name})
    pushpull_precompiled(${kind} ${name})
  else()
    target_link_libraries(${name} PRIVATE pushpull_test_flags)
    pushpull_precompiled(test_${kind} ${name})
  endif()
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
endfunction()

# pushpull_test(NAME SOURCES ... LINK ... [DEVICE FILTER] [OPTIMIZED] [SECOND FILTER])
# A program of unit tests, of the first tier.
# SECOND: tests that match it take longer, and are in the second tier (`*` for all).
# DEVICE: tests that match it need a GPU (tests/device/need_device.h); they run one at a time, are of the part
# gpu, and are part of a package.
function(pushpull_test name)
  cmake_parse_arguments(ARG "OPTIMIZED" "DEVICE;SECOND" "SOURCES;LINK" ${ARGN})
  set(optimized)
  if(ARG_OPTIMIZED)
    set(optimized OPTIMIZED)
  endif()
  pushpull_test_program(${name} SOURCES ${ARG_SOURCES} LINK ${ARG_LINK} ${optimized})
  add_dependencies(unit_tests ${name})
  set(without)
  if(ARG_DEVICE)
    pushpull_run_program(${name}.gpu ${name} PART gpu FILTER "${ARG_DEVICE}" PROPERTIES RESOURCE_LOCK gpu)
    set(without ":${ARG_DEVICE}")
    install(TARGETS ${name} RUNTIME DESTINATION tests COMPONENT tests EXCLUDE_FROM_ALL)
    # tells scripts/gpu-check.sh which tests to run
    file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/${name}.filter "${ARG_DEVICE}\n")
    install(FILES ${CMAKE_CURRENT_BINARY_DIR}/${name}.filter DESTINATION tests COMPONENT tests EXCLUDE_FROM_ALL)
  endif()
  if(ARG_SECOND)
    set(filter "${ARG_SECOND}")
    if(without)
      string(REGEX REPLACE "^:" "-" minus "${without}")
      string(APPEND filter "${minus}")
    endif()
    pushpull_run_program(${name}.long ${name} PART units FILTER "${filter}" COST 15)
    string(APPEND without ":${ARG_SECOND}")
  endif()
  if(NOT ARG_SECOND STREQUAL "*")
    string(REGEX REPLACE "^:" "-" without "${without}")
    # most compute: they start early, beside jobs, which mostly wait
    pushpull_run_program(${name} ${name} PART units FIRST FILTER "${without}" COST 12)
  endif()
endfunction()
