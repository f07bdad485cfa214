#include "cli/link/link_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/error.h"
#include "tests/common/thrown.h"

namespace pushpull::link_model_test {
namespace {

using ::testing::HasSubstr;
using Kind = LinkCommand::Kind;
using Then = LinkModel::Then;

LinkModel after(const std::vector<std::string>& commands) {
  LinkModel model(1);
  for (const std::string& text : commands) {
    model.apply(parse_link_command(text), 0);
  }
  return model;
}

std::string refusal(const std::string& text) {
  return thrown(ErrorCode::kUsage, [&] { parse_link_command(text); });
}

TEST(LinkCommand, EveryCommandIsParsed) {
  const LinkCommand delay = parse_link_command("delay 20 5.5");
  EXPECT_EQ(delay.kind, Kind::kDelay);
  EXPECT_EQ(delay.value, 20);
  EXPECT_EQ(delay.jitter, 5.5);
  EXPECT_EQ(parse_link_command("rate 100").value, 100);
  EXPECT_EQ(parse_link_command("oneway up").way, Way::kUp);
  EXPECT_EQ(parse_link_command("oneway down").way, Way::kDown);
  EXPECT_EQ(parse_link_command(" drop  2 ").value, 2);
  EXPECT_EQ(parse_link_command("corrupt 3").kind, Kind::kCorrupt);
  for (const char* word : {"hold", "release", "reset", "refuse", "accept", "truncate", "quit"}) {
    EXPECT_NO_THROW(parse_link_command(word)) << word;
  }
}

TEST(LinkCommand, AnUnknownCommandIsNamedWithTheKnownOnes) {
  for (const char* text :
       {"", "dely 5", "delay", "delay 1 2 3", "oneway", "oneway left", "hold 1"}) {
    EXPECT_THAT(refusal(text), HasSubstr("is not a command; known: delay MS [JITTER]")) << text;
  }
  EXPECT_THAT(refusal("delay -1"), HasSubstr("-1 must be a number from 0 to 60000"));
  EXPECT_THAT(refusal("delay 5 x"), HasSubstr("x must be a number"));
  EXPECT_THAT(refusal("corrupt 1.5"), HasSubstr("1.5 must be a number"));
  EXPECT_THAT(refusal("rate nan"), HasSubstr("nan must be a number"));
}

TEST(LinkScript, CommandsAreSortedByTime) {
  const std::vector<TimedCommand> script =
      parse_link_script("# a partition\n+2.5 release\n\n  +1 hold # now\n");
  ASSERT_EQ(script.size(), 2u);
  EXPECT_EQ(script[0].at_us, 1'000'000);
  EXPECT_EQ(script[0].text, "hold");
  EXPECT_EQ(script[1].at_us, 2'500'000);
  EXPECT_EQ(script[1].command.kind, Kind::kRelease);
}

TEST(LinkScript, ALineWithoutTimeIsNamed) {
  for (const char* text : {"hold", "+ hold", "+x hold", "+1", "1 hold", "+-1 hold"}) {
    EXPECT_THROW(parse_link_script(text), Error) << text;
  }
}

TEST(LinkModel, HoldStopsBothDirectionsAndOnewayOne) {
  EXPECT_FALSE(after({"hold"}).open(Way::kUp));
  EXPECT_FALSE(after({"hold"}).open(Way::kDown));
  EXPECT_FALSE(after({"oneway up"}).open(Way::kUp));
  EXPECT_TRUE(after({"oneway up"}).open(Way::kDown));
  EXPECT_TRUE(after({"hold", "release"}).open(Way::kUp));
  EXPECT_TRUE(after({"oneway down", "release"}).open(Way::kDown));
}

TEST(LinkModel, DropHoldsThenResetsThenReleases) {
  LinkModel model = after({"drop 2"});
  EXPECT_EQ(model.next_tick_us(), 2'000'000);
  EXPECT_EQ(model.tick(1'999'999), Then::kNothing);
  EXPECT_FALSE(model.open(Way::kUp));
  EXPECT_EQ(model.tick(2'000'000), Then::kResetAll);
  EXPECT_TRUE(model.open(Way::kUp));
  EXPECT_EQ(model.tick(3'000'000), Then::kNothing);
}

TEST(LinkModel, ReleaseEndsADropBeforeItsReset) {
  LinkModel model = after({"drop 2", "release"});
  EXPECT_EQ(model.tick(2'000'000), Then::kNothing);
}

TEST(LinkModel, RefuseResetsNowAndLastsUntilAccept) {
  LinkModel model(1);
  EXPECT_EQ(model.apply(parse_link_command("refuse"), 0), Then::kResetAll);
  EXPECT_TRUE(model.refusing());
  EXPECT_EQ(model.apply(parse_link_command("accept"), 0), Then::kNothing);
  EXPECT_FALSE(model.refusing());
}

TEST(LinkModel, DelayStaysWithinJitterAndRepeatsForTheSameSeed) {
  LinkModel model = after({"delay 10 4"});
  LinkModel twin = after({"delay 10 4"});
  int64_t least = 1 << 30;
  int64_t most = 0;
  for (int i = 0; i < 1000; ++i) {
    const int64_t delay = model.draw_delay_us();
    EXPECT_EQ(delay, twin.draw_delay_us());
    least = std::min(least, delay);
    most = std::max(most, delay);
  }
  EXPECT_GE(least, 6000);
  EXPECT_LT(least, 7000);
  EXPECT_LE(most, 14000);
  EXPECT_GT(most, 13000);
  EXPECT_EQ(after({"delay 1 50"}).draw_delay_us() < 0, false);
}

// Returns the bytes that a sender gets through in `us` microseconds if it sends whenever it may.
size_t passed(LinkModel& model, Way way, int64_t us) {
  size_t bytes = 0;
  constexpr size_t kMuch = 1 << 20;
  for (int64_t now = 0; now < us;) {
    const size_t allowed = model.allowance(way, kMuch, now);
    model.sent(way, allowed);
    bytes += allowed;
    now = std::max(now + (allowed > 0 ? 0 : 1), model.next_allowance_us(way, kMuch));
  }
  return bytes;
}

TEST(LinkModel, TheRateHoldsForEachDirectionSeparately) {
  LinkModel model = after({"rate 100"});
  EXPECT_NEAR(static_cast<double>(passed(model, Way::kUp, 1'000'000)), 12.5e6, 0.02 * 12.5e6);
  EXPECT_NEAR(static_cast<double>(passed(model, Way::kDown, 1'000'000)), 12.5e6, 0.02 * 12.5e6);
}

TEST(LinkModel, AnIdleLinkSavesUpTenMillisecondsAtMost) {
  LinkModel model = after({"rate 100"});
  EXPECT_EQ(model.allowance(Way::kUp, 10'000'000, 60'000'000), 125'000u);
}

TEST(LinkModel, SmallMessagesDoNotNeedAFullBucket) {
  LinkModel model = after({"rate 1"});
  EXPECT_EQ(model.allowance(Way::kUp, 100, 0), 0u);
  EXPECT_EQ(model.next_allowance_us(Way::kUp, 100), 800);
  EXPECT_EQ(model.allowance(Way::kUp, 100, 800), 100u);
}

TEST(LinkModel, WithoutARateAllBytesMayPass) {
  LinkModel model(1);
  EXPECT_EQ(model.allowance(Way::kUp, 12345, 0), 12345u);
}

TEST(LinkModel, TheBufferHoldsTheBytesInFlight) {
  EXPECT_EQ(LinkModel(1).buffer_bytes(), size_t{4} << 20);
  // 10 Gbit/s for 8 + 2 ms
  EXPECT_EQ(after({"delay 8 2"}).buffer_bytes(), (size_t{4} << 20) + 12'500'000);
  EXPECT_EQ(after({"delay 60000"}).buffer_bytes(), size_t{256} << 20);
}

TEST(LinkModel, OnlyTheGivenNumberOfPiecesIsCorrupted) {
  LinkModel model = after({"corrupt 2"});
  EXPECT_FALSE(model.draw_corrupt_bit(0));
  for (int i = 0; i < 2; ++i) {
    const std::optional<size_t> bit = model.draw_corrupt_bit(3);
    ASSERT_TRUE(bit);
    EXPECT_LT(*bit, 24u);
  }
  EXPECT_FALSE(model.draw_corrupt_bit(3));
}

TEST(LinkModel, TruncateAffectsOnePiece) {
  LinkModel model = after({"truncate"});
  EXPECT_TRUE(model.take_truncation());
  EXPECT_FALSE(model.take_truncation());
}

TEST(DelayLine, BytesAreDueAfterTheirDelayAndNotBefore) {
  DelayLine line;
  line.arrive(10, 1000, 5000);
  EXPECT_EQ(line.next_us(), 6000);
  EXPECT_EQ(line.due(5999, 100), 0u);
  EXPECT_EQ(line.due(6000, 100), 10u);
  EXPECT_EQ(line.due(6000, 4), 4u);
  line.leave(4);
  EXPECT_EQ(line.waiting(), 6u);
  line.leave(6);
  EXPECT_FALSE(line.next_us());
}

TEST(DelayLine, JitterNeverChangesTheOrder) {
  DelayLine line;
  line.arrive(1, 0, 9000);
  line.arrive(2, 100, 1000);  // alone it would be due at 1100
  EXPECT_EQ(line.due(8999, 100), 0u);
  EXPECT_EQ(line.due(9000, 100), 3u);
}

TEST(DelayLine, SmallMessagesAtOneTimeAreRoundedUpTogether) {
  DelayLine line;
  line.arrive(1, 1001, 1000);
  line.arrive(1, 1040, 1000);
  EXPECT_EQ(line.next_us(), 2050);
  EXPECT_EQ(line.due(2050, 100), 2u);
}

TEST(DelayLine, WithoutADelayAllBytesAreDueAtOnce) {
  DelayLine line;
  line.arrive(7, 1234, 0);
  EXPECT_EQ(line.due(1234, 100), 7u);
}

}  // namespace
}  // namespace pushpull::link_model_test
