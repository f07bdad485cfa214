#include "common/net/greeting.h"

#include <algorithm>
#include <string_view>

#include "common/base/process.h"
#include "common/net/endpoint.h"

namespace pushpull {

namespace {

using std::string_view_literals::operator""sv;

// signature, version 3.0, mechanism padded to 20 bytes, as-server flag, filler
constexpr size_t kGreetingBytes = 64;
constexpr size_t kMechanismAt = 12;
constexpr size_t kMechanismBytes = 20;
// Our greeting up to the version. A peer that reads a mechanism that it does not accept closes
// silently, so we send none.
constexpr std::string_view kBegin = "\xff\0\0\0\0\0\0\0\0\x7f\x03\0"sv;

}  // namespace

std::string mechanism_at(zmq::context_t& context, const std::string& address, int timeout_ms) {
  zmq::socket_t stream(context, zmq::socket_type::stream);  // bare TCP
  stream.set(zmq::sockopt::linger, 0);
  stream.connect(address);
  std::string greeting;
  const int64_t until_ms = now_ms() + timeout_ms;
  while (greeting.size() < kGreetingBytes && now_ms() < until_ms) {
    zmq::pollitem_t item{stream.handle(), 0, ZMQ_POLLIN, 0};
    poll_sockets({&item, 1}, static_cast<int>(std::max<int64_t>(until_ms - now_ms(), 0)));
    zmq::message_t peer;
    zmq::message_t bytes;
    if (!stream.recv(peer, zmq::recv_flags::dontwait)) continue;
    if (!stream.recv(bytes, zmq::recv_flags::dontwait)) continue;
    if (bytes.size() > 0) {
      greeting += bytes.to_string();
      continue;
    }
    // an empty frame: the connection was opened or closed
    if (!stream.send(peer, zmq::send_flags::sndmore | zmq::send_flags::dontwait)) break;
    stream.send(zmq::buffer(kBegin), zmq::send_flags::dontwait);
  }
  if (greeting.size() < kGreetingBytes) return "";
  const std::string name = greeting.substr(kMechanismAt, kMechanismBytes);
  return name.substr(0, name.find('\0'));
}

}  // namespace pushpull
