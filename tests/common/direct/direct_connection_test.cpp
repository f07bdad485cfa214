#include "common/direct/direct_connection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <chrono>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "common/base/error.h"
#include "common/net/frames.h"
#include "tests/common/numbered_messages.h"
#include "tests/common/thrown.h"

namespace pushpull {
namespace {

using testing::HasSubstr;

// Returns the bytes of a message on the wire, as docs/protocol.md describes them: an implementation
// of its own.
std::string wire_bytes(const Message& message, uint32_t connection) {
  const std::vector<std::byte> head = encode_head(message.header);
  std::string out;
  const auto add = [&out](uint32_t number) {
    for (int shift = 0; shift < 32; shift += 8) out += static_cast<char>(number >> shift & 0xff);
  };
  add(static_cast<uint32_t>(1 + message.payloads.size()));
  add(connection);
  add(static_cast<uint32_t>(head.size()));
  for (const Payload& payload : message.payloads) add(static_cast<uint32_t>(payload.bytes.size()));
  out.append(reinterpret_cast<const char*>(head.data()), head.size());
  for (const Payload& payload : message.payloads) {
    out.append(reinterpret_cast<const char*>(payload.bytes.data()), payload.bytes.size());
  }
  return out;
}

std::string numbers(std::initializer_list<uint32_t> values) {
  std::string out;
  for (const uint32_t value : values) {
    out.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  return out;
}

// Two threads or two processes in one.
struct DirectTest : testing::Test {
  explicit DirectTest(Wait wait = Wait::kSleep) : rings_a_(wait), rings_b_(wait) { connect(); }

  void connect() {
    std::array<int, 2> ends{};
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()), 0);
    raw_ = ends[0];
    a_ = std::make_unique<DirectConnection>(rings_a_, UniqueFd(ends[0]));
    b_ = std::make_unique<DirectConnection>(rings_b_, UniqueFd(ends[1]));
  }
  // Writes as the process of `a_`, but without it.
  void write_raw(const std::string& bytes) const {
    ASSERT_EQ(::send(raw_, bytes.data(), bytes.size(), MSG_NOSIGNAL), std::ssize(bytes));
  }
  std::string refusal_of(const std::string& bytes) {
    connect();
    write_raw(bytes);
    return thrown(ErrorCode::kProtocol, [&] { EXPECT_FALSE(b_->receive()); });
  }

