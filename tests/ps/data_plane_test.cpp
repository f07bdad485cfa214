// Tests how a server's data connection refuses messages, over a real socket: the log line, the
// answer to the sender, and the counts of the summary.
#include "ps/server/data_plane.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/process.h"
#include "common/direct/direct_connection.h"
#include "common/direct/direct_door.h"
#include "common/net/address.h"
#include "common/net/model_wire.h"
#include "common/shm/rings.h"
#include "tests/ps/cluster_parts.h"

namespace pushpull {
namespace {

using testing::HasSubstr;
using testing::Pair;
using testing::UnorderedElementsAre;

constexpr int64_t kElements = 3000;
constexpr auto kDeadline = std::chrono::seconds(20);

class DataPlaneTest : public testing::Test {
 protected:
  explicit DataPlaneTest(const std::string& transport = "tcp")
      : job_(job_of("slice-bytes = 4096\ntransport = " + transport + "\n")) {
    wire::State state = state_with_workers({kAnna, kBert});
    state.set_version(1);
    state.set_phase(wire::PHASE_TRAINING);
    to_wire(table_of(kElements), state.mutable_tensors());
    state.set_end_step(10);
    state.set_total_steps(10);
    state.set_shares(2);
    state.add_data_endpoints(plane_.router().address());
    plane_.data().on_state({job_, kTermId, 7, state}, nullptr);
  }
  // Serves until the condition holds. False: it never does.
  template <typename Condition>
  bool serves_until(const Condition& condition) {
    const auto end = std::chrono::steady_clock::now() + kDeadline;
    while (!condition()) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::vector<zmq::pollitem_t> items{
          {plane_.router().socket().handle(), 0, ZMQ_POLLIN, 0},
          {peer_.socket().handle(), 0, ZMQ_POLLIN, 0},
      };
      poll_sockets(items, 20);
      plane_.receive();
      while (auto message = peer_.receive()) heard_.push_back(std::move(*message));
    }
    return true;
  }
  // Sends it and waits until the server has dropped it.
  void is_dropped(const Message& message) {
    const int64_t before = plane_.router().rejected_frames();
    peer_.send(message);
    EXPECT_TRUE(serves_until([&] { return plane_.router().rejected_frames() > before; }));
  }
  // Returns a question that the server answers at once, with "not ready".
  static Message question() {
    Message out;
    wire::Fetch* fetch = out.header.mutable_fetch();
    fetch->mutable_sender()->set_term_id(kTermId);
    fetch->mutable_sender()->set_incarnation(kCoordinator);
    fetch->set_step(5);
    return out;
  }
  static bool is_answer(const Message& message) { return message.header.status().not_ready(); }
  // Returns the texts sent about refused messages. Waits until a later question is answered.
  std::vector<std::string> reasons_sent() {
    peer_.send(question());
    std::vector<std::string> out;
    EXPECT_TRUE(serves_until([&] { return std::any_of(heard_.begin(), heard_.end(), is_answer); }));
    for (const Message& m : std::exchange(heard_, {})) {
      if (!m.header.status().refused().empty()) out.push_back(m.header.status().refused());
    }
    return out;
  }
  std::map<std::string, int64_t> counts() {
    std::map<std::string, int64_t> out;
    const wire::Stats stats = plane_.data().stats();
    for (const wire::Refusal& r : stats.refusals()) out[r.reason()] = r.count();
    return out;
  }
  Message push(Range share) const {
    Message message = push_message(server_setup(job_, kElements), kAnna, 1, 0, {0, 2}, 1.0F);
    wire::Push* push = message.header.mutable_exchange()->mutable_push();
    push->set_lo(static_cast<int32_t>(share.lo));
    push->set_hi(static_cast<int32_t>(share.hi));
    return message;
  }

