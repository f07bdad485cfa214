// Loads a stand-in like the product does: looks up every function by its name.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "common/device/cuda_libraries.h"
#include "common/device/shared_library.h"
#include "models/ops/cuda/cudnn_library.h"

namespace pushpull::cuda_on_host {

template <class Function>
void find(void* library, Function& function, const char* name) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  ASSERT_NE(function, nullptr) << name;
}

// The libraries stay loaded, as in the product.
inline void open(const std::string& path, device::CublasLt& to) {
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
#define PUSHPULL_FIND(name) find(library, to.name, #name);
  PUSHPULL_CUBLASLT(PUSHPULL_FIND)
#undef PUSHPULL_FIND
}

inline void open(const std::string& path, ops::cuda::Cudnn& to) {
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
#define PUSHPULL_FIND(name) find(library, to.name, #name);
  PUSHPULL_CUDNN(PUSHPULL_FIND)
#undef PUSHPULL_FIND
}

// The stand-ins are in the build folder.
inline device::CublasLt cublas_lt_stand_in() {
  device::CublasLt lt;
  open(std::string(PUSHPULL_STAND_INS) + "/libcublasLt.so." + std::to_string(CUBLAS_VER_MAJOR), lt);
  return lt;
}

inline ops::cuda::Cudnn cudnn_stand_in() {
  ops::cuda::Cudnn cudnn;
  open(std::string(PUSHPULL_STAND_INS) + "/libcudnn.so." + std::to_string(CUDNN_MAJOR), cudnn);
  return cudnn;
}

// Returns the path of the real library, or "" if it is not installed. Not its bare name, which is
// the stand-in's too once that is loaded.
inline std::string real_library(const std::string& soname) {
  for (const std::string& file : device::library_candidates(soname)) {
    if (file.find('/') != std::string::npos && std::filesystem::exists(file)) return file;
  }
  return {};
}

}  // namespace pushpull::cuda_on_host
