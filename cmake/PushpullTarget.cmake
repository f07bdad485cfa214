# Flags of every target, and helpers: a library per folder, one of generated code.

add_library(pushpull_flags INTERFACE)
# P1 (same bits): no contraction into fused multiply-add, no instruction set of the build machine.
target_compile_options(pushpull_flags INTERFACE
  "$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wpedantic;-Wshadow;-ffp-contract=off>"
  # g++ 12 wrongly warns of overlaps in std::string (GCC bug 105651)
  $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-restrict>
  # without -Wpedantic, which would warn about the line directives that nvcc writes
  "$<$<COMPILE_LANGUAGE:CUDA>:--fmad=false;-Xcompiler=-Wall,-Wextra,-Wshadow,-ffp-contract=off>")
# g++ collects garbage each time that its heap has grown by a third, which is a tenth of its time; not below this size (KiB).
target_compile_options(pushpull_flags INTERFACE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:--param=ggc-min-heapsize=524288>)
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

# pushpull_optimize_less(TARGET [BUT SOURCE...]): for a target that decides more than it computes. -O1 compiles its large
# sources in 60 % of the time of -O3. The sources after BUT, which have loops over gradients or weights, are compiled with
# -O3, and alone.
function(pushpull_optimize_less target)
  cmake_parse_arguments(ARG "" "" "BUT" ${ARGN})
  if(CMAKE_BUILD_TYPE STREQUAL Release)
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-O1>)
    set_source_files_properties(${ARG_BUT} PROPERTIES COMPILE_OPTIONS -O3)
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

# Runs protoc and compiles nothing.
add_custom_target(generated_sources)

# pushpull_protobuf(TARGET FILE.proto...): a library of generated code, as "FOLDER/FILE.pb.h". It is
# compiled apart, without our warnings. Imports are relative to the root, which CMake's own
# protobuf_generate cannot do.
function(pushpull_protobuf target)
  file(RELATIVE_PATH folder ${PROJECT_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR})
  set(generated ${PROJECT_BINARY_DIR}/generated)
  file(MAKE_DIRECTORY ${generated}/${folder})
  list(TRANSFORM ARGN PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/ OUTPUT_VARIABLE protos)
  add_library(${target} STATIC)
  set(all)
  foreach(proto ${protos})
    cmake_path(GET proto STEM stem)
    set(outputs ${generated}/${folder}/${stem}.pb.h ${generated}/${folder}/${stem}.pb.cc)
    add_custom_command(OUTPUT ${outputs}
      COMMAND protobuf::protoc --cpp_out ${generated} -I ${PROJECT_SOURCE_DIR} ${proto}
      DEPENDS ${protos} protobuf::protoc VERBATIM)
    target_sources(${target} PRIVATE ${outputs})
    list(APPEND all ${outputs})
  endforeach()
  add_custom_target(${target}_sources DEPENDS ${all})
  add_dependencies(generated_sources ${target}_sources)
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
