#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "common/net/zap_handler.h"

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
}  // namespace pushpull
