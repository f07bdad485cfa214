#include "common/io/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "common/base/error.h"

namespace pushpull {
namespace {

Error cannot_write(const std::string& path) {
  return {ErrorCode::kIo, "[out] cannot write " + path + ": " + std::strerror(errno)};
}

}  // namespace

void write_file(const std::string& path, const std::string& text) {
  const std::string temporary = path + ".tmp";
  const int fd = open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) throw cannot_write(path);
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t n = write(fd, text.data() + done, text.size() - done);
    if (n < 0) break;
    done += static_cast<size_t>(n);
  }
  bool whole = done == text.size() && fsync(fd) == 0;
  int reason = errno;
  close(fd);
  if (whole && rename(temporary.c_str(), path.c_str()) != 0) {
    whole = false;
    reason = errno;
  }
  if (!whole) {
    unlink(temporary.c_str());
    errno = reason;
    throw cannot_write(path);
  }
}

namespace {

// Bytes that the process has read and written.
std::atomic<int64_t> bytes_moved{0};

std::string errno_text(int error_number) { return std::generic_category().message(error_number); }

[[noreturn]] void throw_read_error(const std::string& path, const std::string& reason) {
  throw Error(ErrorCode::kData, "[file] cannot read " + path + ": " + reason);
}

}  // namespace

void throw_io_error(const char* verb, const std::string& path, int error_number,
                    const std::string& detail) {
  throw Error(ErrorCode::kIo, std::string("[file] cannot ") + verb + " " + path + ": " +
                                  errno_text(error_number) + detail);
}

FileHandle::~FileHandle() { close(); }

int FileHandle::close() {
  if (fd_ < 0) return 0;
  // Not repeated on EINTR: Linux has closed the descriptor by then.
  return ::close(std::exchange(fd_, -1)) == 0 ? 0 : errno;
}

OutputFile::OutputFile(std::string path)
    : path_(std::move(path)),
      file_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644)) {
  if (file_.get() < 0) throw_io_error("create", path_, errno);
}

void OutputFile::write(std::span<const std::byte> bytes) {
  sha256_.update(bytes);
  while (!bytes.empty()) {
    // Linux writes at most 2 GiB per call.
    const size_t chunk = std::min<size_t>(bytes.size(), size_t{1} << 30);
    const ssize_t n = ::write(file_.get(), bytes.data(), chunk);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      throw_io_error("write", path_, errno, " after " + std::to_string(written_bytes_) + " bytes");
    }
    written_bytes_ += static_cast<uint64_t>(n);
    bytes_moved.fetch_add(n, std::memory_order_relaxed);
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
}

FileDigest OutputFile::finish() {
  if (::fsync(file_.get()) != 0) throw_io_error("flush", path_, errno);
  if (const int error_number = file_.close(); error_number != 0) {
    throw_io_error("close", path_, error_number);
  }
  return {written_bytes_, sha256_.hex()};
}

// O_NONBLOCK, so that opening a FIFO does not wait for a writer.
InputFile::InputFile(std::string path)
    : path_(std::move(path)), file_(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  if (file_.get() < 0) throw_read_error(path_, errno_text(errno));
  struct stat status {};
  if (::fstat(file_.get(), &status) != 0) throw_read_error(path_, errno_text(errno));
  if (!S_ISREG(status.st_mode)) throw_read_error(path_, "not a regular file");
  size_bytes_ = static_cast<uint64_t>(status.st_size);
}

void InputFile::read(std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const size_t chunk = std::min<size_t>(bytes.size(), size_t{1} << 30);
    const ssize_t n = ::read(file_.get(), bytes.data(), chunk);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw_read_error(path_, errno_text(errno));
    if (n == 0) throw_read_error(path_, "it ended early; did another program change it?");
    bytes_moved.fetch_add(n, std::memory_order_relaxed);
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
}

int64_t file_bytes_moved() { return bytes_moved.load(std::memory_order_relaxed); }

FileDigest digest_file(const std::string& path) {
  InputFile file(path);
  Sha256 sha256;
  std::vector<std::byte> buffer(std::min<uint64_t>(file.size_bytes(), 1 << 20));
  for (uint64_t left = file.size_bytes(); left > 0;) {
    const std::span<std::byte> part(buffer.data(), std::min<uint64_t>(left, buffer.size()));
    file.read(part);
    sha256.update(part);
    left -= part.size();
  }
  return {file.size_bytes(), sha256.hex()};
}

std::string read_text_file(const std::string& path, uint64_t limit_bytes) {
  InputFile file(path);
  if (file.size_bytes() > limit_bytes) {
    throw_read_error(path, std::to_string(file.size_bytes()) + " bytes, at most " +
                               std::to_string(limit_bytes) + " are expected");
  }
  std::string text(file.size_bytes(), '\0');
  file.read(std::as_writable_bytes(std::span(text)));
  return text;
}

void make_folder(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) throw_io_error("create folder", path, error.value());
}

void sync_folder(const std::string& path) {
  FileHandle folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.get() < 0) throw_io_error("open folder", path, errno);
  // Some network file systems cannot fsync a folder and return EINVAL.
  if (::fsync(folder.get()) != 0 && errno != EINVAL) throw_io_error("flush folder", path, errno);
}

}  // namespace pushpull
