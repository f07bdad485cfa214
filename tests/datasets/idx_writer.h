// Writes valid and damaged IDX files to a temporary folder.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace pushpull {

// Returns header and values; the values need not fit the dimensions.
std::string idx_bytes(const std::vector<uint32_t>& dims, const std::string& values);
std::string gzip_bytes(const std::string& plain);
void write_bytes(const std::string& path, const std::string& bytes);

// A temporary folder that is deleted with the object.
class TestFolder {
 public:
  TestFolder();
  ~TestFolder();
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }
  void write(const std::string& name, const std::string& bytes) const;
  void remove(const std::string& name) const;

  // Writes six training and three test images of 2x3 with labels 0..2: pixel i of the split is i.
  void write_small(const std::string& ending = "") const;

 private:
  std::string path_;
};

}  // namespace pushpull
