// Files that must be complete: output is on disk when `finish` returns; the size of an input is
// known before memory is allocated for it. Any thread; one thread per object.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "common/io/sha256.h"

namespace pushpull {

// Writes small files for users completely or not at all. Any thread.

// Writes PATH.tmp, forces it to disk (fsync) and renames it to PATH. Throws Error(kIo) naming the
// file and the reason, after deleting the temporary file.
void write_file(const std::string& path, const std::string& text);

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
  int close();  // returns 0 or an errno

 private:
  int fd_;
};

class OutputFile {
 public:
  // Creates or truncates the file. All functions throw Error(kIo) naming path and errno's text.
  explicit OutputFile(std::string path);

  void write(std::span<const std::byte> bytes);

  // Flushes to disk and closes. Returns the size and hash of the written bytes.
  FileDigest finish();

 private:
  std::string path_;
  FileHandle file_;
  Sha256 sha256_;
  uint64_t written_bytes_ = 0;
};

class InputFile {
 public:
  // Opens a regular file. All functions throw Error(kData) naming path and reason.
  explicit InputFile(std::string path);

  uint64_t size_bytes() const { return size_bytes_; }

  // Fills `bytes` with the next bytes of the file. Throws if the file ends earlier.
  void read(std::span<std::byte> bytes);

 private:
  std::string path_;
  FileHandle file_;
  uint64_t size_bytes_ = 0;
};

// Returns the bytes that the two classes have moved in this process so far. The number shows whether
// a long read goes on.
int64_t file_bytes_moved();

// Reads a file once. Returns its size and hash. Throws Error(kData).
FileDigest digest_file(const std::string& path);

// Reads a whole small file. Throws Error(kData), also if it is larger than `limit_bytes`.
std::string read_text_file(const std::string& path, uint64_t limit_bytes);

// Creates a folder and those above it that are missing. Throws Error(kIo) naming it and the reason.
void make_folder(const std::string& path);

// Makes creations, renames and deletions in the folder durable (fsync). Throws Error(kIo).
void sync_folder(const std::string& path);

// Throws Error(kIo) "[file] cannot VERB PATH: errno's text", followed by `detail`.
[[noreturn]] void throw_io_error(const char* verb, const std::string& path, int error_number,
                                 const std::string& detail = "");

}  // namespace pushpull
