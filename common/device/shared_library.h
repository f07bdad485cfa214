// CUDA libraries that are loaded on first use: a program that computes on the processor neither
// needs nor loads them (cuBLASLt alone is half a gigabyte). Any thread.
#pragma once

#include <string>
#include <vector>

namespace pushpull::device {

// Never closed: work that the library started may run until the process ends.
class SharedLibrary {
 public:
  // Searches the folders in PUSHPULL_CUDA_LIBS (separated by colons), then the system's search path
  // (LD_LIBRARY_PATH, the ldconfig cache), then lib64 of $CUDA_HOME and /usr/local/cuda.
  //   soname: with its version, "libcublasLt.so.13".
  explicit SharedLibrary(const std::string& soname);

  bool is_open() const { return handle_ != nullptr; }
  // If it is not open: the files tried and why each failed, in one line.
  const std::string& failures() const { return failures_; }
  // Path of the file that was opened.
  const std::string& path() const { return path_; }
  // The symbol's address, or null.
  void* find(const char* symbol) const;

 private:
  void* handle_ = nullptr;
  std::string path_;
  std::string failures_;
};

// The paths that are tried, in this order; the bare soname stands for the system's search path.
std::vector<std::string> library_candidates(const std::string& soname);

}  // namespace pushpull::device
