// A hostile peer: a bare TCP connection that speaks as much of ZMTP 3.0 (rfc.zeromq.org/spec/23) by
// hand as a test needs.
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
  // Sends the greeting and READY of a DEALER; waits for the server's greeting.
  void handshake() const;
  void message(const std::vector<std::string>& frames) const;
  // Sends a frame that announces `length` bytes, and its first hundred.
  void forged_length(uint64_t length) const;
  // Reads until the peer closes the connection. Returns false if it does not within ten seconds.
  bool closed_by_peer() const;

 private:
  int fd_;
};

}  // namespace pushpull
