#include "common/net/tcp_socket.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

#include "common/base/error.h"
#include "common/base/text.h"

namespace pushpull {
namespace {

// SO_ORIGINAL_DST of linux/netfilter_ipv4.h and its IPv6 counterpart. Their headers conflict with
// the C library's.
constexpr int kOriginalDestination = 80;

void set(int fd, int level, int option, int value) {
  setsockopt(fd, level, option, &value, sizeof value);
}

}  // namespace

std::string SocketAddress::to_string() const {
  std::array<char, NI_MAXHOST> host{};
  std::array<char, NI_MAXSERV> port{};
  if (getnameinfo(get(), length, host.data(), host.size(), port.data(), port.size(),
                  NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return "unknown";
  }
  const std::string name = host.data();
  return (storage.ss_family == AF_INET6 ? "[" + name + "]" : name) + ":" + port.data();
}

std::string SocketAddress::host() const {
  std::array<char, NI_MAXHOST> name{};
  const int rc = getnameinfo(get(), length, name.data(), name.size(), nullptr, 0, NI_NUMERICHOST);
  return rc == 0 ? name.data() : "";
}

int SocketAddress::port() const {
  return ntohs(storage.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6&>(storage).sin6_port
                   : reinterpret_cast<const sockaddr_in&>(storage).sin_port);
}

bool SocketAddress::operator==(const SocketAddress& other) const {
  return to_string() == other.to_string();
}

Address parse_host_port(const std::string& text, const std::string& flag) {
  try {
    Address address = parse_address(text.starts_with("tcp://") ? text : "tcp://" + text, flag);
    if (address.port == "*") {
      address.port = "0";
    }
    return address;
  } catch (const Error&) {
    throw Error(ErrorCode::kUsage, "[usage] --" + flag + " " + printable(text) +
                                       ": expected HOST:PORT, such as 127.0.0.1:5555");
  }
}

SocketAddress resolve(const Address& address, const std::string& tag) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = address.is_everywhere() ? AI_PASSIVE : 0;
  addrinfo* found = nullptr;
  const int rc = getaddrinfo(address.host == "*" ? "0.0.0.0" : address.host.c_str(),
                             address.port.c_str(), &hints, &found);
  if (rc != 0) {
    throw Error(ErrorCode::kUnreachable, "[" + tag + "] cannot resolve " + printable(address.host) +
                                             ": " + gai_strerror(rc));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> list(found, &freeaddrinfo);
  SocketAddress out;
  std::memcpy(&out.storage, found->ai_addr, found->ai_addrlen);
  out.length = found->ai_addrlen;
  return out;
}

UniqueFd listen_on(const Address& address, const std::string& tag) {
  const SocketAddress at = resolve(address, tag);
  UniqueFd fd(socket(at.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (fd.get() >= 0) {
    set(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  }
  if (fd.get() < 0 || bind(fd.get(), at.get(), at.length) != 0 ||
      listen(fd.get(), SOMAXCONN) != 0) {
    throw Error(ErrorCode::kFailed,
                "[" + tag + "] cannot listen on " + at.to_string() + ": " + errno_text());
  }
  return fd;
}

SocketAddress local_name(int fd) {
  SocketAddress out;
  out.length = sizeof out.storage;
  getsockname(fd, reinterpret_cast<sockaddr*>(&out.storage), &out.length);
  return out;
}

SocketAddress peer_name(int fd) {
  SocketAddress out;
  out.length = sizeof out.storage;
  getpeername(fd, reinterpret_cast<sockaddr*>(&out.storage), &out.length);
  return out;
}

UniqueFd start_connect(const SocketAddress& to) {
  UniqueFd fd(socket(to.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (fd.get() >= 0 && connect(fd.get(), to.get(), to.length) != 0 && errno != EINPROGRESS) {
    fd.reset();
  }
  return fd;
}

int connect_error(int fd) {
  int error = 0;
  socklen_t length = sizeof error;
  getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length);
  return error;
}

std::optional<SocketAddress> original_destination(int fd) {
  const bool v6 = local_name(fd).storage.ss_family == AF_INET6;
  SocketAddress out;
  out.length = sizeof out.storage;
  if (getsockopt(fd, v6 ? IPPROTO_IPV6 : IPPROTO_IP, kOriginalDestination, &out.storage,
                 &out.length) != 0 ||
      out == local_name(fd)) {
    return std::nullopt;
  }
  return out;
}

void close_with_reset(UniqueFd& fd) {
  const linger now{.l_onoff = 1, .l_linger = 0};
  setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &now, sizeof now);
  fd.reset();
}

void send_at_once(int fd) { set(fd, IPPROTO_TCP, TCP_NODELAY, 1); }

std::string errno_text() {
  return std::strerror(errno);  // NOLINT(concurrency-mt-unsafe): its users have one thread
}

}  // namespace pushpull
