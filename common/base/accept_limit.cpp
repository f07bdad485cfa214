#include "common/base/accept_limit.h"

#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

namespace pushpull {

namespace {

std::atomic<int64_t> first_kept = INT32_MAX;

}  // namespace

void keep_descriptors_from(int64_t first) { first_kept.store(first, std::memory_order_relaxed); }

}  // namespace pushpull

extern "C" __attribute__((visibility("default"))) int accept4(int listener, sockaddr* address,
                                                              socklen_t* bytes, int flags) {
  const auto fd = static_cast<int>(syscall(SYS_accept4, listener, address, bytes, flags));
  if (fd < pushpull::first_kept.load(std::memory_order_relaxed)) return fd;
  const linger at_once{1, 0};  // the peer is reset, and tries again
  setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  close(fd);
  errno = ECONNABORTED;
  return -1;
}
