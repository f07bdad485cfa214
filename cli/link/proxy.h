// Emulates a network link with a proxy in front of TCP ports: delay, jitter, rate, partitions and
// damage, without root. One thread, one epoll loop; link_model.h decides which bytes may pass when.
// Delays apply each way, as in tc-netem(8): a round trip takes twice as long. Not emulated: loss,
// since TCP hides it from both ends; and TCP's own estimate of the delay, since both of the proxy's
// connections are short.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/link/link_model.h"
#include "common/net/address.h"

namespace pushpull {

// Splits a descriptor's byte stream into lines: commands for the proxy, typed or from a file. One
// thread.
class LineReader {
 public:
  // fd: borrowed; -1 if there is no input.
  explicit LineReader(int fd) : fd_(fd) {}

  // Reads once. Returns false at the end of the input; a last line without a newline still counts.
  bool read_some();
  // Returns the next complete line without its newline, or empty if there is none yet.
  std::optional<std::string> next();

 private:
  int fd_;
  std::string text_;  // received, not yet returned by `next`
};

struct ProxyOptions {
  struct Port {
    Address listen;
    // Destination of the connections. Empty: the destination that they had before this host's
    // packet filter redirected them here (SO_ORIGINAL_DST; iptables-extensions(8), REDIRECT). One
    // port then serves all others.
    std::optional<Address> to;
  };
  std::vector<Port> ports;
  std::vector<LinkCommand> at_start;
  std::vector<TimedCommand> script;
  int64_t end_us = 0;           // microseconds until the proxy ends; 0 = runs until a command
  uint64_t seed = 1;            // for jitter and corrupted bits
  int commands_fd = -1;         // read for commands, one per line; -1 = none
  int64_t connect_ms = 10'000;  // milliseconds; timeout for connecting to `to`
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

// Limit of simultaneous connections; later ones are refused.
inline constexpr size_t kMaxProxyConnections = 4000;

// Prints "listening on HOST:PORT" for each port, then every executed command with its time. Runs
// until a quit command, a signal (SIGINT, SIGTERM, SIGHUP) or end_us. Throws Error(kUnreachable) if
// a name cannot be resolved, Error(kFailed) if it cannot listen on a port.
ProxyCounts run_proxy(const ProxyOptions& options);

}  // namespace pushpull