  const Job job_;
  DataPlane plane_{"tcp://127.0.0.1:*", job_.slice_bytes, nullptr};
  zmq::context_t context_;
  Dealer peer_{context_, plane_.router().address(), data_limits(job_.slice_bytes)};
  std::vector<Message> heard_;
};

TEST_F(DataPlaneTest, AMembersRefusedPushIsLoggedCountedAndAnsweredOnce) {
  testing::internal::CaptureStderr();
  for (int i = 0; i < 3; ++i) is_dropped(push({1, 3}));
  const std::string log = testing::internal::GetCapturedStderr();
  const std::string line =
      "[push-share] expected one of the 2 shares of a step, got [1, 3) from worker 0";
  EXPECT_THAT(log, HasSubstr("warning: dropped a message: " + line + "\n"));
  EXPECT_EQ(log.find(line), log.rfind(line)) << "only the first is logged: " << log;
  EXPECT_EQ(reasons_sent(), std::vector<std::string>{line});
  EXPECT_THAT(counts(), UnorderedElementsAre(Pair("push-share", 3)));
}

TEST_F(DataPlaneTest, AStrangerIsCountedAndGetsNoAnswer) {
  Message strange = push({0, 2});
  strange.header.mutable_exchange()->mutable_sender()->set_term_id(kTermId + 1);
  testing::internal::CaptureStderr();
  is_dropped(strange);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("[run] expected this run"));
  EXPECT_EQ(reasons_sent(), std::vector<std::string>{});
  EXPECT_THAT(counts(), UnorderedElementsAre(Pair("run", 1)));
}

TEST_F(DataPlaneTest, EveryReasonIsCountedByItself) {
  testing::internal::CaptureStderr();
  is_dropped(push({1, 3}));
  Message large = push({0, 2});
  large.payloads[0] = constant_payload(1, 1.0F);
  is_dropped(large);
  const std::string garbage = "no preamble";
  peer_.socket().send(zmq::buffer(garbage), zmq::send_flags::none);
  EXPECT_TRUE(serves_until([&] { return plane_.router().rejected_frames() == 3; }));
  testing::internal::GetCapturedStderr();
  EXPECT_THAT(counts(), UnorderedElementsAre(Pair("push-share", 1), Pair("push-payload", 1),
                                             Pair("frame", 1)));
  EXPECT_EQ(plane_.data().server()->stats().bytes_pushed(), 0);
}

// ---- rings ----

class RingedDataPlane : public DataPlaneTest {
 protected:
  RingedDataPlane() : DataPlaneTest("shm") {
    Message ask;
    wire::Attach* attach = ask.header.mutable_attach();
    attach->mutable_sender()->set_term_id(kTermId);
    attach->mutable_sender()->set_incarnation(kAnna);
    attach->set_host(host_identity());
    *attach->mutable_probe() = probe_.description();
    *attach->mutable_ring() = ring_->description();
    peer_.send(ask);
    EXPECT_TRUE(serve_until([&] { return !heard_.empty(); }));
    EXPECT_TRUE(heard_.front().header.attached().has_ring());
    ring_->open(heard_.front().header.attached().ring());
    heard_.clear();
  }
  // As a server's loop serves: it sleeps until a ring or a socket has a message.
  bool serve_until(const std::function<bool()>& condition) {
    const auto end = std::chrono::steady_clock::now() + kDeadline;
    while (!condition()) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::vector<zmq::pollitem_t> items{{peer_.socket().handle(), 0, ZMQ_POLLIN, 0}};
      plane_.wait(items, 20);
      plane_.receive();
      while (auto message = peer_.receive()) heard_.push_back(std::move(*message));
      while (ring_) {
        auto received = ring_->receive();
        if (!received) break;
        EXPECT_EQ(received->connection, 3);
        in_ring_.push_back(std::move(received->message));
      }
    }
    return true;
  }

  const Segment probe_{4};
  Rings rings_{Wait::kAuto};
  std::unique_ptr<RingPair> ring_ = std::make_unique<RingPair>(rings_);
  std::vector<Message> in_ring_;
};

TEST_F(RingedDataPlane, AnAnswerTakesTheWayOfItsQuestion) {
  EXPECT_TRUE(ring_->send(3, question()));
  EXPECT_TRUE(serve_until([&] { return !in_ring_.empty(); }));
  EXPECT_TRUE(is_answer(in_ring_.front()));
  EXPECT_TRUE(heard_.empty());
  peer_.send(question());
  EXPECT_TRUE(serve_until([&] { return !heard_.empty(); }));
  EXPECT_TRUE(is_answer(heard_.front()));
  EXPECT_EQ(in_ring_.size(), 1U);
}

TEST_F(RingedDataPlane, AMessageOfTheSocketFollowsThoseOfTheRing) {
  EXPECT_TRUE(
      ring_->send(3, push_message(server_setup(job_, kElements), kAnna, 1, 0, {0, 2}, 1.0F)));
  peer_.send(question());
  EXPECT_TRUE(serve_until([&] { return !heard_.empty(); }));
  EXPECT_GT(plane_.data().server()->stats().bytes_pushed(), 0);
}

