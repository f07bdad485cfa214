// Any process may connect to the port: foreign bytes are counted or the connection is closed, and a
// good client is still served.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/net/frames.h"
#include "tests/common/net/loopback.h"
#include "tests/common/net/raw_zmtp.h"

namespace pushpull {
namespace {

using testing::HasSubstr;

class HostilePort : public testing::Test {
 protected:
  void expect_good_client_is_served() {
    Dealer dealer(context_, router_.address(), EndpointLimits{});
    dealer.send(hello("good"));
    const auto received = receive_one(router_);
    ASSERT_TRUE(received);
    EXPECT_EQ(received->second.header.hello().host(), "good");
    EXPECT_EQ(router_.send(received->first, hello("welcome")), SendResult::kSent);
    const auto answer = receive_one(dealer);
    ASSERT_TRUE(answer);
    EXPECT_EQ(answer->header.hello().host(), "welcome");
  }

  std::string random_bytes(size_t n) {
    std::string out(n, '\0');
    for (char& c : out) c = static_cast<char>(random_());
    return out;
  }

  std::mt19937_64 random_{7};
  zmq::context_t context_{1};
  Router router_{context_, "tcp://127.0.0.1:*", EndpointLimits{}};
};

TEST_F(HostilePort, RandomBytesOpenNoConnection) {
  for (int i = 0; i < 20; ++i) {
    const RawPeer peer(router_.address());
    peer.send(random_bytes(2000));
  }
  expect_good_client_is_served();
}

TEST_F(HostilePort, AnHttpRequestIsIgnored) {
  const RawPeer peer(router_.address());
  peer.send("GET / HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n");
  expect_good_client_is_served();
}

TEST_F(HostilePort, AForgedLengthEndsTheConnectionAndAllocatesNothing) {
  const int64_t before_kib = peak_rss_kib();
  for (const uint64_t length : {uint64_t{18} << 20, uint64_t{1} << 33, uint64_t{1} << 40,
                                uint64_t{1} << 62, ~uint64_t{0}}) {
    const RawPeer peer(router_.address());
    peer.handshake();
    peer.forged_length(length);
    EXPECT_TRUE(peer.closed_by_peer()) << length;
  }
  EXPECT_LT(peak_rss_kib() - before_kib, 64 << 10);
  expect_good_client_is_served();
}

TEST_F(HostilePort, SilentConnectionsDoNotBlockAGoodClient) {
  std::vector<std::unique_ptr<RawPeer>> silent(50);
  for (auto& peer : silent) peer = std::make_unique<RawPeer>(router_.address());
  const RawPeer halfway(router_.address());
  halfway.send("\xff");
  expect_good_client_is_served();
}

TEST_F(HostilePort, ForeignMessagesAreCounted) {
  const RawPeer peer(router_.address());
  peer.handshake();
  peer.message({random_bytes(40), random_bytes(400)});
  peer.message({"", "\x08\x01", random_bytes(100000)});
  peer.message(std::vector<std::string>(50));
  peer.message({"PUSHPL"});
  EXPECT_TRUE(serve_until(router_, [&] { return router_.rejected_frames() == 4; }))
      << router_.rejected_frames();
  expect_good_client_is_served();
  EXPECT_EQ(router_.rejected_frames(), 4);
}

TEST_F(HostilePort, AMessageOfTooManyFramesIsOneRefusal) {
  const RawPeer peer(router_.address());
  peer.handshake();
  std::vector<std::string> flood(kMaxParts + 5000);
  flood[0] = std::string("PUSHPL\0\5\x0a\x00", 10);  // an empty Hello
  peer.message(flood);
  EXPECT_TRUE(serve_until(router_, [&] { return router_.rejected_frames() == 1; }));
  expect_good_client_is_served();
  EXPECT_EQ(router_.rejected_frames(), 1);
}

TEST_F(HostilePort, AnUnfinishedMessageIsNotDelivered) {
  {
    const RawPeer peer(router_.address());
    peer.handshake();
    // the first of two frames, and half of the second
    peer.send(std::string("\x01\x0aPUSHPL\0\5\x0a\x00", 12) + std::string("\x00\x20half", 6));
  }
  expect_good_client_is_served();
  EXPECT_EQ(router_.rejected_frames(), 0);
}

TEST_F(HostilePort, APeerOfAnotherVersionGetsBothVersions) {
  zmq::socket_t peer(context_, zmq::socket_type::dealer);
  peer.set(zmq::sockopt::linger, 0);
  peer.set(zmq::sockopt::rcvtimeo, static_cast<int>(kPatienceMs));
  peer.connect(router_.address());
  peer.send(zmq::buffer(std::string("PUSHPL\0\x63whatever", 16)), zmq::send_flags::none);
  ASSERT_TRUE(serve_until(router_, [&] { return router_.rejected_frames() == 1; }));
  std::vector<zmq::message_t> answer(1);
  ASSERT_TRUE(peer.recv(answer[0]));
  const Decoded decoded = decode(std::move(answer));
  ASSERT_TRUE(decoded.message) << decoded.why;
  const wire::Refused& refused = decoded.message->header.refused();
  EXPECT_EQ(refused.code(), static_cast<int>(ErrorCode::kProtocol));
  EXPECT_THAT(refused.text(), HasSubstr("version 99"));
  EXPECT_THAT(refused.text(), HasSubstr("speaks " + std::to_string(kProtocolVersion)));
}

}  // namespace
}  // namespace pushpull
