// Tests PullState: the slices of a pull that have arrived.
#include <gtest/gtest.h>

#include <climits>

#include "tests/worker/exchange_parts.h"
#include "worker/exchange/weights_buffer.h"

namespace pushpull {
namespace {

class Progress : public testing::Test {
 protected:
  PullState::Taken hear(int server, const std::vector<int>& slices, int64_t version,
                        bool at_barrier = false, bool in_place = false) {
    wire::Weights weights;
    weights.set_at_barrier(at_barrier);
    std::vector<Payload> payloads;
    for (const int slice : slices) {
      wire::SliceVersion* entry = weights.add_slices();
      entry->set_slice(slice);
      entry->set_version(version);
      const bool exists = slice >= 0 && slice < 3;
      payloads.push_back(floats_of(exists ? map_.map().elements(slice).size() : 1, 1.0F));
    }
    return progress_.take(server, weights, payloads, in_place);
  }

  const ConnectionMap map_{three_slices(), 2};
  WeightsBuffer weights_{map_.map()};
  PullState progress_{map_, weights_};
};

TEST_F(Progress, CountsMissingSlicesByServer) {
  progress_.begin({.clock = 4});
  EXPECT_EQ(progress_.missing(0), 2);
  EXPECT_EQ(progress_.missing(1), 1);
  EXPECT_EQ(hear(0, {0}, 4), PullState::kSome);
  EXPECT_EQ(progress_.missing(0), 1);
  wire::Pull again;
  progress_.put_missing(0, 0, &again);
  EXPECT_EQ(again.missing_size(), 0) << "slice 0 came on the first connection";
  progress_.put_missing(0, 1, &again);
  ASSERT_EQ(again.missing_size(), 1);
  EXPECT_EQ(again.missing(0), 2);
}

TEST_F(Progress, IgnoresSlicesThatWereNotRequestedFromTheServer) {
  progress_.begin({.clock = 4});
  EXPECT_EQ(hear(0, {1}, 4), PullState::kNone) << "slice 1 belongs to server 1";
  EXPECT_EQ(hear(0, {-1, 3, INT_MAX, INT_MIN}, 4), PullState::kNone);
  EXPECT_EQ(hear(0, {0, 2}, 5), PullState::kNone) << "another version";
  EXPECT_EQ(hear(0, {0, 2}, -1), PullState::kNone);
  EXPECT_EQ(hear(0, {0}, 4), PullState::kSome);
  EXPECT_EQ(hear(0, {0}, 4), PullState::kNone) << "a repeated slice";
  EXPECT_EQ(progress_.missing(0), 1);
}

TEST_F(Progress, NewerVersionOfAServerReplacesTheOlderOne) {
  progress_.begin({.versions = PullAim::kPerServer, .clock = 3});
  hear(0, {0}, 40);
  hear(0, {2}, 43);
  EXPECT_EQ(progress_.missing(0), 1) << "slice 0 is of version 40";
  EXPECT_EQ(hear(0, {0}, 40), PullState::kNone);
  hear(0, {0}, 43);
  EXPECT_EQ(progress_.missing(0), 0);
  EXPECT_EQ(progress_.version(0), 43);
  EXPECT_EQ(hear(0, {0, 2}, 50), PullState::kNone) << "complete";
  EXPECT_EQ(progress_.version(0), 43);
}

TEST_F(Progress, IsAtTheBarrierIfEveryServerIs) {
  for (const bool past : {false, true}) {
    progress_.begin({.versions = PullAim::kPerServer, .clock = 4, .at_barrier = true});
    hear(0, {0, 2}, 9, true);
    hear(1, {1}, 9, !past);
    EXPECT_EQ(progress_.at_barrier(), !past);
  }
  progress_.begin({.versions = PullAim::kPerServer, .clock = 4});
  hear(0, {0, 2}, 9, true);
  hear(1, {1}, 9, true);
  EXPECT_FALSE(progress_.at_barrier()) << "the pull does not ask for a barrier";
}

TEST(ProgressOfOneServer, ReportsWeightsThatAreNotContiguous) {
  const ConnectionMap map({3000, 4096, 1}, 1);
  WeightsBuffer weights(map.map());
  PullState progress(map, weights);
  progress.begin({.versions = PullAim::kNewest});
  wire::Weights message;
  std::vector<Payload> payloads;
  for (int slice = 0; slice < 2; ++slice) {
    message.add_slices()->set_slice(slice);
    payloads.push_back(floats_of(1024, 1.0F));  // not contiguous
  }
  EXPECT_EQ(progress.take(0, message, payloads, true), PullState::kNotContiguous);
}

}  // namespace
}  // namespace pushpull
