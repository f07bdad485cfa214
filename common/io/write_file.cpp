#include "common/io/write_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

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

}  // namespace pushpull
