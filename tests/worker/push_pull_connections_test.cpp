// Tests the worker's exchange over several connections to each server, and the windows of pulls.
#include <gtest/gtest.h>

#include <climits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/worker/exchange_fixture.h"

namespace pushpull {
namespace {

class Connections : public Exchange {
 protected:
  // Server 0 has slices 0 and 2, server 1 has slice 1.
  void make_connections(int connections, int64_t window = 0) {
    setup_.window_bytes = window;
    make("strategy = sync\nconnections = " + std::to_string(connections) + "\n");
    assign({0});
  }
  std::vector<wire::Received> reports() {
    std::vector<wire::Received> out;
    for (const ToServer& o : worker_->take_outgoing()) {
      if (o.message.header.has_received()) out.push_back(o.message.header.received());
    }
    return out;
  }
  // Returns an answer with one slice of server 0.
  Message one(int64_t pull, int slice, int connection, int64_t version = 0) {
    Message message = weights(0, pull, version, 1.0F);
    wire::Weights* w = message.header.mutable_weights();
    const int keep = slice == 0 ? 0 : 1;
    message.payloads = {message.payloads[static_cast<size_t>(keep)]};
    w->mutable_slices()->DeleteSubrange(1 - keep, 1);
    w->set_lane(connection);
    return message;
  }
};

TEST_F(Connections, ServerHasNoMoreConnectionsThanSlices) {
  make_connections(3);
  EXPECT_EQ(worker_->connections(0), 2);
  EXPECT_EQ(worker_->connections(1), 1);
}

TEST_F(Connections, PullIsSentOnEveryConnection) {
  make_connections(2);
  next();
  std::vector<std::pair<int, int>> used;
  for (const ToServer& out : worker_->take_outgoing()) {
    const wire::Pull& pull = out.message.header.exchange().pull();
    EXPECT_EQ(pull.lane(), out.connection);
    EXPECT_EQ(pull.lanes(), worker_->connections(out.server));
    used.emplace_back(out.server, out.connection);
  }
  EXPECT_EQ(used, (std::vector<std::pair<int, int>>{{0, 0}, {0, 1}, {1, 0}}));
}

TEST_F(Connections, PushAndNextPullUseEveryConnectionAndLossesTheFirst) {
  make_connections(2);
  const Task task = ready_at(0);
  worker_->take_outgoing();
  push(task);
  std::map<std::pair<int, int>, std::vector<int>> slices;
  for (const ToServer& out : worker_->take_outgoing()) {
    const wire::Exchange& exchange = out.message.header.exchange();
    EXPECT_TRUE(exchange.has_pull());
    EXPECT_EQ(exchange.push().parts_total(), out.server == 0 ? 2 : 1);
    EXPECT_EQ(exchange.push().losses_size(), out.server == 0 && out.connection == 0 ? 2 : 0);
    for (const auto& part : exchange.push().parts()) {
      slices[{out.server, out.connection}].push_back(part.slice());
    }
  }
  EXPECT_EQ(slices, (std::map<std::pair<int, int>, std::vector<int>>{
                        {{0, 0}, {0}}, {{0, 1}, {2}}, {{1, 0}, {1}}}));
}

TEST_F(Connections, LostPushIsResentOnEveryConnection) {
  make_connections(2);
  push(ready_at(0));
  const int64_t number = newest_pull().number();
  later(1000);
  forget_sent();
  hear(0, status(number, 0));
  EXPECT_TRUE(sent_to(0).empty()) << "the rest may be in flight on the other connection";
  hear(0, status(number, 0, false, 1, 1));
  std::vector<int> used;
  for (const ToServer& out : worker_->take_outgoing()) {
    EXPECT_TRUE(out.message.header.exchange().has_push());
    EXPECT_EQ(out.message.header.exchange().push().parts(0).slice(), out.connection == 0 ? 0 : 2);
    used.push_back(out.connection);
  }
  EXPECT_EQ(used, (std::vector<int>{0, 1}));
}

TEST_F(Connections, ReceivedBytesAreReportedToTheServer) {
  make_connections(1, 4 * 4096);
  push(ready_at(0));
  const wire::Pull pull = newest_pull();
  EXPECT_EQ(pull.window_bytes(), 4 * 4096);
  hear(0, one(pull.number(), 0, 0, 1));
  const auto reported = reports();
  ASSERT_EQ(reported.size(), 1U);
  EXPECT_EQ(reported[0].sender().incarnation(), 101U);
  EXPECT_EQ(reported[0].pull(), pull.number());
  EXPECT_EQ(reported[0].bytes(), 4096);
  hear(0, one(pull.number(), 2, 0, 1));
  EXPECT_TRUE(reports().empty()) << "the pull is complete";
}

// Queued messages cannot be reordered, so little may be in flight on a slow link.
TEST_F(Connections, SlowLinkHasASmallWindow) {
  make_connections(1, int64_t{8} << 20);
  push(ready_at(0));
  wire::Pull pull = newest_pull();
  EXPECT_EQ(pull.window_bytes(), int64_t{8} << 20) << "the rate is unknown";
  hear(0, one(pull.number(), 0, 0, 1));
  now_ += 4000;
  hear(0, one(pull.number(), 2, 0, 1));
  hear(0, status(pull.number(), 1));
  hear(1, weights(1, pull.number(), 1, 1.0F, 1));
  push(next());
  for (const auto& exchange : sent_to(0)) pull = exchange.pull();
  EXPECT_EQ(pull.window_bytes(), int64_t{2} << 20);
}

TEST_F(Connections, LessThanAQuarterOfTheWindowIsNotReported) {
  make_connections(1, 4 * 4096 + 4);
  push(ready_at(0));
  hear(0, one(newest_pull().number(), 0, 0, 1));
  EXPECT_TRUE(reports().empty());
}

TEST_F(Connections, UnknownConnectionIsNotCounted) {
  make_connections(2, 1);
  push(ready_at(0));
  const int64_t number = newest_pull().number();
  for (const int connection : {-1, 2, INT_MAX, INT_MIN}) {
    hear(0, one(number, 0, connection, 1));
    EXPECT_TRUE(reports().empty());
  }
}

TEST_F(Connections, PullForAnyVersionHasNoWindow) {
  make_connections(1, 4096);
  next();
  const wire::Pull pull = newest_pull();
  EXPECT_TRUE(pull.latest());
  EXPECT_EQ(pull.window_bytes(), 0);
  hear(0, one(pull.number(), 0, 0));
  EXPECT_TRUE(reports().empty());
}

}  // namespace
}  // namespace pushpull
