// Pulls over several connections (lanes) and in windows.
#include <gtest/gtest.h>

#include <algorithm>
#include <climits>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ps/server/server.h"
#include "tests/ps/cluster_parts.h"
#include "tests/ps/refusals.h"

namespace pushpull::server_pull_test {
namespace {

constexpr int64_t kElements = 5000;  // five slices: four of 4 KiB, the last one shorter
constexpr int64_t kSliceBytes = 4096;
constexpr Range kFirst{0, 2};
constexpr Range kSecond{2, 4};

using Slices = std::vector<int>;

class ServerPull : public testing::Test {
 protected:
  void make(const std::string& strategy) {
    setup_ = server_setup(job_of("strategy = " + strategy + "\n"), kElements);
    server_ = std::make_unique<Server>(setup_, nullptr);
    server_->on_state(state_with_workers({kAnna, kBert}));
  }
  // Returns pull 1 of kAnna on its connection for `lane`.
  Message pull(int lane, int lanes, int64_t window = 0, int64_t clock = 0) {
    Message message = pull_message(kAnna, 1, clock);
    wire::Pull* pull = message.header.mutable_exchange()->mutable_pull();
    pull->set_lane(lane);
    pull->set_lanes(lanes);
    pull->set_window_bytes(window);
    return message;
  }
  // Returns the pull repeated on lane 0, with a report of the slices that have arrived.
  Message again(int asked, int heard, const Slices& missing, int64_t received_bytes = 0) {
    Message message = pull(0, 1, 2 * kSliceBytes);
    wire::Pull* repeated = message.header.mutable_exchange()->mutable_pull();
    repeated->set_asked(asked);
    repeated->set_heard(heard);
    repeated->set_received_bytes(received_bytes);
    repeated->mutable_missing()->Assign(missing.begin(), missing.end());
    return message;
  }
  Checked ask(const Message& message) {
    const wire::Pull& pull = message.header.exchange().pull();
    return server_->on_data("anna" + std::to_string(pull.lane()), message);
  }
  Checked received(int64_t bytes, int lane = 0, int64_t number = 1, uint64_t term_id = kTermId) {
    Message message;
    wire::Received* received = message.header.mutable_received();
    received->mutable_sender()->set_term_id(term_id);
    received->mutable_sender()->set_incarnation(kAnna);
    received->set_pull(number);
    received->set_lane(lane);
    received->set_bytes(bytes);
    return server_->on_data("anna0", message);
  }
  Checked push(uint64_t who, Range share, Slices slices) {
    Message whole = push_message(setup_, who, 1, 0, share, 1.0F);
    wire::Push* push = whole.header.mutable_exchange()->mutable_push();
    const wire::Push all = *push;
    const std::vector<Payload> payloads = whole.payloads;
    push->clear_parts();
    whole.payloads.clear();
    for (const int slice : slices) {
      for (int i = 0; i < all.parts_size(); ++i) {
        if (all.parts(i).slice() != slice) continue;
        *push->add_parts() = all.parts(i);
        whole.payloads.push_back(payloads[static_cast<size_t>(i)]);
      }
    }
    return server_->on_data("pusher", whole);
  }
  // Returns the slices sent since the last call, by connection. Checks the lane of each message.
  std::map<PeerId, Slices> sent() {
    std::map<PeerId, Slices> out;
    for (const Outgoing& o : server_->take_outgoing()) {
      if (!o.message.header.has_weights()) continue;
      EXPECT_EQ(o.to, "anna" + std::to_string(o.message.header.weights().lane()));
      for (const auto& s : o.message.header.weights().slices()) out[o.to].push_back(s.slice());
    }
    return out;
  }

