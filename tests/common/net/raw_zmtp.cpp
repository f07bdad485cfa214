#include "tests/common/net/raw_zmtp.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <stdexcept>

#include "common/net/address.h"

namespace pushpull {

namespace {

// Returns `width` bytes in network order.
std::string big_endian(uint64_t value, int width) {
  std::string out;
  for (int i = width - 1; i >= 0; --i) out += static_cast<char>(value >> (8 * i) & 0xff);
  return out;
}

std::string property(const std::string& name, const std::string& value) {
  return big_endian(name.size(), 1) + name + big_endian(value.size(), 4) + value;
}

}  // namespace

RawPeer::RawPeer(const std::string& address) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  to.sin_port = htons(static_cast<uint16_t>(std::stoi(parse_address(address, "join").port)));
  const timeval ten_seconds{10, 0};
  setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &ten_seconds, sizeof ten_seconds);
  if (connect(fd_, reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0) {
    throw std::runtime_error("cannot connect to " + address);
  }
}

RawPeer::~RawPeer() { close(fd_); }

void RawPeer::send(const std::string& bytes) const {
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n = ::send(fd_, bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL);
    if (n <= 0) return;  // refused already: the test checks this
    done += static_cast<size_t>(n);
  }
}

void RawPeer::handshake() const {
  std::string mechanism = "NULL";
  mechanism.resize(20, '\0');
  std::string greeting = "\xff" + std::string(8, '\0') + "\x7f\x03" + std::string(1, '\0');
  greeting += mechanism + std::string(32, '\0');
  send(greeting);
  const std::string body =
      std::string("\x05READY") + property("Socket-Type", "DEALER") + property("Identity", "");
  send("\x04" + big_endian(body.size(), 1) + body);
  std::array<char, 64> answer{};
  size_t got = 0;
  while (got < answer.size()) {
    const ssize_t n = recv(fd_, answer.data() + got, answer.size() - got, 0);
    if (n <= 0) return;
    got += static_cast<size_t>(n);
  }
}

void RawPeer::message(const std::vector<std::string>& frames) const {
  std::string out;
  for (size_t i = 0; i < frames.size(); ++i) {
    const uint64_t more = i + 1 < frames.size() ? 1 : 0;
    const bool is_short = frames[i].size() < 256;
    out += big_endian(is_short ? more : more | 2, 1) +
           big_endian(frames[i].size(), is_short ? 1 : 8) + frames[i];
  }
  send(out);
}

void RawPeer::forged_length(uint64_t length) const {
  send(big_endian(2, 1) + big_endian(length, 8) + std::string(100, 'x'));
}

bool RawPeer::closed_by_peer() const {
  std::array<char, 4096> ignored{};
  while (true) {
    const ssize_t n = recv(fd_, ignored.data(), ignored.size(), 0);
    if (n == 0) return true;
    if (n < 0) return errno == ECONNRESET;
  }
}

}  // namespace pushpull
