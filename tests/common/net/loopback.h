// A router and what it needs, for tests of sockets on this host; waits have a deadline that only a
// failure reaches.
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

// Asks again until there is an answer. Socket: Router or Dealer.
template <class Socket>
auto receive_one(Socket& socket) {
  const int64_t begin = now_ms();
  auto received = socket.receive();
  while (!received && now_ms() - begin < kPatienceMs) {
    zmq::pollitem_t item{socket.socket().handle(), 0, ZMQ_POLLIN, 0};
    zmq::poll(&item, 1, std::chrono::milliseconds(20));
    received = socket.receive();
  }
  EXPECT_TRUE(received) << "nothing came";
  return received;
}

// Until `condition` holds; the router reads meanwhile, and what it reads is dropped.
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
