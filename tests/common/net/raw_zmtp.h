// A hostile peer: a bare TCP connection, with ZMTP 3.0 (rfc.zeromq.org/spec/23) spoken by hand as
// far as wanted.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace pushpull {

class RawPeer {
 public:
  // address: tcp://127.0.0.1:PORT.
  explicit RawPeer(const std::string& address);
  ~RawPeer();
  RawPeer(const RawPeer&) = delete;
  RawPeer& operator=(const RawPeer&) = delete;

  void send(const std::string& bytes) const;
  // Greeting and READY of a DEALER; waits for the server's greeting.
  void handshake() const;
  void message(const std::vector<std::string>& frames) const;
  // A frame that says it has `length` bytes, and the first hundred.
  void forged_length(uint64_t length) const;
  // Reads until the other side has closed the connection; false where it does not within ten
  // seconds.
  bool closed_by_peer() const;

 private:
  int fd_;
};

}  // namespace pushpull
