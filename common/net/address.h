// Addresses as users write them: tcp://HOST:PORT. Any thread.
#pragma once

#include <string>
#include <vector>

namespace pushpull {

struct CommandLine;
struct KeyHelp;

struct Address {
  std::string host;  // name, IPv4, or IPv6 without brackets; "*" and "0.0.0.0" listen everywhere
  std::string port;  // number, "*", or for listening a range such as 5600-5631

  // Returns the ports to try in turn; "*" is one.
  std::vector<std::string> ports() const;

  std::string to_string() const;
  bool is_loopback() const;
  bool is_everywhere() const;
};

// Parses an address. A range of ports is for --listen only. Throws Error(kUsage) naming `flag` and the
// text.
Address parse_address(const std::string& text, const std::string& flag);

// Returns the address with another port or range of ports.
std::string with_port(const std::string& address, const std::string& port);

// The flag --data-port of programs that listen: one port, or a range to try in turn.
KeyHelp data_port_help();
// Returns its value, or "*" if it is not given. Throws Error(kUsage) naming the text.
std::string data_port_of(const CommandLine& line);

// Checks a host name or address without scheme and port. Throws Error(kUsage) naming `flag` and the
// text.
void check_host(const std::string& text, const std::string& flag);

// Keeps the addresses of a host, or the reason why it has none.
struct HostLookUp {
  std::vector<std::string> addresses;  // numbers, those of IPv4 first
  std::string why;                     // there are none

  bool only_ipv6() const;
};

// Asks the resolver, which may take seconds; an IP address is its own. Names of pods appear late, so ask
// again if there are no addresses.
HostLookUp look_up_host(const std::string& host);

// Returns whether an interface of this host, beside loopback, has an address of IPv4.
bool has_ipv4();

// Returns the local IP address on the route to `peer`; a joining server listens there. Throws
// Error(kUnreachable) naming the host if it cannot be resolved or routed.
std::string local_address_towards(const Address& peer);

}  // namespace pushpull
