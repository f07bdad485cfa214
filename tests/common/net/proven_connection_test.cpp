// Data connections over real sockets, to servers that prove themselves and to impostors.
#include "common/net/proven_connection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "common/job/job.h"
#include "common/net/data_proof.h"
#include "common/net/endpoint.h"
#include "common/net/keys.h"
#include "common/net/zap_handler.h"
#include "tests/common/net/loopback.h"

namespace pushpull {
namespace {

using testing::HasSubstr;

constexpr uint64_t kProvenRun = 7;

// A server process: its port, and the proof that it gives.
struct Server {
  Server(const Keys& keys, uint64_t incarnation, const std::string& address)
      : handler(context, keys.data_demand(false, kProvenRun, listener_name(incarnation))),
        router(handler, address, data_limits(4096)) {}

  zmq::context_t context{1};
  ZapHandler handler;
  Router router;
};

// A process that admits every peer and keeps its messages.
struct Impostor {
  explicit Impostor(const std::string& address) : socket(context, zmq::socket_type::router) {
    socket.set(zmq::sockopt::linger, 0);
    socket.set(zmq::sockopt::plain_server, true);
    doorman.bind("inproc://zeromq.zap.01");
    const int64_t begin = now_ms();
    for (;;) {  // the port is free a moment after its last owner has ended
      try {
        socket.bind(address);
        return;
      } catch (const zmq::error_t&) {
        if (now_ms() - begin > kPatienceMs) throw;
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
    }
  }
  // Keeps what has come. Answers each challenge with `answer`.
  void turn(const Message& answer) {
    admit();
    zmq::message_t peer;
    while (socket.recv(peer, zmq::recv_flags::dontwait)) {
      std::vector<zmq::message_t> frames(1);
      while (socket.recv(frames.back(), zmq::recv_flags::dontwait) && frames.back().more()) {
        frames.emplace_back();
      }
      const auto decoded = decode(std::move(frames));
      ASSERT_TRUE(decoded.message);
      heard.push_back(decoded.message->header);
      socket.send(peer, zmq::send_flags::sndmore);
      send_message(socket, answer);
    }
  }

  // Answers libzmq's questions (https://rfc.zeromq.org/spec/27): every peer is admitted.
  void admit() {
    std::vector<std::string> request;
    zmq::message_t frame;
    while (doorman.recv(frame, zmq::recv_flags::dontwait)) {
      request.push_back(frame.to_string());
      if (frame.more()) continue;
      for (const std::string& part : {std::string("1.0"), request[1], std::string("200"),
                                      std::string(), std::string("any")}) {
        doorman.send(zmq::buffer(part), zmq::send_flags::sndmore);
      }
      doorman.send(zmq::message_t(), zmq::send_flags::none);
      request.clear();
    }
  }

  zmq::context_t context{1};
  zmq::socket_t socket;
  zmq::socket_t doorman{context, zmq::socket_type::rep};
  std::vector<wire::Header> heard;
};

class ProvenConnectionTest : public testing::Test {
 protected:
  ProvenConnectionTest() {
    SecretKey key;
    key.secret.fill(1);
    keys_ = Keys(key, "job.key");
  }
  std::unique_ptr<Dealer> connect(const std::string& address, uint64_t incarnation) {
    return std::make_unique<Dealer>(
        context_, address, data_limits(4096),
        keys_.data_credentials(false, kProvenRun).to(listener_name(incarnation)));
  }
  // Lets `dealer` and `others` work until `done`.
  static bool until(Dealer& dealer, const std::function<bool()>& done,
                    const std::function<void()>& others) {
    const int64_t begin = now_ms();
    while (!done() && now_ms() - begin < kPatienceMs) {
      EXPECT_FALSE(dealer.receive()) << "a message of a process that has not proven itself";
      others();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return done();
  }
  // The first messages that a server receives, by their host.
  static std::vector<std::string> hosts(Dealer& dealer, Router& router, size_t count) {
    std::vector<std::string> out;
    until(
        dealer, [&] { return out.size() >= count; },
        [&] {
          if (auto received = router.receive()) {
            out.push_back(received->second.header.hello().host());
          }
        });
    return out;
  }

  Keys keys_;
  zmq::context_t context_{1};
};

TEST_F(ProvenConnectionTest, MessagesWaitForTheProofAndKeepTheirOrder) {
  Server server(keys_, 1, "tcp://127.0.0.1:*");
  const auto dealer = connect(server.router.address(), 1);
  EXPECT_FALSE(dealer->ready());
  for (const char* const host : {"a", "b", "c"}) dealer->send(hello(host));
  EXPECT_EQ(hosts(*dealer, server.router, 3), (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_TRUE(dealer->ready());
  dealer->send(hello("d"));
  EXPECT_EQ(hosts(*dealer, server.router, 1), std::vector<std::string>{"d"});
  EXPECT_EQ(server.handler.refused_peers(), 0);
}

TEST_F(ProvenConnectionTest, AServerThatComesLaterIsFound) {
  std::string address;
  {
    const Server before(keys_, 1, "tcp://127.0.0.1:*");
    address = before.router.address();
  }
  const auto dealer = connect(address, 2);
  dealer->send(hello("early"));
  EXPECT_FALSE(dealer->receive());
  std::optional<Server> server;
  until(
      *dealer, [&] { return server.has_value(); },
      [&] {
        try {
          server.emplace(keys_, 2, address);
        } catch (const Error&) {  // not yet free
        }
      });
  ASSERT_TRUE(server);
  EXPECT_EQ(hosts(*dealer, server->router, 1), std::vector<std::string>{"early"});
}

TEST_F(ProvenConnectionTest, AnImpostorHearsChallengesAndIsNotBelieved) {
  auto server = std::make_unique<Server>(keys_, 1, "tcp://127.0.0.1:*");
  const std::string address = server->router.address();
  const auto dealer = connect(address, 1);
  dealer->send(hello("to the server"));
  EXPECT_EQ(hosts(*dealer, server->router, 1).size(), 1U);
  server.reset();
  Message guess;
  guess.header.mutable_challenge_answer()->set_proof(std::string(64, '0'));
  Message forged;
  forged.header.mutable_weights()->set_pull(1);
  for (const Message& answer : {guess, forged}) {
    Impostor impostor(address);
    dealer->send(hello("a push"));
    EXPECT_TRUE(until(
        *dealer, [&] { return impostor.heard.size() >= 2; }, [&] { impostor.turn(answer); }));
    for (const wire::Header& header : impostor.heard) EXPECT_TRUE(header.has_challenge());
    EXPECT_FALSE(dealer->ready());
  }
  EXPECT_THAT(dealer->take_warning(), HasSubstr("does not prove this run's key"));
  EXPECT_EQ(dealer->take_warning(), "");
  EXPECT_GE(dealer->rejected_frames(), 2);
}

// The impostor passes the nonce on to a server that is alive.
TEST_F(ProvenConnectionTest, AProofOfAnotherServerIsNone) {
  Server other(keys_, 2, "tcp://127.0.0.1:*");
  Impostor impostor("tcp://127.0.0.1:*");
  const auto dealer = connect(impostor.socket.get(zmq::sockopt::last_endpoint), 1);
  dealer->send(hello("a push"));
  EXPECT_TRUE(until(
      *dealer, [&] { return impostor.heard.size() >= 3; },
      [&] {
        Message relayed;
        const std::string nonce =
            impostor.heard.empty() ? "" : impostor.heard.back().challenge().nonce();
        relayed.header.mutable_challenge_answer()->set_proof(other.handler.proof(nonce));
        impostor.turn(relayed);
      }));
  EXPECT_FALSE(dealer->ready());
  for (const wire::Header& header : impostor.heard) EXPECT_TRUE(header.has_challenge());
}

TEST_F(ProvenConnectionTest, AServerThatEndsIsNotTakenForAnImpostor) {
  auto server = std::make_unique<Server>(keys_, 1, "tcp://127.0.0.1:*");
  const auto dealer = connect(server->router.address(), 1);
  dealer->send(hello("a"));
  std::optional<PeerId> peer;
  until(
      *dealer, [&] { return peer.has_value(); },
      [&] {
        if (auto received = server->router.receive()) peer = received->first;
      });
  ASSERT_TRUE(peer);
  // fewer than the socket reads ahead, or libzmq does not see the end of the connection
  for (int i = 0; i < 32; ++i) server->router.send(*peer, hello("last"));
  server.reset();
  const int64_t begin = now_ms();
  while (dealer->ready() && now_ms() - begin < kPatienceMs) {
    dealer->send(hello("b"));
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_FALSE(dealer->ready());
  while (dealer->receive()) continue;
  EXPECT_EQ(dealer->take_warning(), "");
  EXPECT_EQ(dealer->rejected_frames(), 0);
}

TEST_F(ProvenConnectionTest, AtMostSoManyMessagesWait) {
  const auto dealer = connect("tcp://127.0.0.1:1", 1);
  for (int i = 0; i < 5000; ++i) dealer->send(hello(std::to_string(i)));
  EXPECT_FALSE(dealer->ready());
}

}  // namespace
}  // namespace pushpull
