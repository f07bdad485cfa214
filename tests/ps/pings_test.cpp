#include "ps/server/pings.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/shm/segment.h"
#include "tests/ps/refusals.h"

namespace pushpull {
namespace {

wire::Ping ping(int64_t number, int64_t bytes = 0, const std::string& host = "") {
  wire::Ping out;
  out.set_number(number);
  out.set_answer_bytes(bytes);
  out.set_host(host);
  return out;
}

TEST(Pings, AnswersHaveTheRequestedBytes) {
  Pings pings;
  Message answer;
  EXPECT_TRUE(taken(pings.take(1000, ping(7, 4096), answer)));
  EXPECT_EQ(answer.header.pong().number(), 7);
  ASSERT_EQ(answer.payloads.size(), 1U);
  EXPECT_EQ(answer.payloads[0].bytes.size(), 4096U);
  Message small;
  EXPECT_TRUE(taken(pings.take(1000, ping(8), small)));
  EXPECT_TRUE(small.payloads.empty());
}

TEST(Pings, AnswersInFlightShareOneBuffer) {
  Pings pings;
  std::vector<Message> answers(8);
  for (Message& answer : answers) {
    ASSERT_TRUE(taken(pings.take(1000, ping(1, Pings::kMaxBytes), answer)));
    EXPECT_EQ(answer.payloads[0].bytes.data(), answers[0].payloads[0].bytes.data());
  }
}

TEST(Pings, AnswerSizeIsBounded) {
  Pings pings;
  Message answer;
  for (const int64_t bytes :
       {Pings::kMaxBytes + 4, int64_t{-4}, int64_t{6}, INT64_MAX, INT64_MIN}) {
    EXPECT_EQ(reason_of(pings.take(1000, ping(1, bytes), answer)), "ping-bytes") << bytes;
  }
  EXPECT_FALSE(answer.header.has_pong());
}

TEST(Pings, AnswersToAFloodAreBounded) {
  Pings pings;
  int64_t bytes = 0;
  for (int i = 0; i < 10'000; ++i) {
    Message answer;
    if (taken(pings.take(5000 + i / 20, ping(i, Pings::kMaxBytes), answer))) {
      bytes += static_cast<int64_t>(answer.payloads[0].bytes.size());
    }
  }
  EXPECT_EQ(bytes, Pings::kMaxBytesPerSecond);
  Message answer;
  EXPECT_EQ(reason_of(pings.take(5600, ping(1, 4), answer)), "ping-rate");
  EXPECT_TRUE(taken(pings.take(6000, ping(1, 4), answer))) << "a new second";
  Pings others;
  int64_t answers = 0;
  for (int i = 0; i < 10'000; ++i) answers += taken(others.take(1000, ping(i), answer)) ? 1 : 0;
  EXPECT_EQ(answers, Pings::kMaxPerSecond);
}

TEST(Pings, ClientOnThisHostGetsAPageToMap) {
  if (host_identity().empty()) GTEST_SKIP() << "the system does not say which host this is";
  Pings pings;
  Message answer;
  ASSERT_TRUE(taken(pings.take(1000, ping(1, 0, host_identity()), answer)));
  ASSERT_TRUE(answer.header.pong().has_probe()) << answer.header.pong().text();
  const Mapping mapping(answer.header.pong().probe(), 1 << 20);
  EXPECT_GE(mapping.bytes().size(), 1U);
  Message other;
  ASSERT_TRUE(taken(pings.take(1000, ping(2, 0, "another host 1 2"), other)));
  EXPECT_FALSE(other.header.pong().has_probe());
  EXPECT_EQ(other.header.pong().text(), "it is on another host");
  Message unasked;
  ASSERT_TRUE(taken(pings.take(1000, ping(3), unasked)));
  EXPECT_FALSE(unasked.header.pong().has_probe());
}

}  // namespace
}  // namespace pushpull
