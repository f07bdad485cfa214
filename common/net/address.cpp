#include "common/net/address.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string_view>

#include "common/base/error.h"
#include "common/base/text.h"
#include "common/job/command_line.h"
#include "common/job/job_keys.h"

namespace pushpull {

std::string Address::to_string() const {
  const bool v6 = host.find(':') != std::string::npos;
  return "tcp://" + (v6 ? "[" + host + "]" : host) + ":" + port;
}

std::vector<std::string> Address::ports() const {
  const size_t dash = port.find('-');
  if (dash == std::string::npos) return {port};
  std::vector<std::string> all;
  const int last = std::stoi(port.substr(dash + 1));
  for (int one = std::stoi(port); one <= last; ++one) all.push_back(std::to_string(one));
  return all;
}

bool Address::is_loopback() const {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

bool Address::is_everywhere() const { return host == "*" || host == "0.0.0.0" || host == "::"; }

namespace {

// Returns whether the letters may be those of a name, an address or an interface.
bool is_host(const std::string& text) {
  constexpr std::string_view kAllowed =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_:%";
  // one colon separates host and port; an IPv6 address has more
  return !text.empty() && text.find_first_not_of(kAllowed) == std::string::npos &&
         std::count(text.begin(), text.end(), ':') != 1;
}

// Returns -1 for other text.
int port_number(const std::string& text) {
  constexpr uint64_t kLast = 65535;
  const uint64_t port = parse_uint64(text).value_or(kLast + 1);
  return port <= kLast ? static_cast<int>(port) : -1;
}

bool is_range(const std::string& text) {
  const size_t dash = text.find('-');
  if (dash == std::string::npos) return false;
  const int first = port_number(text.substr(0, dash));
  return first > 0 && first <= port_number(text.substr(dash + 1));
}

}  // namespace

Address parse_address(const std::string& text, const std::string& flag) {
  const auto fail = [&] {
    return Error(ErrorCode::kUsage, "[usage] --" + flag + " " + text +
                                        ": expected tcp://HOST:PORT, such as tcp://127.0.0.1:5555");
  };
  constexpr std::string_view kScheme = "tcp://";
  if (!text.starts_with(kScheme)) throw fail();
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon < kScheme.size()) throw fail();
  Address out;
  out.host = text.substr(kScheme.size(), colon - kScheme.size());
  out.port = text.substr(colon + 1);
  if (out.host.size() > 2 && out.host.front() == '[' && out.host.back() == ']') {
    out.host = out.host.substr(1, out.host.size() - 2);
  }
  if (out.host != "*" && !is_host(out.host)) throw fail();
  if (out.port == "*" || port_number(out.port) >= 0) return out;
  if (flag != "listen" || !is_range(out.port)) throw fail();
  return out;
}

std::string with_port(const std::string& address, const std::string& port) {
  Address out = parse_address(address, "listen");
  out.port = port;
  return out.to_string();
}

KeyHelp data_port_help() {
  return {"data-port", "*",
          "port for gradients and weights: one, or a range to try in turn, such as 5600-5631"};
}

std::string data_port_of(const CommandLine& line) {
  std::string text = line.own("data-port", "*");
  if (text == "*" || port_number(text) > 0 || is_range(text)) return text;
  throw Error(ErrorCode::kUsage, "[usage] --data-port " + printable(text) +
                                     ": expected a port or a range of them, such as 5600 or "
                                     "5600-5631");
}

void check_host(const std::string& text, const std::string& flag) {
  if (is_host(text)) return;
  throw Error(ErrorCode::kUsage, "[usage] --" + flag + " " + text +
                                     ": expected a host name or address alone, such as node17 or "
                                     "10.0.0.17; the port is the one of --listen");
}

bool HostLookUp::only_ipv6() const {
  return !addresses.empty() && addresses.front().find(':') != std::string::npos;
}

HostLookUp look_up_host(const std::string& host) {
  HostLookUp out;
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int rc = getaddrinfo(host.c_str(), nullptr, &hints, &found);
  if (rc != 0) {
    out.why = rc == EAI_SYSTEM ? std::strerror(errno) : gai_strerror(rc);
    return out;
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> list(found, &freeaddrinfo);
  for (const int family : {AF_INET, AF_INET6}) {
    for (const addrinfo* at = list.get(); at != nullptr; at = at->ai_next) {
      std::array<char, NI_MAXHOST> text{};
      if (at->ai_family == family && getnameinfo(at->ai_addr, at->ai_addrlen, text.data(),
                                                 text.size(), nullptr, 0, NI_NUMERICHOST) == 0) {
        out.addresses.emplace_back(text.data());
      }
    }
  }
  if (out.addresses.empty()) out.why = "it has no address of IPv4 or IPv6";
  return out;
}

bool has_ipv4() {
  ifaddrs* found = nullptr;
  if (getifaddrs(&found) != 0) return true;
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> list(found, &freeifaddrs);
  for (const ifaddrs* at = list.get(); at != nullptr; at = at->ifa_next) {
    const bool up = (at->ifa_flags & IFF_UP) != 0 && (at->ifa_flags & IFF_LOOPBACK) == 0;
    if (up && at->ifa_addr != nullptr && at->ifa_addr->sa_family == AF_INET) return true;
  }
  return false;
}

std::string local_address_towards(const Address& peer) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;  // connect() sends nothing, it only selects the route
  addrinfo* found = nullptr;
  const int rc = getaddrinfo(peer.host.c_str(), peer.port.c_str(), &hints, &found);
  if (rc != 0) {
    throw Error(ErrorCode::kUnreachable,
                "[join] cannot resolve " + peer.host + ": " + gai_strerror(rc));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> list(found, &freeaddrinfo);
  const int fd = socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_storage local{};
  socklen_t length = sizeof local;
  const bool routed = fd >= 0 && connect(fd, found->ai_addr, found->ai_addrlen) == 0 &&
                      getsockname(fd, reinterpret_cast<sockaddr*>(&local), &length) == 0;
  if (fd >= 0) close(fd);
  std::array<char, NI_MAXHOST> text{};
  if (!routed || getnameinfo(reinterpret_cast<sockaddr*>(&local), length, text.data(), text.size(),
                             nullptr, 0, NI_NUMERICHOST) != 0) {
    throw Error(ErrorCode::kUnreachable, "[join] no route to " + peer.host);
  }
  return text.data();
}

}  // namespace pushpull