// A worker that keeps its ring full must not hold up the others.
TEST_F(RingedDataPlane, ARingThatIsNeverEmptyDoesNotHoldUpTheSocket) {
  constexpr int64_t kOutstanding = 200;  // more than a turn takes
  for (int64_t i = 0; i < kOutstanding; ++i) EXPECT_TRUE(ring_->send(3, question()));
  peer_.send(question());
  size_t refilled = 0;
  EXPECT_TRUE(serve_until([&] {
    for (; refilled < in_ring_.size(); ++refilled) EXPECT_TRUE(ring_->send(3, question()));
    return !heard_.empty() || refilled > 100 * kOutstanding;
  }));
  EXPECT_FALSE(heard_.empty());
}

TEST_F(RingedDataPlane, AWorkerThatReadsItsRingNoMoreIsAnsweredOverItsSocket) {
  EXPECT_TRUE(ring_->send(3, question()));
  ring_.reset();
  EXPECT_TRUE(serve_until([&] { return !heard_.empty(); }));
  EXPECT_TRUE(is_answer(heard_.front()));
}

TEST_F(RingedDataPlane, ARefusalOfARingsMessageIsItsWorkers) {
  testing::internal::CaptureStderr();
  EXPECT_TRUE(ring_->send(3, push({1, 3})));
  EXPECT_TRUE(serve_until([&] { return !in_ring_.empty(); }));
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("from worker 0"));
  EXPECT_THAT(in_ring_.front().header.status().refused(), HasSubstr("[push-share]"));
}

// ---- direct connections ----

class DirectDataPlane : public DataPlaneTest {
 protected:
  explicit DirectDataPlane(const std::string& transport = "tcp") : DataPlaneTest(transport) {}

  wire::DirectOffer offer_for(int32_t port, uint64_t incarnation = kAnna) {
    Message ask;
    ask.header.mutable_ask_direct()->mutable_sender()->set_term_id(kTermId);
    ask.header.mutable_ask_direct()->mutable_sender()->set_incarnation(incarnation);
    ask.header.mutable_ask_direct()->set_port(port);
    peer_.send(ask);
    EXPECT_TRUE(serve_until([&] { return !heard_.empty(); }));
    const Message answer = heard_.front();
    heard_.clear();
    return answer.header.direct_offer();
  }
  int32_t data_port() { return std::stoi(parse_address(plane_.router().address(), "listen").port); }
  void connect() {
    const wire::DirectOffer offer = offer_for(data_port());
    ASSERT_GT(offer.port(), 0) << offer.text();
    DirectOpening opening(plane_.router().address(), offer.port(), offer.nonce(), Credentials{},
                          now_ms());
    std::optional<UniqueFd> socket;
    ASSERT_TRUE(serve_until([&] {
      if (!socket) socket = opening.turn(now_ms());
      return socket.has_value();
    }));
    raw_ = socket->get();
    direct_ = std::make_unique<DirectConnection>(rings_, std::move(*socket));
  }
  // As a server's loop serves.
  bool serve_until(const std::function<bool()>& condition) {
    const auto end = std::chrono::steady_clock::now() + kDeadline;
    while (!condition()) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::vector<zmq::pollitem_t> items{{peer_.socket().handle(), 0, ZMQ_POLLIN, 0}};
      plane_.wait(items, 20);
      plane_.receive();
      while (auto message = peer_.receive()) heard_.push_back(std::move(*message));
      while (direct_) {
        auto received = direct_->receive();
        if (!received) break;
        EXPECT_EQ(received->connection, 3);
        in_direct_.push_back(std::move(received->message));
      }
    }
    return true;
  }

  Rings rings_{Wait::kSleep};
  int raw_ = -1;
  std::unique_ptr<DirectConnection> direct_;
  std::vector<Message> in_direct_;
};

TEST_F(DirectDataPlane, AnAnswerTakesTheWayOfItsQuestion) {
  connect();
  EXPECT_TRUE(direct_->send(3, question()));
  EXPECT_TRUE(serve_until([&] { return !in_direct_.empty(); }));
  EXPECT_TRUE(is_answer(in_direct_.front()));
  EXPECT_TRUE(heard_.empty());
  peer_.send(question());
  EXPECT_TRUE(serve_until([&] { return !heard_.empty(); }));
  EXPECT_TRUE(is_answer(heard_.front()));
  EXPECT_EQ(in_direct_.size(), 1U);
}

