// Unix sockets between processes of one user on one host, as an alternative to tcp. The socket's
// name follows from the term and the server's data port; its folder belongs to the user alone. A
// worker that finds the socket and can connect to it is on the server's host. Any thread.
#pragma once

#include <cstdint>
#include <string>

namespace pushpull {

// Returns "ipc://..." for the term's server with the data endpoint "tcp://HOST:PORT". Creates the
// folder if needed: pushpull-UID in $XDG_RUNTIME_DIR, $TMPDIR or /tmp. Throws Error(kIo) naming the
// folder if it cannot be created, is not ours or is accessible to other users, or if the name is
// too long.
std::string local_endpoint(uint64_t term_id, const std::string& data_endpoint);

// Deletes the socket's file in its destructor, since libzmq does not.
class LocalSocketName {
 public:
  explicit LocalSocketName(const std::string& local_endpoint);
  ~LocalSocketName();
  LocalSocketName(const LocalSocketName&) = delete;
  LocalSocketName& operator=(const LocalSocketName&) = delete;

  std::string endpoint() const;

 private:
  std::string path_;
};

// Returns true if a process listens there.
bool answers(const std::string& local_endpoint);

// Deletes sockets that killed servers left beside `local_endpoint`: those older than a minute on
// which no process listens.
void remove_stale(const std::string& local_endpoint);

}  // namespace pushpull
