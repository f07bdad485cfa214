// Libraries of CUDA that are opened when they are first needed: a program that computes on the
// processor neither needs nor loads them (cuBLASLt alone is half a gigabyte). Any thread.
#pragma once

#include <string>
#include <vector>

namespace pushpull::device {

// Stays open until the process ends, as what it has started may run until then.
class SharedLibrary {
 public:
  // Looks in the folders that PUSHPULL_CUDA_LIBS lists (with colons between), then where the system
  // does (LD_LIBRARY_PATH, the cache of ldconfig), then in lib64 of $CUDA_HOME and /usr/local/cuda.
  //   soname: with its version, "libcublasLt.so.13".
  explicit SharedLibrary(const std::string& soname);

  bool is_open() const { return handle_ != nullptr; }
  // Where it is not open: what was tried and why that failed, in one line.
  const std::string& failures() const { return failures_; }
  // The file that was opened.
  const std::string& path() const { return path_; }
  // Null where it has no such symbol.
  void* find(const char* symbol) const;

 private:
  void* handle_ = nullptr;
  std::string path_;
  std::string failures_;
};

// Where a library is looked for, in this order; the system's own way is its bare name.
std::vector<std::string> library_candidates(const std::string& soname);

}  // namespace pushpull::device
