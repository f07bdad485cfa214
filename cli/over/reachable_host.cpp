#include "cli/over/reachable_host.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <array>
#include <memory>
#include <optional>

#include "common/base/error.h"
#include "common/net/address.h"

namespace pushpull {
namespace {

// An address of RFC 5737, which no host has: the route to it is the default route.
constexpr const char* kElsewhere = "198.51.100.1";

std::optional<std::string> address_towards(const std::string& host) {
  try {
    const std::string address = local_address_towards({host, "9"});
    const bool link_local = address.find('%') != std::string::npos;  // needs the peer's interface
    if (!link_local && !Address{address, "9"}.is_loopback()) return address;
  } catch (const Error&) {
    // no name or no route: another one may have
  }
  return std::nullopt;
}

std::optional<std::string> address_of_an_interface() {
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) return std::nullopt;
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> list(first, &freeifaddrs);
  for (const ifaddrs* at = list.get(); at != nullptr; at = at->ifa_next) {
    if (at->ifa_addr == nullptr || at->ifa_addr->sa_family != AF_INET) continue;
    if ((at->ifa_flags & IFF_UP) == 0 || (at->ifa_flags & IFF_LOOPBACK) != 0) continue;
    std::array<char, INET_ADDRSTRLEN> text{};
    const auto* address = reinterpret_cast<const sockaddr_in*>(at->ifa_addr);
    if (inet_ntop(AF_INET, &address->sin_addr, text.data(), text.size()) != nullptr) {
      return text.data();
    }
  }
  return std::nullopt;
}

}  // namespace

std::string reachable_host(const std::vector<std::string>& nodes) {
  for (const std::string& node : nodes) {
    if (const auto address = address_towards(node)) return *address;
  }
  if (const auto address = address_towards(kElsewhere)) return *address;
  return address_of_an_interface().value_or("127.0.0.1");
}

}  // namespace pushpull
