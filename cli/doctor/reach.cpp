#include "cli/doctor/reach.h"

#include <netdb.h>
#include <poll.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>

#include "cli/doctor/within.h"
#include "cli/link/tcp_socket.h"
#include "common/net/address.h"

namespace pushpull {

namespace {

constexpr double kNameSeconds = 5.0;
constexpr int kConnectMs = 3000;

struct Resolved {
  std::optional<SocketAddress> address;
  std::string why;
};

// Resolves as ZeroMQ does for members: a name resolves to IPv4 only.
Resolved look_up(const Address& address) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_family = address.host.find(':') == std::string::npos ? AF_INET : AF_INET6;
  addrinfo* found = nullptr;
  const int rc = getaddrinfo(address.host.c_str(), address.port.c_str(), &hints, &found);
  if (rc != 0) return {std::nullopt, gai_strerror(rc)};
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> list(found, &freeaddrinfo);
  SocketAddress out;
  std::memcpy(&out.storage, found->ai_addr, found->ai_addrlen);
  out.length = found->ai_addrlen;
  return {out, ""};
}

// Returns why the address does not accept connections, or "" if it does.
std::string why_not_connected(const SocketAddress& to) {
  const UniqueFd fd = start_connect(to);
  if (fd.get() < 0) return errno_text();
  pollfd writable{fd.get(), POLLOUT, 0};
  const int ready = poll(&writable, 1, kConnectMs);
  if (ready == 0) return "no answer within " + std::to_string(kConnectMs / 1000) + " s";
  errno = ready < 0 ? errno : connect_error(fd.get());
  return errno == 0 ? "" : errno_text();
}

}  // namespace

AddressFindings reach(const std::string& address, const std::string& check,
                      const std::string& way_out) {
  const std::string of = check.empty() ? "" : " " + check;
  const Address parsed = parse_address(address, "join");
  const auto resolved = within<Resolved>(kNameSeconds, [parsed] { return look_up(parsed); });
  if (!resolved || !resolved->address) {
    const std::string why = resolved ? resolved->why : "the name service did not answer";
    return {wrong("name" + of,
                  parsed.host + " cannot be resolved: " + why +
                      "; use its IP address, or put the name into DNS or /etc/hosts",
                  ErrorCode::kUnreachable),
            wrong("port" + of, address + " was not tried because its name is unknown",
                  ErrorCode::kUnreachable)};
  }
  const std::string numbers = resolved->address->to_string();
  Finding name = fine("name" + of, parsed.host + " is " + numbers.substr(0, numbers.rfind(':')));
  const std::string why = why_not_connected(*resolved->address);
  if (!why.empty()) {
    return {name, wrong("port" + of, address + " cannot be reached: " + why + "; " + way_out,
                        ErrorCode::kUnreachable)};
  }
  return {name, fine("port" + of, address + " accepts connections"), true};
}

}  // namespace pushpull