  ServerSetup setup_;
  std::unique_ptr<Server> server_;
};

using Sent = std::map<PeerId, Slices>;

TEST_F(ServerPull, SlicesAlternateBetweenTheLanes) {
  make("sync");
  EXPECT_TRUE(taken(ask(pull(1, 3))));
  EXPECT_EQ(sent(), (Sent{{"anna1", {1, 4}}}));
  EXPECT_TRUE(taken(ask(pull(0, 3))));
  EXPECT_TRUE(taken(ask(pull(2, 3))));
  EXPECT_EQ(sent(), (Sent{{"anna0", {0, 3}}, {"anna2", {2}}}));
}

TEST_F(ServerPull, IfAnyVersionWillDoAllLanesGetTheSameAtOnce) {
  make("async");
  EXPECT_TRUE(taken(ask(pull(0, 2))));
  EXPECT_TRUE(sent().empty()) << "the weights may change before the other lane asks";
  EXPECT_TRUE(taken(ask(pull(1, 2))));
  EXPECT_EQ(sent(), (Sent{{"anna0", {0, 2, 4}}, {"anna1", {1, 3}}}));
  EXPECT_TRUE(taken(ask(pull(1, 2))));
  EXPECT_TRUE(sent().empty()) << "a repeat on one lane";
  EXPECT_TRUE(taken(ask(pull(0, 2))));
  EXPECT_EQ(sent().size(), 2U);
}

TEST_F(ServerPull, BytesInFlightStayWithinTheWindow) {
  make("sync");
  EXPECT_TRUE(taken(ask(pull(0, 1, 2 * kSliceBytes))));
  EXPECT_EQ(sent(), (Sent{{"anna0", {0, 1}}}));
  EXPECT_TRUE(taken(received(kSliceBytes)));
  EXPECT_EQ(sent(), (Sent{{"anna0", {2}}}));
  EXPECT_TRUE(taken(received(kSliceBytes)));
  EXPECT_TRUE(sent().empty()) << "nothing new has arrived";
  EXPECT_TRUE(taken(received(3 * kSliceBytes)));
  EXPECT_EQ(sent(), (Sent{{"anna0", {3, 4}}}));
}

TEST_F(ServerPull, WindowSmallerThanASlicePassesOneSlice) {
  make("sync");
  EXPECT_TRUE(taken(ask(pull(0, 1, 1))));
  EXPECT_EQ(sent(), (Sent{{"anna0", {0}}}));
  EXPECT_TRUE(taken(received(kSliceBytes)));
  EXPECT_EQ(sent(), (Sent{{"anna0", {1}}}));
}

TEST_F(ServerPull, SlicesNeededFirstOvertakeSlicesReadyFirst) {
  make("sync");
  EXPECT_TRUE(taken(ask(pull(0, 1, kSliceBytes, 1))));
  for (const int slice : {4, 3, 2, 1, 0}) {  // the order of backward
    EXPECT_TRUE(taken(push(kAnna, kFirst, {slice})));
    EXPECT_TRUE(taken(push(kBert, kSecond, {slice})));
  }
  // the last slice is short and leaves room in the window for the next
  const int64_t last = (kElements - 4 * kBlockElements) * 4;
  EXPECT_EQ(sent(), (Sent{{"anna0", {4, 3}}}));
  EXPECT_TRUE(taken(received(last + kSliceBytes)));
  EXPECT_EQ(sent(), (Sent{{"anna0", {0}}})) << "not slice 2, which was ready earlier";
  EXPECT_TRUE(taken(received(last + 2 * kSliceBytes)));
  EXPECT_EQ(sent(), (Sent{{"anna0", {1}}}));
}

// Over a slow link a pull may be repeated many times before its first answer arrives.
TEST_F(ServerPull, RepeatedPullDoesNotResendSlicesInFlight) {
  make("sync");
  EXPECT_TRUE(taken(ask(pull(0, 1, 2 * kSliceBytes))));
  EXPECT_EQ(sent(), (Sent{{"anna0", {0, 1}}}));
  for (int asked = 1; asked < 4; ++asked) {
    EXPECT_TRUE(taken(ask(again(asked, 0, {0, 1, 2, 3, 4}))));
    const auto out = server_->take_outgoing();
    ASSERT_EQ(out.size(), 1U);
    EXPECT_EQ(out[0].message.header.status().asked(), asked);
  }
}

TEST_F(ServerPull, MissingSlicesAreResentAfterTheServersReport) {
  make("sync");
  EXPECT_TRUE(taken(ask(pull(0, 1, 2 * kSliceBytes))));
  EXPECT_EQ(sent(), (Sent{{"anna0", {0, 1}}}));
  EXPECT_TRUE(taken(ask(again(1, 0, {1, 2, 3, 4}, kSliceBytes))));
  EXPECT_EQ(sent(), (Sent{{"anna0", {2}}})) << "received bytes make room";
  EXPECT_TRUE(taken(ask(again(2, 0, {1, 2, 3, 4}, kSliceBytes))));
  EXPECT_TRUE(sent().empty()) << "the answer reports the progress";
  EXPECT_TRUE(taken(ask(again(3, 1, {1, 2, 3, 4}, kSliceBytes))));
  EXPECT_TRUE(sent().empty()) << "the client has not heard that";
  EXPECT_TRUE(taken(ask(again(4, 3, {1, 2, 3, 4, 99, -1}, kSliceBytes))));
  EXPECT_EQ(sent(), (Sent{{"anna0", {1, 2}}}));
  EXPECT_TRUE(taken(received(3 * kSliceBytes)));
  EXPECT_EQ(sent(), (Sent{{"anna0", {3, 4}}})) << "lost slices are no longer in flight";
  EXPECT_TRUE(taken(ask(again(5, 4, {1}, 0))));
  EXPECT_TRUE(sent().empty()) << "question 4 was answered with weights";
}

TEST_F(ServerPull, NewConnectionGetsEverythingAgain) {
  make("sync");
  EXPECT_TRUE(taken(server_->on_data("before", pull(0, 1, 2 * kSliceBytes))));
  server_->take_outgoing();
  EXPECT_TRUE(taken(ask(again(1, 0, {1, 2, 3, 4}, kSliceBytes))));
  EXPECT_EQ(sent(), (Sent{{"anna0", {0, 1}}})) << "the answer went to a closed connection";
  EXPECT_TRUE(taken(received(2 * kSliceBytes)));
  EXPECT_EQ(sent(), (Sent{{"anna0", {2}}}));
}

TEST_F(ServerPull, WeightsOfABarrierAreNotResentEither) {
  make("sync");
  Message message = pull(0, 1);
  message.header.mutable_exchange()->mutable_pull()->set_barrier(true);
  EXPECT_TRUE(taken(ask(message)));
  EXPECT_EQ(sent(), (Sent{{"anna0", {0, 1, 2, 3, 4}}}));
  EXPECT_TRUE(taken(ask(message)));
  EXPECT_TRUE(sent().empty());
}

TEST_F(ServerPull, InvalidPullsAreRefused) {
  make("sync");
  EXPECT_FALSE(taken(ask(pull(-1, 2))));
  EXPECT_FALSE(taken(ask(pull(2, 2))));
  EXPECT_FALSE(taken(ask(pull(1, 0)))) << "zero lanes are one";
  EXPECT_FALSE(taken(ask(pull(0, -1))));
  EXPECT_FALSE(taken(ask(pull(0, 17))));
  EXPECT_FALSE(taken(ask(pull(INT_MAX, INT_MAX))));
  EXPECT_FALSE(taken(ask(pull(0, 1, -1))));
  EXPECT_FALSE(taken(ask(again(-1, 0, {}))));
  EXPECT_FALSE(taken(ask(again(0, -1, {}))));
  EXPECT_FALSE(taken(ask(again(0, 0, {}, -1))));
  EXPECT_TRUE(sent().empty());
  EXPECT_TRUE(taken(ask(pull(0, 2))));
  EXPECT_FALSE(taken(ask(pull(1, 3)))) << "the same pull with another number of lanes";
  EXPECT_EQ(sent(), (Sent{{"anna0", {0, 2, 4}}}));
}

TEST_F(ServerPull, ExcessiveReceivedBytesAreNotBelieved) {
  make("sync");
  EXPECT_TRUE(taken(received(kSliceBytes))) << "there is no pull yet";
  EXPECT_TRUE(taken(ask(pull(0, 1, kSliceBytes))));
  EXPECT_EQ(sent(), (Sent{{"anna0", {0}}}));
  EXPECT_FALSE(taken(received(-1)));
  EXPECT_FALSE(taken(received(INT64_MIN)));
  EXPECT_FALSE(taken(received(kSliceBytes, -1)));
  EXPECT_FALSE(taken(received(kSliceBytes, 16)));
  EXPECT_FALSE(taken(received(kSliceBytes, 0, 1, kTermId + 1))) << "another run";
  EXPECT_TRUE(taken(received(kSliceBytes, 5))) << "a lane without a pull";
  EXPECT_TRUE(taken(received(kSliceBytes, 0, 2))) << "another pull";
  EXPECT_TRUE(sent().empty());
  EXPECT_TRUE(taken(received(INT64_MAX)));
  EXPECT_EQ(sent(), (Sent{{"anna0", {1}}})) << "received is capped at what was sent";
  EXPECT_TRUE(taken(server_->on_data("else", again(1, 0, {}, INT64_MAX))));
  server_->take_outgoing();
}

// Each pull is new and gets an answer with the newest weights, which the worker never reads.
TEST_F(ServerPull, AnswersToAWorkerThatDoesNotReadAreBounded) {
  make("async");
  constexpr int64_t kShardBytes = kElements * 4;
  constexpr int64_t kMax = 3 * kShardBytes + (1 << 20);
  const auto bytes_of = [](const std::vector<Outgoing>& messages) {
    int64_t bytes = 0;
    for (const Outgoing& out : messages) {
      for (const Payload& payload : out.message.payloads) bytes += std::ssize(payload.bytes);
    }
    return bytes;
  };
  std::vector<Outgoing> unread;
  const auto ask_for_newest = [&](uint64_t who, int64_t number) {
    Message message = pull_message(who, number, 0);
    EXPECT_TRUE(taken(server_->on_data(std::to_string(who), message)));
    std::vector<Outgoing> answer = server_->take_outgoing();
    const int64_t bytes = bytes_of(answer);
    std::ranges::move(answer, std::back_inserter(unread));
    return bytes;
  };
  for (int64_t number = 1; number <= 200; ++number) ask_for_newest(kAnna, number);
  EXPECT_GT(bytes_of(unread), kShardBytes);
  EXPECT_LE(bytes_of(unread), kMax) << "200 answers would be " << 200 * kShardBytes;
  EXPECT_EQ(ask_for_newest(kBert, 1), kShardBytes) << "other workers are not affected";
  unread.clear();
  EXPECT_EQ(ask_for_newest(kAnna, 201), kShardBytes) << "the worker has read";
}

TEST_F(ServerPull, SpareGetsNoWeights) {
  make("sync");
  wire::State state = state_with_workers({kAnna});
  state.mutable_workers(0)->set_rank(-1);
  server_->on_state(state);
  EXPECT_TRUE(taken(ask(pull(0, 1))));
  const std::vector<Outgoing> answer = server_->take_outgoing();
  ASSERT_EQ(answer.size(), 1U);
  EXPECT_TRUE(answer[0].message.header.status().not_ready());
}

}  // namespace
}  // namespace pushpull::server_pull_test
