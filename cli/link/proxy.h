// A network link between peers, played by a proxy in front of TCP ports: delay, jitter, rate,
// partitions and damage, without root. One thread, one epoll loop; link_model.h decides when which
// bytes may go. Delay is for each way, as in tc-netem(8): a round trip takes twice as long.
// Not played: loss, since TCP hides it from both ends; and TCP's own view of the delay, since each
// of the two connections that a proxy makes of one is short.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/link/link_model.h"
#include "common/net/address.h"

namespace pushpull {

struct ProxyOptions {
  struct Port {
    Address listen;
    // Empty: where the connection was headed for before the packet filter of this host redirected
    // it here (SO_ORIGINAL_DST; iptables-extensions(8), REDIRECT). One port then serves all others.
    std::optional<Address> to;
  };
  std::vector<Port> ports;
  std::vector<LinkCommand> at_start;
  std::vector<TimedCommand> script;
  int64_t end_us = 0;           // after so many microseconds; 0: when told
  uint64_t seed = 1;            // of jitter and corrupted bits
  int commands_fd = -1;         // lines of commands; -1: none
  int64_t connect_ms = 10'000;  // for the way to `to`
};

struct ProxyCounts {
  uint64_t connections = 0;
  uint64_t bytes_up = 0;
  uint64_t bytes_down = 0;
  uint64_t resets = 0;
  uint64_t refused = 0;
  uint64_t corrupted = 0;
  uint64_t truncated = 0;

  std::string to_string() const;
};

// Connections at one time; later ones are refused.
inline constexpr size_t kMaxProxyConnections = 4000;

// Prints "listening on HOST:PORT" for each port, later every command that it has carried out, and
// its time. Works until it is told to quit, a signal
// (SIGINT, SIGTERM, SIGHUP) comes, or the time is up. Throws Error(kUnreachable) where a name
// cannot be resolved, Error(kFailed) where a port cannot be listened on.
ProxyCounts run_proxy(const ProxyOptions& options);

}  // namespace pushpull
