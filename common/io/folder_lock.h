// Keeps two programs from writing into one folder: a lock on FOLDER/.lock, which the kernel takes
// back when the process ends, however it ends. It holds between the processes of a host, and between
// hosts where the file system passes flock on. Any thread; one thread per object.
#pragma once

#include <string>

#include "common/base/unique_fd.h"

namespace pushpull {

class FolderLock {
 public:
  // Makes the folder where it is missing, and locks it.
  //   tag, key: what named the folder, for messages: "out", "--out".
  // Throws Error(kUsage) with process, host and time of the holder where it is locked, Error(kIo)
  // where the folder or the file cannot be made.
  FolderLock(const std::string& folder, const std::string& tag, const std::string& key);
  // Removes the file, and lets go.
  ~FolderLock();
  FolderLock(FolderLock&&) noexcept = default;
  FolderLock& operator=(FolderLock&&) = delete;

  // Why the file system locks nothing, to be told: then nobody is kept out. "": it does.
  const std::string& notice() const { return notice_; }

 private:
  bool lock(const std::string& folder, const std::string& tag, const std::string& key);
  bool is_still_there() const;
  void sign() const;

  std::string path_;
  UniqueFd fd_;
  std::string notice_;
};

}  // namespace pushpull
