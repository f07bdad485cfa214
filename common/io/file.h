// Files that must be whole: output that is on disk when `finish` returns, input whose size is known
// before anything is allocated. Any thread; one thread per object.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "common/io/sha256.h"

namespace pushpull {

struct FileDigest {
  uint64_t bytes = 0;
  std::string sha256;  // hex

  friend bool operator==(const FileDigest&, const FileDigest&) = default;
};

// A file descriptor that closes itself.
class FileHandle {
 public:
  explicit FileHandle(int fd = -1) : fd_(fd) {}
  ~FileHandle();
  FileHandle(const FileHandle&) = delete;
  FileHandle& operator=(const FileHandle&) = delete;

  int get() const { return fd_; }
  int close();  // 0, or errno

 private:
  int fd_;
};

class OutputFile {
 public:
  // Creates or empties the file. This and all below throw Error(kIo) naming path and errno's text.
  explicit OutputFile(std::string path);

  void write(std::span<const std::byte> bytes);

  // Flushes to disk, closes, and says what was written.
  FileDigest finish();

 private:
  std::string path_;
  FileHandle file_;
  Sha256 sha256_;
  uint64_t written_bytes_ = 0;
};

class InputFile {
 public:
  // Opens a regular file. This and all below throw Error(kData) naming path and reason.
  explicit InputFile(std::string path);

  uint64_t size_bytes() const { return size_bytes_; }

  // Fills all of `bytes` with the next ones; the file ending earlier is an error.
  void read(std::span<std::byte> bytes);

 private:
  std::string path_;
  FileHandle file_;
  uint64_t size_bytes_ = 0;
};

// Reads the file once. Throws Error(kData).
FileDigest digest_file(const std::string& path);

// A whole small file. Throws Error(kData), also where it is over `limit_bytes`.
std::string read_text_file(const std::string& path, uint64_t limit_bytes);

// Makes created, renamed and deleted names in the folder durable. Throws Error(kIo).
void sync_folder(const std::string& path);

// "[file] cannot VERB PATH: errno's text".
[[noreturn]] void throw_io_error(const char* verb, const std::string& path, int error_number,
                                 const std::string& detail = "");

}  // namespace pushpull
