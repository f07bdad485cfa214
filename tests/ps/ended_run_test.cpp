#include "ps/members/ended_run.h"

#include <gtest/gtest.h>

#include "common/base/error.h"

namespace pushpull {
namespace {

constexpr uint64_t kEndedTermId = 7;

RunEnd finished(int64_t members) {
  RunEnd end;
  end.term_id = kEndedTermId;
  end.finished = true;
  end.members = members;
  return end;
}

Message heartbeat(uint64_t term_id = kEndedTermId) {
  Message message;
  message.header.set_term_id(term_id);
  message.header.mutable_heartbeat()->set_incarnation(1);
  return message;
}

Message leave() {
  Message message;
  message.header.set_term_id(kEndedTermId);
  message.header.mutable_leave()->set_incarnation(1);
  return message;
}

TEST(EndedRun, AMemberHearsThatTheRunHasFinished) {
  EndedRun run(finished(1));
  const auto answer = run.on_message(heartbeat());
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->header.term_id(), kEndedTermId);
  EXPECT_EQ(answer->header.state().phase(), wire::PHASE_FINISHED);
  EXPECT_GT(answer->header.state().version(), 1'000'000'000) << "later than all of the run";
}

TEST(EndedRun, AMemberHearsWhyTheRunHasFailed) {
  RunEnd end = finished(1);
  end.finished = false;
  end.code = 75;
  end.text = "[job] stopped by SIGTERM";
  EndedRun run(end);
  const auto answer = run.on_message(heartbeat());
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->header.state().phase(), wire::PHASE_FAILED);
  EXPECT_EQ(answer->header.state().code(), 75);
  EXPECT_EQ(answer->header.state().text(), "[job] stopped by SIGTERM");
}

TEST(EndedRun, OtherProcessesDoNotJoinAndLearnNothing) {
  EndedRun run(finished(1));
  Message hello;
  hello.header.mutable_hello()->set_incarnation(2);
  const auto answer = run.on_message(hello);
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->header.refused().code(), static_cast<int>(ErrorCode::kUnreachable));
  EXPECT_FALSE(run.on_message(heartbeat(8)));
}

TEST(EndedRun, AProcessWithoutAPlaceEndsWithTheCodeOfAFailedRun) {
  RunEnd end = finished(1);
  end.finished = false;
  end.code = 8;
  end.text = "[out] disk full";
  Message hello;
  hello.header.mutable_hello()->set_incarnation(2);
  const auto answer = EndedRun(end).on_message(hello);
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->header.refused().code(), 8);
  EXPECT_EQ(answer->header.refused().text(), "[join] the job is over: [out] disk full");
}

TEST(EndedRun, IsOverOnceAllMembersHaveLeftOrAfterFiveSeconds) {
  EndedRun run(finished(2));
  EXPECT_FALSE(run.over(1000));
  run.on_message(leave());
  EXPECT_FALSE(run.over(6000));
  EXPECT_TRUE(run.over(6001));
  run.on_message(leave());
  EXPECT_TRUE(run.over(1001));
  EXPECT_TRUE(EndedRun(finished(0)).over(0));
}

}  // namespace
}  // namespace pushpull