TEST_F(DirectDataPlane, APushCountsAsOverTheSocket) {
  connect();
  EXPECT_TRUE(
      direct_->send(3, push_message(server_setup(job_, kElements), kAnna, 1, 0, {0, 2}, 1.0F)));
  EXPECT_TRUE(serve_until([&] { return plane_.data().server()->stats().bytes_pushed() > 0; }));
}

TEST_F(DirectDataPlane, AConnectionThatIsNeverIdleDoesNotHoldUpTheSocket) {
  connect();
  constexpr int64_t kOutstanding = 200;  // more than a turn takes
  for (int64_t i = 0; i < kOutstanding; ++i) EXPECT_TRUE(direct_->send(3, question()));
  peer_.send(question());
  size_t refilled = 0;
  EXPECT_TRUE(serve_until([&] {
    for (; refilled < in_direct_.size(); ++refilled) EXPECT_TRUE(direct_->send(3, question()));
    return !heard_.empty() || refilled > 100 * kOutstanding;
  }));
  EXPECT_FALSE(heard_.empty());
}

TEST_F(DirectDataPlane, BytesThatAreNoMessageEndTheConnectionInOneLine) {
  connect();
  testing::internal::CaptureStderr();
  const std::string strange(4000, 'x');
  EXPECT_EQ(::send(raw_, strange.data(), strange.size(), MSG_NOSIGNAL), std::ssize(strange));
  EXPECT_TRUE(serve_until([&] { return direct_->is_over(); }));
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("warning: dropped a message: [direct] a direct connection has "
                             "2021161080 frames on connection 2021161080\n"));
  EXPECT_EQ(std::ranges::count(log, '\n'), 1) << log;
  EXPECT_THAT(counts(), UnorderedElementsAre(Pair("direct", 1)));
  peer_.send(question());
  EXPECT_TRUE(serve_until([&] { return !heard_.empty(); })) << "the socket remains";
}

// Here the worker asks over the same data connection, so the answer goes there.
TEST_F(DirectDataPlane, AnAnswerToAConnectionThatIsLostTakesTheSocket) {
  connect();
  EXPECT_TRUE(direct_->send(3, question()));
  direct_.reset();
  EXPECT_TRUE(serve_until([&] { return !heard_.empty(); }));
  EXPECT_TRUE(is_answer(heard_.front()));
  heard_.clear();
  connect();
  EXPECT_TRUE(direct_->send(3, question()));
  EXPECT_TRUE(serve_until([&] { return !in_direct_.empty(); })) << "a new one serves";
}

TEST_F(DirectDataPlane, AnAnswerThatDoesNotFitTakesTheSocket) {
  connect();
  EXPECT_TRUE(direct_->send(3, question()));
  // the worker writes no more, so the server does not either
  Message huge = push({0, 2});
  huge.payloads[0] = constant_payload(DirectConnection::kMaxMessageBytes, 1.0F);
  EXPECT_FALSE(direct_->send(3, huge));
  EXPECT_TRUE(serve_until([&] { return in_direct_.size() + heard_.size() == 1; }));
  EXPECT_TRUE(serve_until([&] { return direct_->is_over(); }));
  EXPECT_FALSE(direct_->is_lost());
}

TEST_F(DirectDataPlane, AProxysPortGetsNoOffer) {
  const wire::DirectOffer offer = offer_for(data_port() == 1 ? 2 : 1);
  EXPECT_EQ(offer.port(), 0);
  EXPECT_THAT(offer.text(), HasSubstr("proxy"));
}

TEST_F(DirectDataPlane, AStrangerIsToldToWait) {
  Message ask;
  ask.header.mutable_ask_direct()->mutable_sender()->set_term_id(kTermId);
  ask.header.mutable_ask_direct()->mutable_sender()->set_incarnation(999);
  peer_.send(ask);
  EXPECT_TRUE(serve_until([&] { return !heard_.empty(); }));
  EXPECT_TRUE(is_answer(heard_.front()));
}

struct ZmqDataPlane : DirectDataPlane {
  ZmqDataPlane() : DirectDataPlane("zmq") {}
};

TEST_F(ZmqDataPlane, OffersNone) {
  const wire::DirectOffer offer = offer_for(data_port());
  EXPECT_EQ(offer.port(), 0);
  EXPECT_FALSE(offer.text().empty());
}

}  // namespace
}  // namespace pushpull
