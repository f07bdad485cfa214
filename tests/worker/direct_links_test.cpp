#include "worker/exchange/direct_links.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace pushpull {
namespace {

using testing::HasSubstr;
using testing::SizeIs;

PushPullSetup setup_of(Transport transport) {
  PushPullSetup setup;
  setup.term_id = 5;
  setup.incarnation = 11;
  setup.job.transport = transport;
  setup.total_elements = 100;
  return setup;
}

// A worker's links, and the server that it asks, in one process.
class DirectLinksTest : public testing::Test {
 protected:
  explicit DirectLinksTest(Transport transport = Transport::kTcp)
      : links_(setup_of(transport), &rings_, 0) {
    links_.connect(0, "tcp://127.0.0.1:5555", {});
  }

  // Returns the questions that are due after so many milliseconds more.
  std::vector<ToServer> due(int64_t later_ms = 0) { return links_.due(now_ms_ += later_ms); }
  Message offer() {
    Message answer;
    answer.header.mutable_direct_offer()->set_port(door_.port());
    answer.header.mutable_direct_offer()->set_nonce(door_.offer(11, now_ms_));
    return answer;
  }
  bool turn_until(const std::function<bool()>& condition, int turns = 10'000) {
    for (int turn = 0; turn < turns; ++turn) {
      if (condition()) return true;
      EXPECT_THAT(due(1), SizeIs(0));
      for (auto& opened : door_.turn(now_ms_)) {
        server_ = std::make_unique<DirectConnection>(rings_, std::move(opened.socket));
      }
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    return false;
  }
  void open() {
    EXPECT_THAT(due(20'000), SizeIs(1));
    EXPECT_FALSE(links_.on_message(0, offer(), now_ms_));
    EXPECT_TRUE(turn_until([&] { return links_.send(message(1)); }));
    EXPECT_TRUE(turn_until([&] { return server_ && server_->receive(); }));
  }
  static ToServer message(int64_t number, size_t bytes = 0) {
    ToServer out;
    out.message.header.mutable_exchange()->mutable_push()->set_number(number);
    out.message.header.mutable_exchange()->mutable_push()->set_data_hash(std::string(bytes, 'x'));
    out.connection = 2;
    return out;
  }

  Rings rings_{Wait::kSleep};
  int64_t now_ms_ = 1'000'000;
  int refused_ = 0;
  DirectDoor door_{"tcp://127.0.0.1:5555", Demand{},
                   [this](const std::string&, const Refusal&) { ++refused_; }};
  std::unique_ptr<DirectConnection> server_;
  DirectLinks links_;
};

TEST_F(DirectLinksTest, AServerIsAskedUntilItAnswers) {
  const auto asks = due();
  ASSERT_THAT(asks, SizeIs(1));
  const wire::AskDirect& ask = asks[0].message.header.ask_direct();
  EXPECT_EQ(ask.sender().incarnation(), 11U);
  EXPECT_EQ(ask.port(), 5555);
  EXPECT_THAT(due(49), SizeIs(0));
  EXPECT_THAT(due(1), SizeIs(1));
  EXPECT_THAT(due(99), SizeIs(0));
  EXPECT_THAT(due(1), SizeIs(1)) << "twice as long";
  EXPECT_THAT(due(10'000), SizeIs(1));
  EXPECT_FALSE(links_.send(message(1)));
}

TEST_F(DirectLinksTest, MessagesTakeTheConnectionThatWasOffered) {
  open();
  EXPECT_TRUE(links_.send(message(7)));
  std::optional<RingPair::Received> received;
  ASSERT_TRUE(turn_until([&] { return (received = server_->receive()).has_value(); }));
  EXPECT_EQ(received->connection, 2);
  EXPECT_EQ(received->message.header.exchange().push().number(), 7);
  EXPECT_TRUE(server_->send(2, message(8).message));
  std::optional<Message> answer;
  ASSERT_TRUE(turn_until([&] { return (answer = links_.receive(0, now_ms_)).has_value(); }));
  EXPECT_EQ(answer->header.exchange().push().number(), 8);
  EXPECT_TRUE(links_.on_message(0, *answer, now_ms_)) << "it is PushPull's";
}

TEST_F(DirectLinksTest, AServerThatOffersNoneIsAskedNoMore) {
  due();
  Message none;
  none.header.mutable_direct_offer()->set_text("a proxy\nis between");
  testing::internal::CaptureStderr();
  EXPECT_FALSE(links_.on_message(0, none, now_ms_));
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("server 0 is reached over ZeroMQ alone: a proxy\n"));
  EXPECT_THAT(due(100'000), SizeIs(0));
}

TEST_F(DirectLinksTest, ALostConnectionIsOpenedAgain) {
  open();
  server_.reset();
  testing::internal::CaptureStderr();
  EXPECT_FALSE(links_.receive(0, now_ms_));
  EXPECT_FALSE(links_.send(message(2))) << "it takes the socket";
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "") << "a server that ends closes it, too";
  EXPECT_THAT(due(1), SizeIs(0));
  open();
  EXPECT_TRUE(links_.send(message(3)));
}

TEST_F(DirectLinksTest, BytesThatAreNoMessageEndTheConnection) {
  open();
  const int fd = server_->poll_item().fd;
  EXPECT_EQ(write(fd, "strange bytes", 13), 13);
  testing::internal::CaptureStderr();
  EXPECT_FALSE(links_.receive(0, now_ms_));
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("a direct connection has"));
  EXPECT_FALSE(links_.send(message(2)));
}

TEST_F(DirectLinksTest, LargeMessagesEndTheConnectionForGood) {
  open();
  EXPECT_FALSE(links_.send(message(2, DirectConnection::kMaxMessageBytes)));
  EXPECT_TRUE(turn_until([&] {
    server_->look();
    return !links_.receive(0, now_ms_) && server_->is_over();
  }));
  EXPECT_FALSE(server_->is_lost());
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(links_.receive(0, now_ms_));
  EXPECT_THAT(due(100'000), SizeIs(0));
}

TEST_F(DirectLinksTest, AnAttemptThatFailsIsMadeAgain) {
  due();
  Message strange = offer();
  strange.header.mutable_direct_offer()->set_nonce(std::string(32, '0'));
  testing::internal::CaptureStderr();
  EXPECT_FALSE(links_.on_message(0, strange, now_ms_));
  EXPECT_TRUE(turn_until([&] { return refused_ == 1; }));
  for (int i = 0; i < 30; ++i) turn_until([] { return false; }, 1);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("has closed"));
  open();
}

TEST_F(DirectLinksTest, LargeExchangesAreZmqs) {
  PushPullSetup large = setup_of(Transport::kTcp);
  large.servers = 2;
  large.shares = 4;
  large.total_elements = DirectLinks::kMaxBytes / 8;
  DirectLinks small_enough(large, &rings_, 0);
  large.total_elements += 2;
  DirectLinks too_large(large, &rings_, 0);
  for (DirectLinks* const links : {&small_enough, &too_large}) {
    for (int server : {0, 1}) links->connect(server, "tcp://127.0.0.1:5555", {});
  }
  EXPECT_THAT(small_enough.due(now_ms_), SizeIs(2));
  EXPECT_THAT(too_large.due(now_ms_), SizeIs(0));
}

struct OverZmq : DirectLinksTest {
  OverZmq() : DirectLinksTest(Transport::kZmq) {}
};

TEST_F(OverZmq, NoServerIsAsked) { EXPECT_THAT(due(100'000), SizeIs(0)); }

}  // namespace
}  // namespace pushpull
