// CUDA libraries, loaded on first use: a program that computes on the processor neither needs nor
// loads them (cuBLASLt alone is half a gigabyte). Any thread.
#pragma once

#include <string>
#include <vector>

namespace pushpull::device {

// The library is never closed: work that it started may run until the process ends.
class SharedLibrary {
 public:
  // Searches the folders in PUSHPULL_CUDA_LIBS (separated by colons), then the system's search path
  // (LD_LIBRARY_PATH, the ldconfig cache), then lib64 of $CUDA_HOME and /usr/local/cuda.
  //   soname: with its version, "libcublasLt.so.13".
  explicit SharedLibrary(const std::string& soname);

  bool is_open() const { return handle_ != nullptr; }
  // Returns the files tried and why each failed, in one line; "" if the library is open.
  const std::string& failures() const { return failures_; }
  // Returns the path of the file that was opened.
  const std::string& path() const { return path_; }
  // Returns the symbol's address, or null.
  void* find(const char* symbol) const;

 private:
  void* handle_ = nullptr;
  std::string path_;
  std::string failures_;
};

// Returns the paths to try, in order; the bare soname stands for the system's search path.
std::vector<std::string> library_candidates(const std::string& soname);

}  // namespace pushpull::device
