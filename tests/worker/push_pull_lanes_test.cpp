// The worker's exchange over several connections to each server, and in windows.
#include <gtest/gtest.h>

#include <climits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/worker/exchange_fixture.h"

namespace pushpull {
namespace {

class Lanes : public Exchange {
 protected:
  // Server 0 has slices 0 and 2, server 1 has slice 1.
  void make_lanes(int connections, int64_t window = 0) {
    setup_.window_bytes = window;
    make("strategy = sync\nconnections = " + std::to_string(connections) + "\n");
    assign({0});
  }
  std::vector<wire::Received> said() {
    std::vector<wire::Received> out;
    for (const ToServer& o : worker_->take_outgoing()) {
      if (o.message.header.has_received()) out.push_back(o.message.header.received());
    }
    return out;
  }
  // One slice of server 0.
  Message one(int64_t pull, int slice, int lane, int64_t version = 0) {
    Message message = weights(0, pull, version, 1.0F);
    wire::Weights* w = message.header.mutable_weights();
    const int keep = slice == 0 ? 0 : 1;
    message.payloads = {message.payloads[static_cast<size_t>(keep)]};
    w->mutable_slices()->DeleteSubrange(1 - keep, 1);
    w->set_lane(lane);
    return message;
  }
};

TEST_F(Lanes, AServerHasNoMoreLanesThanSlices) {
  make_lanes(3);
  EXPECT_EQ(worker_->lanes(0), 2);
  EXPECT_EQ(worker_->lanes(1), 1);
}

TEST_F(Lanes, APullGoesOutOnEachLane) {
  make_lanes(2);
  next();
  std::vector<std::pair<int, int>> lanes;
  for (const ToServer& out : worker_->take_outgoing()) {
    const wire::Pull& pull = out.message.header.exchange().pull();
    EXPECT_EQ(pull.lane(), out.lane);
    EXPECT_EQ(pull.lanes(), worker_->lanes(out.server));
    lanes.emplace_back(out.server, out.lane);
  }
  EXPECT_EQ(lanes, (std::vector<std::pair<int, int>>{{0, 0}, {0, 1}, {1, 0}}));
}

TEST_F(Lanes, APushGoesOutOnAllLanesWithTheNextPullAndItsLossesOnTheFirst) {
  make_lanes(2);
  const Task task = ready_at(0);
  worker_->take_outgoing();
  push(task);
  std::map<std::pair<int, int>, std::vector<int>> slices;
  for (const ToServer& out : worker_->take_outgoing()) {
    const wire::Exchange& exchange = out.message.header.exchange();
    EXPECT_TRUE(exchange.has_pull());
    EXPECT_EQ(exchange.push().parts_total(), out.server == 0 ? 2 : 1);
    EXPECT_EQ(exchange.push().losses_size(), out.server == 0 && out.lane == 0 ? 2 : 0);
    for (const auto& part : exchange.push().parts()) {
      slices[{out.server, out.lane}].push_back(part.slice());
    }
  }
  EXPECT_EQ(slices, (std::map<std::pair<int, int>, std::vector<int>>{
                        {{0, 0}, {0}}, {{0, 1}, {2}}, {{1, 0}, {1}}}));
}

TEST_F(Lanes, ALostPushIsRepeatedOnItsLanes) {
  make_lanes(2);
  push(ready_at(0));
  const int64_t number = newest_pull().number();
  later(1000);
  forget_sent();
  hear(0, status(number, 0));
  EXPECT_TRUE(sent_to(0).empty()) << "the rest may still be on its way on the other lane";
  hear(0, status(number, 0, false, 1, 1));
  std::vector<int> lanes;
  for (const ToServer& out : worker_->take_outgoing()) {
    EXPECT_TRUE(out.message.header.exchange().has_push());
    EXPECT_EQ(out.message.header.exchange().push().parts(0).slice(), out.lane == 0 ? 0 : 2);
    lanes.push_back(out.lane);
  }
  EXPECT_EQ(lanes, (std::vector<int>{0, 1}));
}

TEST_F(Lanes, TheServerHearsWhatHasArrived) {
  make_lanes(1, 4 * 4096);
  push(ready_at(0));
  const wire::Pull pull = newest_pull();
  EXPECT_EQ(pull.window_bytes(), 4 * 4096);
  hear(0, one(pull.number(), 0, 0, 1));
  const auto told = said();
  ASSERT_EQ(told.size(), 1U);
  EXPECT_EQ(told[0].sender().incarnation(), 101U);
  EXPECT_EQ(told[0].pull(), pull.number());
  EXPECT_EQ(told[0].bytes(), 4096);
  hear(0, one(pull.number(), 2, 0, 1));
  EXPECT_TRUE(said().empty()) << "all is here";
}

// What stands in queues cannot be overtaken any more.
TEST_F(Lanes, OverASlowLinkTheWindowIsSmall) {
  make_lanes(1, int64_t{8} << 20);
  push(ready_at(0));
  wire::Pull pull = newest_pull();
  EXPECT_EQ(pull.window_bytes(), int64_t{8} << 20) << "nothing is known yet";
  hear(0, one(pull.number(), 0, 0, 1));
  now_ += 4000;
  hear(0, one(pull.number(), 2, 0, 1));
  hear(0, status(pull.number(), 1));
  hear(1, weights(1, pull.number(), 1, 1.0F, 1));
  push(next());
  for (const auto& exchange : sent_to(0)) pull = exchange.pull();
  EXPECT_EQ(pull.window_bytes(), int64_t{2} << 20);
}

TEST_F(Lanes, LittleIsNotWorthAMessage) {
  make_lanes(1, 4 * 4096 + 4);
  push(ready_at(0));
  hear(0, one(newest_pull().number(), 0, 0, 1));
  EXPECT_TRUE(said().empty());
}

TEST_F(Lanes, ALaneThatDoesNotExistIsNotCounted) {
  make_lanes(2, 1);
  push(ready_at(0));
  const int64_t number = newest_pull().number();
  for (const int lane : {-1, 2, INT_MAX, INT_MIN}) {
    hear(0, one(number, 0, lane, 1));
    EXPECT_TRUE(said().empty());
  }
}

TEST_F(Lanes, WhereAnyVersionWillDoThereIsNoWindow) {
  make_lanes(1, 4096);
  next();
  const wire::Pull pull = newest_pull();
  EXPECT_TRUE(pull.latest());
  EXPECT_EQ(pull.window_bytes(), 0);
  hear(0, one(pull.number(), 0, 0));
  EXPECT_TRUE(said().empty());
}

}  // namespace
}  // namespace pushpull
