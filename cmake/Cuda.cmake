# Enables CUDA if its compiler is found. Sets PUSHPULL_CUDA_FOUND; CMake then compiles */cuda/*, otherwise no_cuda.cpp.
# Everything else is the same without CUDA.
set(PUSHPULL_CUDA AUTO CACHE STRING "CUDA workers: AUTO (where nvcc is found), ON or OFF")
set_property(CACHE PUSHPULL_CUDA PROPERTY STRINGS AUTO ON OFF)
set(PUSHPULL_CUDA_FOUND OFF)
set(PUSHPULL_CUDNN_FOUND OFF)
set(why "PUSHPULL_CUDA is OFF")

if(NOT PUSHPULL_CUDA STREQUAL OFF)
  # The toolkit's installer does not change PATH.
  find_program(PUSHPULL_NVCC NAMES $ENV{CUDACXX} nvcc
    PATHS ENV CUDA_HOME ENV CUDA_PATH /usr/local/cuda PATH_SUFFIXES bin
    DOC "The compiler of the CUDA toolkit")
  mark_as_advanced(PUSHPULL_NVCC)
  # Set before the language is enabled: CMake 3.25 would try sm_52, which CUDA 13 no longer supports. PTX is for
  # devices newer than this list.
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 80-real 90-real 90-virtual CACHE STRING "Devices to compile for")
  endif()
  set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
  set(why "no nvcc in PATH, \$CUDA_HOME/bin or /usr/local/cuda/bin")
  if(PUSHPULL_NVCC OR CMAKE_CUDA_COMPILER)
    if(NOT CMAKE_CUDA_COMPILER)
      set(CMAKE_CUDA_COMPILER ${PUSHPULL_NVCC})
    endif()
    # nvcc supports C++20 since 12.0.
    execute_process(COMMAND ${CMAKE_CUDA_COMPILER} --version OUTPUT_VARIABLE version ERROR_QUIET)
    string(REGEX MATCH "release ([0-9.]+)" version "${version}")
    if(NOT version)
      set(why "${CMAKE_CUDA_COMPILER} does not run")
    elseif(CMAKE_MATCH_1 VERSION_LESS 12.0)
      set(why "${CMAKE_CUDA_COMPILER} is CUDA ${CMAKE_MATCH_1}; 12.0 is the oldest that compiles C++20")
    else()
      enable_language(CUDA)
      # CMake 3.25 does not know that nvcc supports C++20 since 12.0.
      if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
        set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
        set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
      endif()
      set(CMAKE_CUDA_STANDARD 20)
      set(CMAKE_CUDA_STANDARD_REQUIRED ON)
      set(CMAKE_CUDA_EXTENSIONS OFF)
      find_package(CUDAToolkit REQUIRED)
      find_path(CUDNN_INCLUDE_DIR cudnn_version.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
      mark_as_advanced(CUDNN_INCLUDE_DIR)
      if(CUDNN_INCLUDE_DIR)
        set(PUSHPULL_CUDNN_FOUND ON)
      endif()
      set(PUSHPULL_CUDA_FOUND ON)
    endif()
  endif()
endif()

if(PUSHPULL_CUDA_FOUND)
  message(STATUS "CUDA ${CUDAToolkit_VERSION} for ${CMAKE_CUDA_ARCHITECTURES}; "
    "headers of cuDNN: ${PUSHPULL_CUDNN_FOUND}")
elseif(PUSHPULL_CUDA STREQUAL ON)
  message(FATAL_ERROR "PUSHPULL_CUDA is ON, but: ${why}")
else()
  message(STATUS "No CUDA (${why}): workers compute on the CPU")
endif()
