// Tests which clients a Router with a ZapHandler accepts.

#include "common/net/zap_handler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "common/base/error.h"
#include "common/base/unique_fd.h"
#include "common/job/job.h"
#include "common/net/data_proof.h"
#include "common/net/endpoint.h"
#include "common/net/handshake_watch.h"
#include "common/net/keys.h"
#include "tests/common/net/loopback.h"
#include "tests/common/net/raw_zmtp.h"
#include "tests/common/scratch_folder.h"

namespace pushpull {
namespace {

constexpr int64_t kDescriptors = 1000;
constexpr int64_t kMax = 5;

std::string reason(const Checked& refusal) { return refusal ? refusal->reason : ""; }

TEST(ConnectionCaps, OneMoreUnfinishedHandshakeThanAllowedIsClosed) {
  ConnectionCaps caps(kDescriptors, kMax);
  for (int fd = 10; fd < 15; ++fd) EXPECT_EQ(reason(caps.accepted(fd, 0)), "");
  EXPECT_EQ(reason(caps.accepted(15, 1)), "unfinished");
  caps.closed(15);
  EXPECT_EQ(caps.unfinished(1), 5);
}

TEST(ConnectionCaps, AFinishedOrClosedConnectionMakesRoom) {
  ConnectionCaps caps(kDescriptors, kMax);
  for (int fd = 10; fd < 15; ++fd) caps.accepted(fd, 0);
  caps.finished(1);
  caps.closed(12);
  EXPECT_EQ(caps.unfinished(1), 3);
  EXPECT_EQ(reason(caps.accepted(12, 1)), "");
  EXPECT_EQ(reason(caps.accepted(15, 1)), "");
  EXPECT_EQ(reason(caps.accepted(16, 1)), "unfinished");
}

TEST(ConnectionCaps, ConnectionsThatLastLongerThanAHandshakeHaveFinishedIt) {
  ConnectionCaps caps(kDescriptors, kMax);
  for (int fd = 10; fd < 15; ++fd) caps.accepted(fd, 0);
  caps.finished(0);
  EXPECT_EQ(caps.unfinished(ConnectionCaps::kHandshakeMs), 4);
  EXPECT_EQ(caps.unfinished(ConnectionCaps::kHandshakeMs + 1), 0);
  EXPECT_EQ(reason(caps.accepted(15, ConnectionCaps::kHandshakeMs + 1)), "");
  caps.closed(10);  // one of the old ones
  EXPECT_EQ(caps.unfinished(ConnectionCaps::kHandshakeMs + 1), 1);
}

TEST(ConnectionCaps, AReusedDescriptorIsAnotherConnection) {
  ConnectionCaps caps(kDescriptors, kMax);
  caps.accepted(10, 0);
  caps.closed(10);
  caps.accepted(10, 4000);
  EXPECT_EQ(caps.unfinished(ConnectionCaps::kHandshakeMs + 1), 1);
  EXPECT_EQ(caps.unfinished(ConnectionCaps::kHandshakeMs + 4001), 0);
}

TEST(ConnectionCaps, TheLastDescriptorsAreForFiles) {
  EXPECT_EQ(ConnectionCaps(1000).first_kept(), 750);
  EXPECT_EQ(ConnectionCaps(100'000).first_kept(), 100'000 - 256);
  EXPECT_THAT(ConnectionCaps(1000).no_descriptor().text,
              testing::AllOf(testing::HasSubstr("1000"), testing::HasSubstr("250"),
                             testing::HasSubstr("ulimit -n")));
}

TEST(ConnectionCaps, FewDescriptorsMeanSmallCaps) {
  ConnectionCaps caps(40);
  for (int fd = 10; fd < 20; ++fd) EXPECT_EQ(reason(caps.accepted(fd, 0)), "");
  EXPECT_EQ(reason(caps.accepted(20, 0)), "unfinished");
}

}  // namespace

namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr uint64_t kRunId = 7;
constexpr const char* kHere = "this listener";
constexpr const char* kAnyPort = "tcp://127.0.0.1:*";

SecretKey some_secret(unsigned char filler) {
  SecretKey key;
  key.secret.fill(filler);
  return key;
}

// The port of a server process with its handler, and clients.
class Guarded {
 public:
  explicit Guarded(Demand demand, const std::string& address = kAnyPort,
                   int64_t descriptors = ZapHandler::descriptor_limit(),
                   int64_t max_unfinished = ConnectionCaps::kMaxUnfinished)
      : handler(context, std::move(demand), ConnectionCaps(descriptors, max_unfinished)),
        router(handler, address, data_limits(4096)) {}

