// Non-blocking TCP sockets: of direct connections, of the proxy, and for measuring links. Any thread.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <optional>
#include <string>

#include "common/base/unique_fd.h"
#include "common/net/address.h"

namespace pushpull {

// A resolved socket address.
struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  std::string host() const;  // as a number
  int port() const;
  std::string to_string() const;  // HOST:PORT
  bool operator==(const SocketAddress& other) const;
};

// Parses "HOST:PORT", with an optional tcp:// prefix; port * or 0 picks a free one. Throws
// Error(kUsage) with `flag` and the text.
Address parse_host_port(const std::string& text, const std::string& flag);

// Throws Error(kUnreachable) with the tag and the host.
SocketAddress resolve(const Address& address, const std::string& tag = "link");

// Throws Error(kFailed) with the tag, address and reason.
UniqueFd listen_on(const Address& address, const std::string& tag = "link");
SocketAddress local_name(int fd);
SocketAddress peer_name(int fd);

// Does not wait: EPOLLOUT and connect_error() report the result. Returns -1 with errno set if
// connecting fails at once.
UniqueFd start_connect(const SocketAddress& to);
int connect_error(int fd);

// Returns the original destination of a redirected connection, or empty if it was not redirected.
std::optional<SocketAddress> original_destination(int fd);

// Closes with RST; discards unsent data.
void close_with_reset(UniqueFd& fd);

// Disables Nagle's algorithm (TCP_NODELAY).
void send_at_once(int fd);

// Returns the text of errno.
std::string errno_text();

}  // namespace pushpull
