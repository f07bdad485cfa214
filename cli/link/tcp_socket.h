// TCP sockets for the proxy and the measuring of links: made, not blocking, as their users want
// them. Any thread.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <optional>
#include <string>

#include "common/base/unique_fd.h"
#include "common/net/address.h"

namespace pushpull {

// An address that the kernel understands.
struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  std::string to_string() const;  // HOST:PORT
  bool operator==(const SocketAddress& other) const;
};

// "HOST:PORT"; a leading tcp:// may stand there; port * or 0 is a free one. Throws Error(kUsage)
// naming `flag` and the text.
Address parse_host_port(const std::string& text, const std::string& flag);

// Throws Error(kUnreachable) naming the host.
SocketAddress resolve(const Address& address);

// Throws Error(kFailed) naming address and reason.
UniqueFd listen_on(const Address& address);
SocketAddress local_name(int fd);

// Without waiting: EPOLLOUT and connect_error() say how it went. -1 with errno where not even that.
UniqueFd start_connect(const SocketAddress& to);
int connect_error(int fd);

// Where a redirected connection was headed for; empty: it came here directly.
std::optional<SocketAddress> original_destination(int fd);

// Closes with RST, whatever has not been sent yet.
void close_with_reset(UniqueFd& fd);

// Without waiting for more to send along.
void send_at_once(int fd);

// The reason in errno, as words.
std::string errno_text();

}  // namespace pushpull
