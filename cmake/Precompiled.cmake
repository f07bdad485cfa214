# Precompiled headers: reading the standard library, protobuf and GoogleTest again for each source takes
# half of the build time. Each kind below is compiled once, and shared by all targets with the same
# flags and macros; -Winvalid-pch, an error here, reports a target with others. The preset headers does
# not use them, and so finds missing #include lines.
option(PUSHPULL_PRECOMPILE "Share precompiled headers between targets (needs matching flags)" OFF)

set(PUSHPULL_STD_HEADERS
  <algorithm> <array> <atomic> <chrono> <cmath> <cstdint> <cstring> <deque> <exception> <filesystem>
  <fstream> <functional> <iostream> <limits> <map> <memory> <mutex> <optional> <set> <span> <sstream>
  <string> <string_view> <thread> <utility> <vector>)

# pushpull_precompiled_kind(KIND HEADERS ... LINK ...)
function(pushpull_precompiled_kind kind)
  cmake_parse_arguments(ARG "" "" "HEADERS;LINK" ${ARGN})
  # CMake compiles the headers only of a target with a source
  set(source ${PROJECT_BINARY_DIR}/generated/precompiled_${kind}.cpp)
  file(CONFIGURE OUTPUT ${source} CONTENT "")
  add_library(pushpull_precompiled_${kind} OBJECT ${source})
  target_link_libraries(pushpull_precompiled_${kind} PRIVATE pushpull_flags ${ARG_LINK})
  target_precompile_headers(pushpull_precompiled_${kind} PRIVATE ${PUSHPULL_STD_HEADERS} ${ARG_HEADERS})
endfunction()

# pushpull_precompiled(KIND TARGET...): the targets' sources begin with the headers of KIND.
function(pushpull_precompiled kind)
  if(PUSHPULL_PRECOMPILE)
    foreach(target IN LISTS ARGN)
      target_precompile_headers(${target} REUSE_FROM pushpull_precompiled_${kind})
      # g++ 12 then wrongly warns of overflows in std::string; presets without PUSHPULL_PRECOMPILE keep these warnings
      target_compile_options(${target} PRIVATE
        "$<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-array-bounds;-Wno-maybe-uninitialized;-Wno-stringop-overflow;-Wno-stringop-overread>")
    endforeach()
  endif()
endfunction()

if(PUSHPULL_PRECOMPILE)
  set(wire_headers <zmq.hpp> "${PROJECT_BINARY_DIR}/generated/common/net/wire.pb.h")
  pushpull_precompiled_kind(std)
  pushpull_precompiled_kind(wire HEADERS ${wire_headers} LINK pushpull_wire cppzmq)
  if(PUSHPULL_TESTS)
    set(test_headers <gmock/gmock.h> <gtest/gtest.h>)
    pushpull_precompiled_kind(test_std HEADERS ${test_headers} LINK pushpull_test_flags GTest::gmock)
    pushpull_precompiled_kind(test_wire HEADERS ${test_headers} ${wire_headers}
      LINK pushpull_test_flags GTest::gmock pushpull_wire cppzmq)
  endif()
endif()
