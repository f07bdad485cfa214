// Pulls over several connections (lanes) and in windows.
#include <gtest/gtest.h>

#include <climits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ps/server.h"
#include "tests/ps/cluster_parts.h"

namespace pushpull {
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
  // Anna's pull number 1, on its connection for `lane`.
  Message pull(int lane, int lanes, int64_t window = 0, int64_t clock = 0) {
    Message message = pull_message(kAnna, 1, clock);
    wire::Pull* pull = message.header.mutable_exchange()->mutable_pull();
    pull->set_lane(lane);
    pull->set_lanes(lanes);
    pull->set_window_bytes(window);
    return message;
  }
  bool ask(const Message& message) {
    const wire::Pull& pull = message.header.exchange().pull();
    return server_->on_data("anna" + std::to_string(pull.lane()), message);
  }
  bool received(int64_t bytes, int lane = 0, int64_t number = 1, uint64_t run = kRun) {
    Message message;
    wire::Received* received = message.header.mutable_received();
    received->mutable_sender()->set_run(run);
    received->mutable_sender()->set_incarnation(kAnna);
    received->set_pull(number);
    received->set_lane(lane);
    received->set_bytes(bytes);
    return server_->on_data("anna0", message);
  }
  bool push(uint64_t who, Range share, Slices slices) {
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
  // What has been sent since the last call, by connection; the lane is in each message.
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

TEST_F(ServerPull, SlicesTakeTurnsOnTheLanes) {
  make("sync");
  EXPECT_TRUE(ask(pull(1, 3)));
  EXPECT_EQ(sent(), (Sent{{"anna1", {1, 4}}}));
  EXPECT_TRUE(ask(pull(0, 3)));
  EXPECT_TRUE(ask(pull(2, 3)));
  EXPECT_EQ(sent(), (Sent{{"anna0", {0, 3}}, {"anna2", {2}}}));
}

TEST_F(ServerPull, WhereAnyVersionWillDoAllLanesGetTheSameAtOnce) {
  make("async");
  EXPECT_TRUE(ask(pull(0, 2)));
  EXPECT_TRUE(sent().empty()) << "the weights could have moved before the other lane asks";
  EXPECT_TRUE(ask(pull(1, 2)));
  EXPECT_EQ(sent(), (Sent{{"anna0", {0, 2, 4}}, {"anna1", {1, 3}}}));
  EXPECT_TRUE(ask(pull(1, 2)));
  EXPECT_TRUE(sent().empty()) << "asked again on one lane";
  EXPECT_TRUE(ask(pull(0, 2)));
  EXPECT_EQ(sent().size(), 2U);
}

TEST_F(ServerPull, NoMoreIsUnderWayThanTheWindow) {
  make("sync");
  EXPECT_TRUE(ask(pull(0, 1, 2 * kSliceBytes)));
  EXPECT_EQ(sent(), (Sent{{"anna0", {0, 1}}}));
  EXPECT_TRUE(received(kSliceBytes));
  EXPECT_EQ(sent(), (Sent{{"anna0", {2}}}));
  EXPECT_TRUE(received(kSliceBytes));
  EXPECT_TRUE(sent().empty()) << "nothing new has arrived";
  EXPECT_TRUE(received(3 * kSliceBytes));
  EXPECT_EQ(sent(), (Sent{{"anna0", {3, 4}}}));
}

TEST_F(ServerPull, AWindowSmallerThanASliceLetsOneThrough) {
  make("sync");
  EXPECT_TRUE(ask(pull(0, 1, 1)));
  EXPECT_EQ(sent(), (Sent{{"anna0", {0}}}));
  EXPECT_TRUE(received(kSliceBytes));
  EXPECT_EQ(sent(), (Sent{{"anna0", {1}}}));
}

TEST_F(ServerPull, WhatForwardNeedsFirstOvertakesWhatWasReadyFirst) {
  make("sync");
  EXPECT_TRUE(ask(pull(0, 1, kSliceBytes, 1)));
  for (const int slice : {4, 3, 2, 1, 0}) {  // in backward's order
    EXPECT_TRUE(push(kAnna, kFirst, {slice}));
    EXPECT_TRUE(push(kBert, kSecond, {slice}));
  }
  // the short one leaves room in the window for the next
  const int64_t last = (kElements - 4 * kBlockElements) * 4;
  EXPECT_EQ(sent(), (Sent{{"anna0", {4, 3}}}));
  EXPECT_TRUE(received(last + kSliceBytes));
  EXPECT_EQ(sent(), (Sent{{"anna0", {0}}})) << "not slice 2, which was ready before";
  EXPECT_TRUE(received(last + 2 * kSliceBytes));
  EXPECT_EQ(sent(), (Sent{{"anna0", {1}}}));
}

TEST_F(ServerPull, ARepeatedPullBeginsAnew) {
  make("sync");
  EXPECT_TRUE(ask(pull(0, 1, 2 * kSliceBytes)));
  EXPECT_EQ(sent(), (Sent{{"anna0", {0, 1}}}));
  EXPECT_TRUE(ask(pull(0, 1, 2 * kSliceBytes)));
  EXPECT_EQ(sent(), (Sent{{"anna0", {0, 1}}})) << "the answer, or what was said of it, was lost";
}

TEST_F(ServerPull, PullsThatCannotBeAreRefused) {
  make("sync");
  EXPECT_FALSE(ask(pull(-1, 2)));
  EXPECT_FALSE(ask(pull(2, 2)));
  EXPECT_FALSE(ask(pull(1, 0))) << "no lanes are one";
  EXPECT_FALSE(ask(pull(0, -1)));
  EXPECT_FALSE(ask(pull(0, 17)));
  EXPECT_FALSE(ask(pull(INT_MAX, INT_MAX)));
  EXPECT_FALSE(ask(pull(0, 1, -1)));
  EXPECT_TRUE(sent().empty());
  EXPECT_TRUE(ask(pull(0, 2)));
  EXPECT_FALSE(ask(pull(1, 3))) << "another cut of the same pull";
  EXPECT_EQ(sent(), (Sent{{"anna0", {0, 2, 4}}}));
}

TEST_F(ServerPull, WhatIsSaidToHaveArrivedIsNotBelieved) {
  make("sync");
  EXPECT_TRUE(received(kSliceBytes)) << "there is no pull yet";
  EXPECT_TRUE(ask(pull(0, 1, kSliceBytes)));
  EXPECT_EQ(sent(), (Sent{{"anna0", {0}}}));
  EXPECT_FALSE(received(-1));
  EXPECT_FALSE(received(INT64_MIN));
  EXPECT_FALSE(received(kSliceBytes, -1));
  EXPECT_FALSE(received(kSliceBytes, 16));
  EXPECT_FALSE(received(kSliceBytes, 0, 1, kRun + 1)) << "a stranger";
  EXPECT_TRUE(received(kSliceBytes, 5)) << "a lane that has not asked";
  EXPECT_TRUE(received(kSliceBytes, 0, 2)) << "another pull";
  EXPECT_TRUE(sent().empty());
  EXPECT_TRUE(received(INT64_MAX));
  EXPECT_EQ(sent(), (Sent{{"anna0", {1}}})) << "as if all that was sent had arrived";
}

}  // namespace
}  // namespace pushpull
