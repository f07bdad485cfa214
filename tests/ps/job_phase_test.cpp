#include "ps/run/job_phase.h"

#include <gtest/gtest.h>

#include <string>

#include "common/base/text.h"

namespace pushpull {
namespace {

class JobPhaseTest : public testing::Test {
 protected:
  Actions out_;
  JobPhase phase_{out_};
};

TEST_F(JobPhaseTest, EachPhaseIsANewState) {
  EXPECT_TRUE(phase_.gathering());
  const int64_t version = out_.state_version();
  phase_.enter(10, wire::PHASE_TRAINING);
  EXPECT_TRUE(phase_.training());
  EXPECT_FALSE(phase_.ending());
  phase_.enter(20, wire::PHASE_FINISHING);
  EXPECT_TRUE(phase_.ending());
  EXPECT_FALSE(phase_.ended());
  phase_.enter(30, wire::PHASE_FINISHED);
  EXPECT_TRUE(phase_.ended());
  EXPECT_EQ(out_.state_version(), version + 3);
}

TEST_F(JobPhaseTest, FirstFailureCounts) {
  phase_.enter(10, wire::PHASE_TRAINING);
  phase_.fail(20, ErrorCode::kPeerLost, "first", Culprit{"node", 7, "silent"});
  phase_.fail(30, ErrorCode::kIo, "second", {});
  phase_.enter(40, wire::PHASE_FINISHED);
  EXPECT_TRUE(phase_.failed());
  EXPECT_EQ(phase_.failure_code(), ErrorCode::kPeerLost);
  EXPECT_EQ(phase_.failure_text(), "first");
  ASSERT_TRUE(phase_.culprit());
  EXPECT_EQ(phase_.culprit()->pid, 7);
}

TEST_F(JobPhaseTest, StateTellsTheFailure) {
  wire::State state;
  phase_.add_to(&state);
  EXPECT_EQ(state.phase(), wire::PHASE_GATHERING);
  EXPECT_EQ(state.code(), 0);
  phase_.fail(0, ErrorCode::kIo, "[out] disk full", {});
  phase_.add_to(&state);
  EXPECT_EQ(state.phase(), wire::PHASE_FAILED);
  EXPECT_EQ(state.code(), static_cast<int>(ErrorCode::kIo));
  EXPECT_EQ(state.text(), "[out] disk full");
}

TEST_F(JobPhaseTest, TextsOfMembersAreBoundedAndOnOneLine) {
  std::string words = "\n";
  for (int i = 0; i < 1 << 20; ++i) words += "M\xc3\xbcller";
  phase_.fail(0, ErrorCode::kNotFinite, words, {});
  EXPECT_LT(phase_.failure_text().size(), 5000U);
  EXPECT_TRUE(is_plain_text(phase_.failure_text())) << "State holds it as a string";
}

TEST_F(JobPhaseTest, WaitForMembersIsBounded) {
  phase_.enter(1000, wire::PHASE_FINISHING);
  EXPECT_FALSE(phase_.overdue(6000));
  EXPECT_TRUE(phase_.overdue(6001));
  phase_.enter(6001, wire::PHASE_FINISHED);
  EXPECT_FALSE(phase_.overdue(6002)) << "each phase has its own deadline";
}

}  // namespace
}  // namespace pushpull
