// A router, and helpers for tests of sockets on this host. Only a failing test reaches the deadline
// of a wait.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include "common/base/process.h"
#include "common/net/endpoint.h"

namespace pushpull {

constexpr int64_t kPatienceMs = 20'000;

// Polls until a message arrives. Socket: Router or Dealer.
template <class Socket>
auto receive_one(Socket& socket) {
  const int64_t begin = now_ms();
  auto received = socket.receive();
  while (!received && now_ms() - begin < kPatienceMs) {
    zmq::pollitem_t item{socket.socket().handle(), 0, ZMQ_POLLIN, 0};
    zmq::poll(&item, 1, std::chrono::milliseconds(20));
    received = socket.receive();
  }
  EXPECT_TRUE(received) << "no message arrived";
  return received;
}

// Waits until `condition` holds, and returns whether it does. Meanwhile the router reads and drops
// messages.
template <class Condition>
bool serve_until(Router& router, const Condition& condition) {
  const int64_t begin = now_ms();
  while (!condition() && now_ms() - begin < kPatienceMs) {
    zmq::pollitem_t item{router.socket().handle(), 0, ZMQ_POLLIN, 0};
    zmq::poll(&item, 1, std::chrono::milliseconds(20));
    router.receive();
  }
  return condition();
}

inline Message hello(const std::string& host) {
  Message message;
  message.header.mutable_hello()->set_host(host);
  return message;
}

}  // namespace pushpull
