// Unix sockets between processes of one user on one host, beside tcp. A server's has a name that
// follows from the run and from its data port, in a folder that is the user's alone: a worker that
// finds it there and can connect is on that server's host. Any thread.
#pragma once

#include <cstdint>
#include <string>

namespace pushpull {

// "ipc://..." for the server of `run` whose data endpoint is "tcp://HOST:PORT". The folder is made
// where there is none: pushpull-UID in $XDG_RUNTIME_DIR, $TMPDIR or /tmp. Throws Error(kIo) naming
// it where it cannot be made, is not ours or open to others, or where the name gets too long.
std::string local_endpoint(uint64_t run, const std::string& data_endpoint);

// Removes the socket's name at the end: libzmq leaves it.
class LocalSocketName {
 public:
  explicit LocalSocketName(const std::string& local_endpoint);
  ~LocalSocketName();
  LocalSocketName(const LocalSocketName&) = delete;
  LocalSocketName& operator=(const LocalSocketName&) = delete;

 private:
  std::string path_;
};

// Somebody listens there.
bool answers(const std::string& local_endpoint);

// Removes what killed servers have left beside `local_endpoint`: sockets older than a minute on
// which nobody listens.
void remove_stale(const std::string& local_endpoint);

}  // namespace pushpull