  Rings rings_a_;
  Rings rings_b_;
  int raw_ = -1;  // owned by a_
  std::unique_ptr<DirectConnection> a_;
  std::unique_ptr<DirectConnection> b_;
};

TEST_F(DirectTest, MessagesArriveInOrderWithTheirConnections) {
  EXPECT_FALSE(b_->receive());
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(a_->send(i, message_of(i, static_cast<size_t>(i))));
  EXPECT_TRUE(rings_b_.has_message());
  for (int i = 0; i < 5; ++i) {
    const auto received = b_->receive();
    ASSERT_TRUE(received);
    EXPECT_EQ(received->connection, i);
    expect_equal(received->message, message_of(i, static_cast<size_t>(i)));
  }
  EXPECT_FALSE(b_->receive());
  EXPECT_FALSE(rings_b_.has_message());
  EXPECT_FALSE(a_->receive()) << "the two ways are apart";
}

TEST_F(DirectTest, MessagesArriveInWhateverPiecesTheBytesCome) {
  std::mt19937 random(1);
  std::string bytes;
  std::vector<Message> sent;
  for (int64_t i = 0; i < 60; ++i) {
    sent.push_back(message_of(i, i % 3 == 0 ? random() % 40'000 : random() % 20));
    bytes += wire_bytes(sent.back(), 7);
  }
  size_t got = 0;
  for (size_t at = 0; at < bytes.size();) {
    const size_t piece = std::min<size_t>(bytes.size() - at, 1 + random() % 30'000);
    write_raw(bytes.substr(at, piece));
    at += piece;
    while (const auto received = b_->receive()) {
      EXPECT_EQ(received->connection, 7);
      ASSERT_LT(got, sent.size());
      expect_equal(received->message, sent[got++]);
    }
  }
  EXPECT_EQ(got, sent.size());
}

// Both sides have more to send than the sockets hold.
TEST_F(DirectTest, WhatTheSocketDoesNotTakeIsSentLater) {
  const size_t floats = DirectConnection::kMaxMessageBytes / sizeof(float) - 100;
  for (DirectConnection* const one : {a_.get(), b_.get()}) {
    EXPECT_TRUE(one->send(0, message_of(1, floats)));
    EXPECT_TRUE(one->send(0, message_of(2, floats / 4)));
    EXPECT_NE(one->poll_item().events & POLLOUT, 0);
  }
  std::vector<int64_t> got_a;
  std::vector<int64_t> got_b;
  for (int turn = 0; turn < 10'000 && got_a.size() + got_b.size() < 4; ++turn) {
    if (auto received = a_->receive()) got_a.push_back(number_of(received->message));
    if (auto received = b_->receive()) got_b.push_back(number_of(received->message));
  }
  EXPECT_THAT(got_a, testing::ElementsAre(1, 2));
  EXPECT_EQ(got_a, got_b);
  EXPECT_EQ(a_->poll_item().events & POLLOUT, 0);
}

TEST_F(DirectTest, AMessageThatIsTooLargeAndAllAfterItAreTheSockets) {
  EXPECT_TRUE(a_->send(0, message_of(1)));
  EXPECT_FALSE(a_->send(0, message_of(2, DirectConnection::kMaxMessageBytes / sizeof(float))));
  EXPECT_FALSE(a_->send(0, message_of(3))) << "it would overtake the one before";
  EXPECT_EQ(number_of(b_->receive()->message), 1);
  EXPECT_FALSE(b_->receive());
  EXPECT_FALSE(b_->send(0, message_of(4))) << "answers take the way of their questions";
  EXPECT_FALSE(a_->receive());
  EXPECT_TRUE(a_->is_over());
  EXPECT_TRUE(b_->is_over());
  EXPECT_FALSE(a_->is_lost());
  EXPECT_FALSE(b_->is_lost());
}

TEST_F(DirectTest, WhatWasSentBeforeAReaderFellBehindArrives) {
  int64_t sent = 0;
  while (a_->send(0, message_of(sent, 10'000))) ++sent;
  EXPECT_GT(sent, 50);
  int64_t got = 0;
  for (int turn = 0; turn < 10'000 && !b_->is_over(); ++turn) {
    while (const auto received = b_->receive()) EXPECT_EQ(number_of(received->message), got++);
    a_->look();
  }
  EXPECT_EQ(got, sent);
  EXPECT_FALSE(b_->is_lost());
}

TEST_F(DirectTest, AnEndWithinAMessageIsALoss) {
  const std::string bytes = wire_bytes(message_of(1, 1000), 0);
  for (const size_t half : {size_t{0}, size_t{3}, size_t{10}, size_t{30}, bytes.size() - 1}) {
    connect();
    write_raw(bytes.substr(0, half));
    EXPECT_FALSE(b_->receive());
    EXPECT_FALSE(b_->is_over());
    a_.reset();
    EXPECT_FALSE(b_->receive());
    EXPECT_TRUE(b_->is_over());
    EXPECT_TRUE(b_->is_lost());
    EXPECT_FALSE(b_->send(0, message_of(2)));
  }
}

TEST_F(DirectTest, WholeMessagesBeforeALossArrive) {
  EXPECT_TRUE(a_->send(0, message_of(1, 1000)));
  a_.reset();
  EXPECT_EQ(number_of(b_->receive()->message), 1);
  EXPECT_FALSE(b_->receive());
  EXPECT_TRUE(b_->is_lost());
}

TEST_F(DirectTest, ImpossibleNumbersAreRefused) {
  const auto most = static_cast<uint32_t>(DirectConnection::kMaxMessageBytes);
  EXPECT_THAT(refusal_of(numbers({0, 1})), HasSubstr("0 frames on connection 1"));
  EXPECT_THAT(refusal_of(numbers({4097, 0})), HasSubstr("4097 frames"));
  EXPECT_THAT(refusal_of(numbers({1, 256})), HasSubstr("connection 256"));
  EXPECT_THAT(refusal_of(numbers({1, 0, most + 1})), HasSubstr("a frame of 2097153 bytes"));
  EXPECT_THAT(refusal_of(numbers({2, 0, 20, 0xffffffff})), HasSubstr("4294967295 bytes"));
  EXPECT_THAT(refusal_of(numbers({2, 0, 20, 5})), HasSubstr("a frame of 5 bytes"));
  EXPECT_THAT(refusal_of(numbers({3, 0, 20, most / 2, most / 2})), HasSubstr("a frame of"))
      << "in sum";
  EXPECT_THAT(refusal_of(numbers({1, 0, 4}) + "abcd"), HasSubstr("not a pushpull message"));
  Message lacks = message_of(1, 10);
  lacks.payloads.clear();
  EXPECT_THAT(refusal_of(wire_bytes(lacks, 0)), HasSubstr("number of payloads"));
}

// After a valid message, so that all parts are reached.
TEST_F(DirectTest, ChangedBytesAreAMessageOrRefused) {
  std::mt19937 random(5);
  const std::string good = wire_bytes(message_of(1, 50), 3);
  int refused = 0;
  int whole = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string bytes = good + good;
    for (size_t n = 1 + random() % 3; n > 0; --n) {
      bytes[random() % 60] = static_cast<char>(random());
    }
    connect();
    write_raw(bytes);
    try {
      while (b_->receive()) ++whole;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kProtocol);
      ++refused;
    }
  }
  EXPECT_GT(refused, 1000);
  EXPECT_GT(whole, 100);
}

struct DirectWaits : DirectTest, testing::WithParamInterface<Wait> {
  DirectWaits() : DirectTest(GetParam()) {}
};

TEST_P(DirectWaits, AWaitEndsWithAMessageOrALoss) {
  using Clock = std::chrono::steady_clock;
  for (int i = 0; i < 20; ++i) {
    std::vector<zmq::pollitem_t> items;
    const auto began = Clock::now();
    std::thread sender([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(i % 4));
      if (i == 19) return a_.reset();
      EXPECT_TRUE(a_->send(0, message_of(i, static_cast<size_t>(i) * 1000)));
    });
    std::optional<RingPair::Received> received;
    while (!received && !b_->is_over() && Clock::now() - began < std::chrono::seconds(20)) {
      rings_b_.wait(items, 5000);
      received = b_->receive();
    }
    sender.join();
    EXPECT_LT(Clock::now() - began, std::chrono::seconds(4)) << "the wait noticed nothing";
    if (i == 19) {
      EXPECT_TRUE(b_->is_lost());
    } else {
      ASSERT_TRUE(received);
      EXPECT_EQ(number_of(received->message), i);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Every, DirectWaits,
                         testing::Values(Wait::kAuto, Wait::kSpin, Wait::kSleep));

}  // namespace
}  // namespace pushpull