  std::unique_ptr<Dealer> client_with(const Credentials& credentials) {
    return std::make_unique<Dealer>(clients_, router.address(), control_limits(), credentials);
  }
  // Returns whether the first message of `dealer` arrives.
  bool serves(Dealer& dealer) {
    dealer.send(hello("here"));
    const int64_t begin = now_ms();
    auto received = router.receive();
    while (!received && now_ms() - begin < kPatienceMs) {
      EXPECT_FALSE(dealer.receive());  // takes in the proof, for which the message waits
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      received = router.receive();
    }
    return received && received->second.header.hello().host() == "here";
  }
  // Waits until `dealer` is refused and returns why. No message of it may arrive.
  std::string refusal_of(Dealer& dealer) {
    dealer.send(hello("here"));
    std::optional<std::string> why;
    const int64_t begin = now_ms();
    while (!why && now_ms() - begin < kPatienceMs) {
      EXPECT_FALSE(router.receive());
      why = dealer.refused();
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    EXPECT_FALSE(router.receive());
    return why.value_or("it was not refused");
  }
  // Returns whether `dealer` is refused and none of its messages has arrived.
  bool refuses_data_of(Dealer& dealer) {
    dealer.send(hello("here"));
    const int64_t begin = now_ms();
    while (handler.refused_peers() == 0 && now_ms() - begin < kPatienceMs) {
      EXPECT_FALSE(router.receive());
      EXPECT_FALSE(dealer.receive());
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    EXPECT_FALSE(router.receive());
    return handler.refused_peers() > 0 && !dealer.ready();
  }
  // Waits for a line of the log and returns all lines.
  std::vector<std::string> notices() {
    std::vector<std::string> lines;
    serve_until(router, [&] {
      for (std::string& line : handler.take_notices()) lines.push_back(std::move(line));
      return !lines.empty();
    });
    return lines;
  }

  zmq::context_t context{2};
  ZapHandler handler;
  Router router;

 private:
  zmq::context_t clients_{1};
};

class ZapHandlerTest : public testing::Test {
 protected:
  const Keys job_{some_secret(1), "job.key"};
  const Keys other_{some_secret(2), "other.key"};
  const Keys observer_{job_.observer_key(), "observer.key"};
};

TEST_F(ZapHandlerTest, AMemberIsServed) {
  Guarded control(job_.control_demand());
  const auto member = control.client_with(job_.control_credentials());
  EXPECT_TRUE(control.serves(*member));
  EXPECT_FALSE(member->refused());
  EXPECT_EQ(control.handler.refused_peers(), 0);
  EXPECT_TRUE(control.handler.take_notices().empty());
}

TEST_F(ZapHandlerTest, APlainClientIsRefusedAndToldHowToAuthenticate) {
  Guarded control(job_.control_demand());
  const auto plain = control.client_with({});
  EXPECT_THAT(control.refusal_of(*plain), AllOf(HasSubstr("--insecure"), HasSubstr("--key")));
  EXPECT_THAT(control.notices(), Contains(HasSubstr("refused a connection from 127.0.0.1:")));
  EXPECT_GE(control.handler.refused_peers(), 1);
}

TEST_F(ZapHandlerTest, AClientWithAnotherKeyIsRefusedWithItsFilesName) {
  Guarded control(job_.control_demand());
  const auto stranger = control.client_with(other_.control_credentials());
  EXPECT_THAT(control.refusal_of(*stranger), AllOf(HasSubstr("other.key"), HasSubstr("--key")));
  EXPECT_THAT(control.notices(),
              Contains(AllOf(HasSubstr("127.0.0.1:"), HasSubstr("its key is not this job's"))));
  EXPECT_GE(control.handler.refused_peers(), 1);
}

// It knows the server's public key, as every observer does, and makes up the rest.
TEST_F(ZapHandlerTest, AnInventedKeyIsRefused) {
  Guarded control(job_.control_demand());
  Credentials invented = other_.control_credentials();
  invented.server_public = job_.control_credentials().server_public;
  const auto stranger = control.client_with(invented);
  EXPECT_THAT(control.refusal_of(*stranger), HasSubstr("other.key"));
  EXPECT_EQ(control.handler.refused_peers(), 1);  // libzmq does not retry
}

TEST_F(ZapHandlerTest, AnObserverThatSendsHelloIsRefused) {
  Guarded control(job_.control_demand());
  const auto observer = control.client_with(observer_.control_credentials());
  observer->send(hello("here"));
  EXPECT_TRUE(serve_until(control.router, [&] { return control.handler.refused_peers() == 1; }));
  const auto answer = receive_one(*observer);
  ASSERT_TRUE(answer && answer->header.has_refused());
  EXPECT_EQ(answer->header.refused().code(), static_cast<int>(ErrorCode::kRefused));
  EXPECT_THAT(answer->header.refused().text(), HasSubstr("observer"));
  EXPECT_THAT(control.notices(), ElementsAre(AllOf(HasSubstr("127.0.0.1"), HasSubstr("observer"))));
}

TEST_F(ZapHandlerTest, AnObserverDoesNotReachData) {
  Guarded data(job_.data_demand(true, kRunId, kHere));
  const auto observer = data.client_with(observer_.control_credentials());
  EXPECT_THAT(data.refusal_of(*observer), HasSubstr("observer.key"));
}

TEST_F(ZapHandlerTest, AMemberThatProvesTheRunsKeyIsServed) {
  Guarded data(job_.data_demand(false, kRunId, kHere));
  const auto member = data.client_with(job_.data_credentials(false, kRunId).to(kHere));
  EXPECT_TRUE(data.serves(*member));
  EXPECT_EQ(data.handler.refused_peers(), 0);
}

TEST_F(ZapHandlerTest, AProofOfAnEarlierRunIsRefused) {
  Guarded data(job_.data_demand(false, kRunId, kHere));
  const auto member = data.client_with(job_.data_credentials(false, kRunId - 1).to(kHere));
  EXPECT_TRUE(data.refuses_data_of(*member));
  EXPECT_THAT(data.notices(), ElementsAre(AllOf(HasSubstr("127.0.0.1"),
                                                HasSubstr("does not prove this run's key"))));
}

TEST_F(ZapHandlerTest, AMemberThatLooksForAnEarlierProcessIsRefusedWithThatReason) {
  Guarded data(job_.data_demand(false, kRunId, kHere));
  const auto member = data.client_with(job_.data_credentials(false, kRunId).to("that listener"));
  EXPECT_TRUE(data.refuses_data_of(*member));
  EXPECT_THAT(data.notices(), ElementsAre(HasSubstr("was at this address before")));
}

// A program that has read the traffic shows the same proof again.
TEST_F(ZapHandlerTest, AReplayedProofAdmitsNoSecondConnection) {
  Guarded data(job_.data_demand(false, kRunId, kHere));
  const std::string nonce = new_nonce();
  const KeyNumber key = job_.data_credentials(false, kRunId).data_key;
  zmq::context_t context(1);
  const auto connect = [&](zmq::socket_t& socket) {
    socket.set(zmq::sockopt::linger, 0);
    socket.set(zmq::sockopt::plain_username, challenge_user(nonce, kHere));
    socket.set(zmq::sockopt::plain_password, member_proof(key, kHere, nonce));
    socket.connect(data.router.address());
    send_message(socket, hello("here"));
  };
  zmq::socket_t first(context, zmq::socket_type::dealer);
  connect(first);
  EXPECT_TRUE(receive_one(data.router));
  zmq::socket_t second(context, zmq::socket_type::dealer);
  connect(second);
  EXPECT_THAT(data.notices(), ElementsAre(HasSubstr("the proof of another connection")));
  EXPECT_FALSE(data.router.receive());
}

TEST_F(ZapHandlerTest, APlainClientDoesNotReachData) {
  for (const bool encrypted : {false, true}) {
    Guarded data(job_.data_demand(encrypted, kRunId, kHere));
    const auto plain = data.client_with({});
    EXPECT_THAT(data.refusal_of(*plain), HasSubstr("--insecure")) << encrypted;
  }
}

TEST_F(ZapHandlerTest, EncryptedDataIsForMembersOnly) {
  Guarded data(job_.data_demand(true, kRunId, kHere));
  const auto member = data.client_with(job_.data_credentials(true, kRunId).to(kHere));
  EXPECT_TRUE(data.serves(*member));
  const auto token = data.client_with(job_.data_credentials(false, kRunId).to(kHere));
  EXPECT_TRUE(data.refuses_data_of(*token));
}

TEST_F(ZapHandlerTest, AServerWithoutAKeyIsNotAcceptedByAClientWithAKey) {
  Guarded open{Demand{}};
  const auto member = open.client_with(job_.control_credentials());
  EXPECT_THAT(open.refusal_of(*member), HasSubstr("asks for no key"));
}

TEST_F(ZapHandlerTest, WithoutTheHandlerNoClientIsServed) {
  for (const bool encrypted : {true, false}) {
    Guarded data(job_.data_demand(encrypted, kRunId, kHere));
    {
      const auto before = data.client_with(job_.data_credentials(encrypted, kRunId).to(kHere));
      EXPECT_TRUE(data.serves(*before));
    }
    data.handler.stop();
    const auto member = data.client_with(job_.data_credentials(encrypted, kRunId).to(kHere));
    const auto plain = data.client_with({});
    member->send(hello("here"));
    plain->send(hello("here"));
    const int64_t begin = now_ms();
    while (now_ms() - begin < 500) {
      ASSERT_FALSE(data.router.receive()) << "a client was served, encrypted " << encrypted;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
}

TEST_F(ZapHandlerTest, MessagesWithoutAuthenticationDoNotArrive) {
  for (const Demand& demand : {job_.control_demand(), job_.data_demand(false, kRunId, kHere)}) {
    Guarded guarded(demand);
    const RawPeer raw(guarded.router.address());
    raw.handshake();
    raw.message({"", "hello"});
    EXPECT_TRUE(raw.closed_by_peer());
    EXPECT_TRUE(serve_until(guarded.router, [&] { return guarded.handler.refused_peers() == 1; }));
    EXPECT_EQ(guarded.router.rejected_frames(), 0);  // no frame came in
    const auto member = guarded.client_with(demand.proof == Proof::kChallenge
                                                ? job_.data_credentials(false, kRunId).to(kHere)
                                                : job_.control_credentials());
    EXPECT_TRUE(guarded.serves(*member));
  }
}

TEST_F(ZapHandlerTest, AUnixSocketIsGuardedToo) {
  const ScratchFolder folder;
  Guarded data(job_.data_demand(false, kRunId, kHere));
  data.router.listen_also("ipc://" + folder / "data.sock");
  zmq::context_t context(1);
  Dealer member(context, "ipc://" + folder / "data.sock", control_limits(),
                job_.data_credentials(false, kRunId).to(kHere));
  EXPECT_TRUE(data.serves(member));
  Dealer late(context, "ipc://" + folder / "data.sock", control_limits(),
              job_.data_credentials(false, kRunId - 1).to(kHere));
  EXPECT_TRUE(data.refuses_data_of(late));
}

TEST_F(ZapHandlerTest, AFloodOfStrangersIsLoggedOnce) {
  Guarded control(job_.control_demand());
  for (int i = 0; i < 50; ++i) {
    const RawPeer raw(control.router.address());
    raw.handshake();
  }
  std::vector<std::string> lines;
  EXPECT_TRUE(serve_until(control.router, [&] {
    for (std::string& line : control.handler.take_notices()) lines.push_back(std::move(line));
    return control.handler.refused_peers() == 50;
  }));
  EXPECT_GE(lines.size(), 1U);
  EXPECT_LE(lines.size(), 2U);  // the address of a closed connection is not known
}

TEST_F(ZapHandlerTest, StrangersBeyondTheCapAreClosedAndMembersAreServedAfterwards) {
  for (const Demand& demand : {job_.control_demand(), Demand{}}) {
    Guarded guarded(demand, kAnyPort, 1 << 20, 10);
    std::vector<std::unique_ptr<RawPeer>> silent;
    for (int i = 0; i < 30; ++i) {
      silent.push_back(std::make_unique<RawPeer>(guarded.router.address()));
    }
    EXPECT_TRUE(serve_until(guarded.router, [&] { return guarded.handler.refused_peers() >= 20; }));
    EXPECT_EQ(guarded.handler.refused_peers(), 20);
    EXPECT_THAT(guarded.notices(), ElementsAre(HasSubstr("have not finished their handshake")));
    EXPECT_TRUE(silent.back()->closed_by_peer());
    silent.clear();
    const auto member = guarded.client_with(
        demand.proof == Proof::kNone ? Credentials{} : job_.control_credentials());
    EXPECT_TRUE(guarded.serves(*member));
  }
}

TEST_F(ZapHandlerTest, NoConnectionTakesTheLastDescriptors) {
  Guarded control(job_.control_demand(), kAnyPort, 4);
  const RawPeer raw(control.router.address());
  EXPECT_TRUE(raw.closed_by_peer());
  EXPECT_THAT(control.notices(), ElementsAre(HasSubstr("ulimit -n")));
}

// A proxy whose other end is not there yet: it is no refusal, and the wait goes on.
TEST_F(ZapHandlerTest, ACloseWithoutAGreetingIsNoRefusal) {
  const UniqueFd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof address;
  ASSERT_EQ(bind(listener.get(), reinterpret_cast<sockaddr*>(&address), bytes), 0);
  ASSERT_EQ(listen(listener.get(), 16), 0);
  ASSERT_EQ(getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &bytes), 0);
  const std::string at = "tcp://127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  std::atomic<int> accepted = 0;
  const std::jthread closer([&] {
    for (; accepted < 8; ++accepted) {
      const UniqueFd fd(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    }
  });
  zmq::context_t context(1);
  Dealer dealer(context, at, control_limits(), job_.control_credentials());
  const int64_t begin = now_ms();
  while (accepted < 8 && now_ms() - begin < kPatienceMs) {
    EXPECT_FALSE(dealer.refused());
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(accepted, 8);
}

TEST_F(ZapHandlerTest, AGreetingNamesTheMechanism) {
  zmq::context_t context(1);
  Guarded control(job_.control_demand());
  EXPECT_EQ(mechanism_at(context, control.router.address(), 5000), "CURVE");
  Guarded data(job_.data_demand(false, kRunId, kHere));
  EXPECT_EQ(mechanism_at(context, data.router.address(), 5000), "PLAIN");
  Guarded open{Demand{}};
  EXPECT_EQ(mechanism_at(context, open.router.address(), 5000), "NULL");
  EXPECT_EQ(mechanism_at(context, "tcp://127.0.0.1:1", 50), "");
}

}  // namespace

}  // namespace pushpull
