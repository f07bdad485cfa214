#include "common/net/endpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "common/base/error.h"
#include "common/net/address.h"
#include "tests/common/net/loopback.h"
#include "tests/common/net/wire_samples.h"
#include "tests/common/thrown.h"

namespace pushpull {
namespace {

using testing::HasSubstr;

class Endpoint : public testing::Test {
 protected:
  zmq::context_t context_{1};
  Router router_{context_, "tcp://127.0.0.1:*", EndpointLimits{}};
};

TEST_F(Endpoint, ListensOnAFreePortAndReportsIt) {
  const Address address = parse_address(router_.address(), "listen");
  EXPECT_EQ(address.host, "127.0.0.1");
  EXPECT_GT(std::stoi(address.port), 0);
}

TEST_F(Endpoint, TheBytesOfEachMessageAreCountedOnceEachWay) {
  Dealer dealer(context_, router_.address(), EndpointLimits{});
  constexpr size_t kBytes = 100'000;
  const auto floats = std::make_shared<std::array<std::byte, kBytes>>();
  Message message;
  message.header.mutable_ping();
  message.payloads = {{floats, std::span<const std::byte>(*floats)}};
  const Traffic before = traffic_of_this_process();
  dealer.send(message);
  ASSERT_TRUE(receive_one(router_));
  const Traffic after = traffic_of_this_process();
  // the router's frame has the peer's id before it
  for (const int64_t bytes : {after.sent - before.sent, after.received - before.received}) {
    EXPECT_GT(bytes, static_cast<int64_t>(kBytes));
    EXPECT_LT(bytes, static_cast<int64_t>(kBytes) + 300);
  }
}

// After damaged bytes, for example, the first connection delivers nothing any more.
TEST_F(Endpoint, ASecondConnectionReplacesTheFirstOnceItDeliversAMessage) {
  Dealer dealer(context_, router_.address(), EndpointLimits{});
  dealer.send(hello("one"));
  const auto first = receive_one(router_);
  ASSERT_TRUE(first);
  dealer.open_second();
  dealer.send(hello("both"));
  const auto left = receive_one(router_);
  const auto right = receive_one(router_);
  ASSERT_TRUE(left && right);
  EXPECT_NE(left->first, right->first);
  const PeerId second = left->first == first->first ? right->first : left->first;
  // a message on the first connection does not end the second: perhaps only one direction is broken
  ASSERT_EQ(router_.send(first->first, hello("from the first")), SendResult::kSent);
  EXPECT_EQ(receive_one(dealer)->header.hello().host(), "from the first");
  ASSERT_EQ(router_.send(second, hello("from the second")), SendResult::kSent);
  EXPECT_EQ(receive_one(dealer)->header.hello().host(), "from the second");
  EXPECT_TRUE(serve_until(router_, [&] {
    return router_.send(first->first, hello("gone?")) == SendResult::kDisconnected;
  }));
  dealer.send(hello("once"));
  const auto last = receive_one(router_);
  ASSERT_TRUE(last);
  EXPECT_EQ(last->first, second);
  EXPECT_EQ(last->second.header.hello().host(), "once");
  EXPECT_FALSE(router_.receive());
}

TEST_F(Endpoint, ASecondConnectionWithoutMessagesIsReplaced) {
  Dealer dealer(context_, router_.address(), EndpointLimits{});
  dealer.open_second();
  dealer.open_second();
  dealer.send(hello("twice"));
  const auto left = receive_one(router_);
  const auto right = receive_one(router_);
  ASSERT_TRUE(left && right);
  EXPECT_NE(left->first, right->first);
  EXPECT_FALSE(router_.receive());
}

TEST_F(Endpoint, AWatchedDealerHearsThatItsConnectionWasClosed) {
  auto router = std::make_unique<Router>(context_, "tcp://127.0.0.1:*", EndpointLimits{});
  Dealer dealer(context_, router->address(), control_limits());
  const auto answer = [&] {
    const auto received = receive_one(*router);
    ASSERT_TRUE(received);
    router->send(received->first, hello("answer"));
  };
  dealer.send(hello("first"));
  answer();
  ASSERT_TRUE(receive_one(dealer));
  EXPECT_FALSE(dealer.take_closed());
  // the second connection takes the place of the first, which this process closes
  dealer.open_second();
  dealer.send(hello("both"));
  answer();
  answer();
  ASSERT_TRUE(receive_one(dealer));
  EXPECT_FALSE(dealer.take_closed());
  router.reset();
  bool closed = false;
  EXPECT_TRUE(serve_until(router_, [&] {
    closed = closed || dealer.take_closed();
    return closed;
  }));
  EXPECT_FALSE(dealer.take_closed()) << "once";
}

TEST_F(Endpoint, EveryKindOfMessageSurvivesARoundTrip) {
  Dealer dealer(context_, router_.address(), EndpointLimits{});
  for (const Message& message : every_kind_of_message()) {
    dealer.send(message);
    const auto there = receive_one(router_);
    ASSERT_TRUE(there);
    EXPECT_EQ(there->second.header.DebugString(), message.header.DebugString());
    EXPECT_EQ(router_.send(there->first, there->second), SendResult::kSent);
    const auto back = receive_one(dealer);
    ASSERT_TRUE(back);
    EXPECT_EQ(back->header.DebugString(), message.header.DebugString());
    ASSERT_EQ(back->payloads.size(), message.payloads.size());
    for (size_t i = 0; i < message.payloads.size(); ++i) {
      ASSERT_EQ(back->payloads[i].bytes.size(), message.payloads[i].bytes.size());
      EXPECT_EQ(std::memcmp(back->payloads[i].bytes.data(), message.payloads[i].bytes.data(),
                            message.payloads[i].bytes.size()),
                0);
    }
  }
  EXPECT_EQ(router_.rejected_frames(), 0);
}

// libzmq hands out small frames inside its receive buffer, at any offset.
TEST_F(Endpoint, PayloadsAreAlignedAtAnyOffsetInTheReceiveBuffer) {
  Dealer dealer(context_, router_.address(), EndpointLimits{});
  for (int i = 0; i < 64; ++i) {
    Message message;
    wire::Load* load = message.header.mutable_load();
    load->set_slice(i % 7 == 0 ? 300 : 1);  // headers of different lengths
    message.payloads.push_back(payload_of_floats(100 + static_cast<size_t>(i)));
    message.payloads.push_back(payload_of_floats(33));
    dealer.send(message);
  }
  for (int i = 0; i < 64; ++i) {
    const auto received = receive_one(router_);
    ASSERT_TRUE(received);
    for (const Payload& payload : received->second.payloads) {
      EXPECT_EQ(reinterpret_cast<uintptr_t>(payload.floats()) % alignof(float), 0U);
      EXPECT_EQ(payload.floats()[payload.float_count() - 1],
                static_cast<float>(payload.float_count() - 1));
    }
  }
}

TEST_F(Endpoint, AWorkerMayConnectBeforeTheServerListens) {
  std::string address;
  {
    zmq::context_t other(1);  // its destructor waits until the port is free again
    const Router router(other, "tcp://127.0.0.1:*", EndpointLimits{});
    address = router.address();
  }
  Dealer dealer(context_, address, EndpointLimits{});
  dealer.send(hello("early"));
  Router late(context_, address, EndpointLimits{});
  const auto received = receive_one(late);
  ASSERT_TRUE(received);
  EXPECT_EQ(received->second.header.hello().host(), "early");
}

TEST_F(Endpoint, ReportsThatAPeerIsGone) {
  PeerId peer;
  {
    Dealer dealer(context_, router_.address(), EndpointLimits{});
    dealer.send(hello("short"));
    const auto received = receive_one(router_);
    ASSERT_TRUE(received);
    peer = received->first;
    EXPECT_EQ(router_.send(peer, hello("there")), SendResult::kSent);
  }
  EXPECT_TRUE(serve_until(
      router_, [&] { return router_.send(peer, hello("hello?")) == SendResult::kDisconnected; }));
  EXPECT_EQ(router_.send("never seen", hello("")), SendResult::kDisconnected);
}

// The sender then blocks. The kernel buffers some megabytes more.
TEST_F(Endpoint, AReceiverThatDoesNotReadBuffersALimitedNumberOfBytes) {
  constexpr size_t kBytes = size_t{4} << 20;
  Router slow(context_, "tcp://127.0.0.1:*", data_limits(kBytes));
  zmq::socket_t sender(context_, zmq::socket_type::dealer);
  sender.set(zmq::sockopt::sndhwm, 1);
  sender.set(zmq::sockopt::linger, 0);
  sender.set(zmq::sockopt::sndtimeo, 1000);
  sender.connect(slow.address());
  size_t sent = 0;
  while (sent < 100 && sender.send(zmq::message_t(kBytes), zmq::send_flags::none)) ++sent;
  EXPECT_GE(sent, 16U);
  EXPECT_LE(sent, 40U) << "64 MiB, and the bytes in flight";
}

TEST_F(Endpoint, APortInUseIsNamedWithARemedy) {
  const std::string text = thrown(ErrorCode::kUsage, [&] {
    const Router second(context_, router_.address(), EndpointLimits{});
  });
  EXPECT_THAT(text, HasSubstr(parse_address(router_.address(), "listen").port));
  EXPECT_THAT(text, HasSubstr("in use"));
  EXPECT_THAT(text, HasSubstr("choose another port"));
}

TEST_F(Endpoint, ARangeOfPortsIsTriedInTurn) {
  const int taken = std::stoi(parse_address(router_.address(), "listen").port);
  const int last = std::min(65535, taken + 20);
  const std::string range = std::to_string(taken) + "-" + std::to_string(last);
  const Router router(context_, with_port(router_.address(), range), EndpointLimits{});
  const int port = std::stoi(parse_address(router.address(), "listen").port);
  EXPECT_GT(port, taken);
  EXPECT_LE(port, last);
}

TEST_F(Endpoint, AnAddressOfAnotherHostIsNamed) {
  // RFC 5737: no host's
  EXPECT_THAT(
      thrown(ErrorCode::kUsage,
             [&] { const Router second(context_, "tcp://192.0.2.1:5555", EndpointLimits{}); }),
      HasSubstr("192.0.2.1:5555"));
}

TEST_F(Endpoint, AnInvalidAddressIsAUsageError) {
  EXPECT_THAT(thrown(ErrorCode::kUsage,
                     [&] { const Dealer dealer(context_, "tcp://nonsense", EndpointLimits{}); }),
              HasSubstr("tcp://nonsense"));
}

TEST_F(Endpoint, ReceiveReturnsAtOnceWithoutAMessage) {
  EXPECT_FALSE(router_.receive());
  Dealer dealer(context_, router_.address(), EndpointLimits{});
  EXPECT_FALSE(dealer.receive());
}

TEST_F(Endpoint, TurnEndsAfterItsMessagesOrItsBytesAndLosesNone) {
  Dealer dealer(context_, router_.address(), EndpointLimits{});
  for (int i = 0; i < 3; ++i) {
    dealer.socket().send(zmq::str_buffer("garbage"), zmq::send_flags::none);
  }
  for (int i = 0; i < 4; ++i) dealer.send(hello(std::string(1000, 'a')));
  // Receives until the budget is used up.
  const auto turn = [&](int64_t messages, int64_t bytes) {
    TurnBudget budget(messages, bytes);
    int taken = 0;
    const int64_t begin = now_ms();
    while (budget.left() && now_ms() - begin < kPatienceMs) {
      if (router_.receive(&budget)) ++taken;
    }
    return taken;
  };
  EXPECT_EQ(turn(2, 1 << 20), 0);
  EXPECT_EQ(router_.rejected_frames(), 2) << "dropped messages count";
  EXPECT_EQ(turn(2, 1 << 20), 1);
  EXPECT_EQ(turn(100, 1), 1) << "one message may be larger than the budget";
  EXPECT_EQ(turn(100, 1001), 1);
  EXPECT_EQ(turn(1, 1 << 20), 1);
}

TEST_F(Endpoint, ADealerCountsUnreadableMessages) {
  Dealer dealer(context_, router_.address(), EndpointLimits{});
  dealer.send(hello("a"));
  const auto received = receive_one(router_);
  ASSERT_TRUE(received);
  router_.socket().send(zmq::buffer(received->first), zmq::send_flags::sndmore);
  router_.socket().send(zmq::str_buffer("garbage"), zmq::send_flags::none);
  router_.send(received->first, hello("good"));
  const auto answer = receive_one(dealer);
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->header.hello().host(), "good");
  EXPECT_EQ(dealer.rejected_frames(), 1);
  EXPECT_EQ(dealer.foreign_version(), 0);
}

TEST_F(Endpoint, ADealerRecordsAForeignVersion) {
  Dealer dealer(context_, router_.address(), EndpointLimits{});
  dealer.send(hello("a"));
  const auto received = receive_one(router_);
  ASSERT_TRUE(received);
  router_.socket().send(zmq::buffer(received->first), zmq::send_flags::sndmore);
  router_.socket().send(zmq::buffer(std::string("PUSHPL\0\x63", 8)), zmq::send_flags::none);
  router_.send(received->first, hello("good"));
  ASSERT_TRUE(receive_one(dealer));
  EXPECT_EQ(dealer.foreign_version(), 99);
}

// Profilers and debuggers send signals that are handled; libzmq then aborts its system call.
TEST_F(Endpoint, HandledSignalsNeitherFailAWaitNorTearMessages) {
  static volatile std::sig_atomic_t handled;
  handled = 0;
  std::signal(SIGUSR1, [](int) { handled = handled + 1; });
  Dealer dealer(context_, router_.address(), EndpointLimits{});
  const pthread_t self = pthread_self();
  std::jthread shooter([self](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      pthread_kill(self, SIGUSR1);
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  });
  std::array<zmq::pollitem_t, 1> items{{{router_.socket().handle(), 0, ZMQ_POLLIN, 0}}};
  int rounds = 0;
  for (; handled < 500; ++rounds) {
    Message message;
    wire::Load* load = message.header.mutable_load();
    load->set_slice(rounds);
    for (int i = 0; i < 3; ++i) message.payloads.push_back(payload_of_floats(5000));
    dealer.send(message);
    std::optional<std::pair<PeerId, Message>> received;
    while (!(received = router_.receive())) poll_sockets(items, 50);
    ASSERT_EQ(received->second.header.load().slice(), rounds);
    ASSERT_EQ(received->second.payloads.size(), 3U);
    poll_sockets(items, 1);  // no message arrives: the signals hit this wait
  }
  shooter.request_stop();
  shooter.join();
  std::signal(SIGUSR1, SIG_DFL);
  EXPECT_EQ(router_.rejected_frames(), 0);
}

}  // namespace
}  // namespace pushpull
