#include "cli/bench/link_floor.h"

#include <gtest/gtest.h>

#include <numeric>

#include "cli/bench/percentiles.h"
#include "common/base/error.h"

namespace pushpull {
namespace {

TEST(Percentiles, AreMeasuredValues) {
  std::vector<double> values(100);
  std::iota(values.rbegin(), values.rend(), 1.0);  // 100, 99, ... 1
  EXPECT_EQ(percentile(values, 0.5), 50.0);
  EXPECT_EQ(percentile(values, 0.99), 99.0);
  EXPECT_EQ(percentile(values, 1.0), 100.0);
  EXPECT_EQ(percentile({7.0}, 0.5), 7.0);
  EXPECT_EQ(percentile({1.0, 2.0}, 0.5), 1.0);
  EXPECT_EQ(percentiles({3.0, 1.0, 2.0}).p50, 2.0);
  EXPECT_EQ(percentiles({3.0, 1.0, 2.0}).p99, 3.0);
}

TEST(Percentiles, TheMeanIsTakenForEachFigure) {
  const Percentiles middle = mean({1.0, 10.0}, {3.0, 30.0});
  EXPECT_EQ(middle.p50, 2.0);
  EXPECT_EQ(middle.p99, 20.0);
}

}  // namespace

namespace {

using floors::LinkClients;
using floors::LinkKind;
using floors::LinkTimes;
using floors::Verb;

TEST(LinkFloor, SocketsMoveEveryByteInBothDirections) {
  for (const LinkKind kind : {LinkKind::kTcp, LinkKind::kUnix}) {
    const LinkFloor floor = link_floor(kind, 8 << 20, 2);
    EXPECT_GT(floor.way.push.p50, 0.0);
    EXPECT_GT(floor.way.pull.p50, 0.0);
    EXPECT_GE(floor.way.push.p99, floor.way.push.p50);
    EXPECT_GT(floor.exchange.p50, link_floor(kind, 4, 1).exchange.p50);
  }
}

TEST(LinkFloor, EveryLinkRunsItsClientsTheGivenNumberOfTimes) {
  for (const LinkKind kind : {LinkKind::kTcp, LinkKind::kUnix, LinkKind::kSharedMemory,
                              LinkKind::kZmqTcp, LinkKind::kZmqIpc}) {
    const auto server = floors::serve_link(kind, 64 << 10, 2);
    LinkClients clients(*server, 2, 5);
    clients.run(Verb::kExchange, 5);
    LinkTimes times;
    for (const Verb verb : {Verb::kPush, Verb::kPull}) {
      clients.run(verb, 3);
      times.add(clients);
      for (size_t client = 0; client < 2; ++client) {
        ASSERT_EQ(clients.rounds(client).size(), 3U);
        for (const auto& round : clients.rounds(client)) {
          EXPECT_EQ(round.push_us > 0.0, verb == Verb::kPush);
          EXPECT_EQ(round.pull_us > 0.0, verb == Verb::kPull);
        }
      }
    }
    EXPECT_GT(times.floor().exchange.p50, 0.0);
  }
}

// A client of an absent link.
struct NoServer : floors::LinkServer {
  std::unique_ptr<floors::Link> connect(size_t index) override {
    struct Nothing : floors::Link {
      explicit Nothing(bool good) : good_(good) {}
      void push() override {
        if (!good_) throw Error(ErrorCode::kFailed, "on purpose");
      }
      void pull() override {}
      bool good_;
    };
    return std::make_unique<Nothing>(index == 0);
  }
};

TEST(LinkFloor, AClientThatDiesIsReported) {
  NoServer server;
  LinkClients clients(server, 2, 1);
  EXPECT_THROW(clients.run(Verb::kExchange, 1), Error);
}

}  // namespace

}  // namespace pushpull
