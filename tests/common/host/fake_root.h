// A folder in the place of / with files of /proc and /sys.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/common/scratch_folder.h"

namespace pushpull {

class FakeRoot {
 public:
  // Writes a file; `path` begins with a slash.
  FakeRoot& put(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root() + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
    return *this;
  }
  std::string root() const { return folder_.path(); }

 private:
  ScratchFolder folder_;
};

}  // namespace pushpull
