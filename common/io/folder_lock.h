// Keeps two programs from writing into one folder or to one file: a lock on FOLDER/.lock or
// FILE.lock, which the kernel releases when the process ends, however it ends. It holds between the processes of a host, and
// between hosts if the file system supports flock across them. Any thread; one thread per object.
#pragma once

#include <string>

#include "common/base/unique_fd.h"

namespace pushpull {

class FolderLock {
 public:
  // Creates the folder if it is missing, and locks it.
  //   tag, key: the option that named the folder, for messages: "out", "--out".
  // Throws Error(kUsage) with process, host and time of the holder if it is locked, Error(kIo) if
  // the folder or the file cannot be created.
  FolderLock(const std::string& folder, const std::string& tag, const std::string& key);
  // The same for one file, in a folder that exists. Throws Error(kIo) if it does not.
  static FolderLock beside(const std::string& file, const std::string& tag, const std::string& key);
  // Removes the lock's file and releases the lock. Removes the folder, too, if this object has created it
  // and it is empty.
  ~FolderLock();
  FolderLock(FolderLock&&) noexcept = default;
  FolderLock& operator=(FolderLock&&) = delete;

  // Returns why the file system cannot lock, to warn the user that a second job is not kept out; ""
  // if the lock is held.
  const std::string& notice() const { return notice_; }

 private:
  FolderLock() = default;
  void take(const std::string& locked, const std::string& tag, const std::string& another);
  bool lock(const std::string& locked, const std::string& tag, const std::string& another);
  bool still_exists() const;
  void sign() const;

  std::string path_;
  UniqueFd fd_;
  bool made_folder_ = false;
  std::string notice_;
};

}  // namespace pushpull
