#include <gtest/gtest.h>

#include "ps/server/pull_queue.h"

namespace pushpull {
namespace {

constexpr size_t kSlices = 4;
const std::vector<int> kNumbers{0, 2, 4, 6};  // the other slices belong to another server

wire::Pull pull_of(int connection = 0, int connections = 1) {
  wire::Pull pull;
  pull.set_number(1);
  pull.set_lane(connection);
  pull.set_lanes(connections);
  return pull;
}

TEST(PendingPull, EachConnectionCarriesItsPartOfTheSlices) {
  const PendingPull first("a", pull_of(0, 3), kSlices, true);
  const PendingPull second("b", pull_of(1, 3), kSlices, true);
  for (const size_t place : {0, 3}) EXPECT_TRUE(first.wants(place));
  EXPECT_FALSE(first.wants(1));
  EXPECT_TRUE(second.wants(1));
  EXPECT_FALSE(second.wants(0));
}

TEST(PendingPull, ReceivedBytesReopenAFullWindow) {
  wire::Pull pull = pull_of();
  pull.set_window_bytes(100);
  PendingPull pending("a", pull, kSlices, true);
  pending.on_sent(0, 60);
  EXPECT_FALSE(pending.window_is_full());
  pending.on_sent(1, 60);
  EXPECT_TRUE(pending.window_is_full());
  pending.on_received(50);
  EXPECT_FALSE(pending.window_is_full());
  pending.on_received(INT64_MAX);
  pending.on_sent(2, 100);
  EXPECT_TRUE(pending.window_is_full()) << "more than was sent cannot have arrived";
  EXPECT_FALSE(pending.all_sent());
  pending.on_sent(3, 1);
  EXPECT_TRUE(pending.all_sent());
}

TEST(PendingPull, OnlySlicesSentBeforeAHeardReportAreResent) {
  PendingPull pending("a", pull_of(), kSlices, true);
  pending.on_sent(0, 10);
  wire::Pull again = pull_of();
  again.set_asked(1);
  for (const int slice : {0, 2}) again.add_missing(slice);
  pending.repeat(again, kNumbers, 2);
  EXPECT_FALSE(pending.wants(0)) << "it may be in flight";
  pending.on_progress_report(kSlices);
  pending.on_sent(1, 10);
  again.set_asked(2);
  pending.repeat(again, kNumbers, 2);
  EXPECT_FALSE(pending.wants(0)) << "the client has not heard the report";
  again.set_asked(3);
  again.set_heard(1);
  pending.repeat(again, kNumbers, 2);
  EXPECT_TRUE(pending.wants(0)) << "it was lost";
  EXPECT_FALSE(pending.wants(1)) << "it was sent after the report";
}

TEST(PendingPull, MissingSlicesOfAnotherServerAreIgnored) {
  PendingPull pending("a", pull_of(), kSlices, true);
  for (size_t place = 0; place < kSlices; ++place) pending.on_sent(place, 10);
  pending.close();
  wire::Pull again = pull_of();
  again.set_asked(1);
  pending.repeat(again, kNumbers, 2);
  pending.on_progress_report(kSlices);
  again.set_asked(2);
  again.set_heard(1);
  for (const int slice : {1, -3, 8, 1000000}) again.add_missing(slice);
  pending.repeat(again, kNumbers, 2);
  EXPECT_FALSE(pending.open());
  EXPECT_TRUE(pending.all_sent());
}

}  // namespace
}  // namespace pushpull
