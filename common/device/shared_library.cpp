#include "common/device/shared_library.h"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>

#include "common/base/text.h"

namespace pushpull::device {

namespace {

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

std::vector<std::string> library_candidates(const std::string& soname) {
  std::vector<std::string> found;
  std::istringstream folders(environment("PUSHPULL_CUDA_LIBS"));
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (!folder.empty()) found.push_back(folder.append("/").append(soname));
  }
  found.push_back(soname);
  if (const std::string home = environment("CUDA_HOME"); !home.empty()) {
    found.push_back(home + "/lib64/" + soname);
  }
  found.push_back("/usr/local/cuda/lib64/" + soname);
  return found;
}

SharedLibrary::SharedLibrary(const std::string& soname) {
  for (const std::string& candidate : library_candidates(soname)) {
    // RTLD_LOCAL: the library's symbols do not override those of other libraries
    handle_ = dlopen(candidate.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle_ != nullptr) {
      link_map* map = nullptr;
      path_ = dlinfo(handle_, RTLD_DI_LINKMAP, &map) == 0 ? map->l_name : candidate;
      failures_.clear();
      return;
    }
    // dlerror's text starts with the file name
    const char* why = dlerror();
    if (!failures_.empty()) failures_ += "; ";
    failures_ += printable(why == nullptr ? candidate : std::string(why), kMaxPathBytes);
  }
}

void* SharedLibrary::find(const char* symbol) const {
  return handle_ == nullptr ? nullptr : dlsym(handle_, symbol);
}

}  // namespace pushpull::device
