#include "common/io/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "common/base/error.h"
#include "common/base/process.h"
#include "common/base/text.h"
#include "common/io/file.h"

namespace pushpull {

namespace {

constexpr size_t kMaxHolderBytes = 300;

// Returns the holder's description of itself: "process 7 on host n1 since 2026-01-31T23:59:59Z".
std::string holder_in(int fd) {
  std::array<char, kMaxHolderBytes> text{};
  const ssize_t n = pread(fd, text.data(), text.size(), 0);
  if (n <= 0) return "another process";
  std::string line(text.data(), static_cast<size_t>(n));
  line.resize(std::min(line.size(), line.find('\n')));
  return printable(line, kMaxHolderBytes);
}

}  // namespace

FolderLock::FolderLock(const std::string& folder, const std::string& tag, const std::string& key)
    : path_(folder + "/.lock") {
  std::error_code error;
  made_folder_ = std::filesystem::create_directories(folder, error);
  if (error) {
    throw Error(ErrorCode::kIo,
                "[" + tag + "] cannot make the folder " + folder + ": " + error.message());
  }
  take(folder, tag, "another folder with " + key);
}

FolderLock FolderLock::beside(const std::string& file, const std::string& tag,
                              const std::string& key) {
  FolderLock out;
  out.path_ = file + ".lock";
  out.take(file, tag, "another file with " + key);
  return out;
}

// another: the way out, for messages.
void FolderLock::take(const std::string& locked, const std::string& tag,
                      const std::string& another) {
  // a holder that ends removes its file; a process that opened it before then has locked a deleted
  // file
  while (lock(locked, tag, another) && !still_exists()) fd_.reset();
  if (fd_.get() >= 0) sign();
}

FolderLock::~FolderLock() {
  if (fd_.get() < 0) return;
  unlink(path_.c_str());
  if (made_folder_) rmdir(std::filesystem::path(path_).parent_path().c_str());
}

// Returns false if this file system does not support locks.
bool FolderLock::lock(const std::string& locked, const std::string& tag,
                      const std::string& another) {
  fd_ = UniqueFd(open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (fd_.get() < 0) throw_io_error("write", path_, errno);
  if (flock(fd_.get(), LOCK_EX | LOCK_NB) == 0) return true;
  const int reason = errno;
  if (reason == EWOULDBLOCK) {
    throw Error(ErrorCode::kUsage, "[" + tag + "] " + locked + " is in use by " +
                                       holder_in(fd_.get()) +
                                       "; wait until it has ended, or name " + another);
  }
  notice_ = "[" + tag + "] " + locked + " cannot be locked (" + std::strerror(reason) +
            "): nothing keeps a second job from writing there";
  fd_.reset();
  return false;
}

bool FolderLock::still_exists() const {
  struct stat ours {};
  struct stat named {};
  return fstat(fd_.get(), &ours) == 0 && stat(path_.c_str(), &named) == 0 &&
         ours.st_dev == named.st_dev && ours.st_ino == named.st_ino;
}

void FolderLock::sign() const {
  const std::string line = "process " + std::to_string(getpid()) + " on host " + host_name() +
                           " since " + utc_now() + "\n";
  const ssize_t written = pwrite(fd_.get(), line.data(), line.size(), 0);
  // a full disk costs the holder's name, not the lock
  if (written < 0 || ftruncate(fd_.get(), written) != 0) return;
}

}  // namespace pushpull
