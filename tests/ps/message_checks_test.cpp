#include "ps/members/message_checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "common/net/model_wire.h"
#include "tests/ps/refusals.h"

namespace pushpull {
namespace {

using testing::HasSubstr;

const Barriers kBarriers = {4, 0, 2, 10, 1};  // evaluations every 4 steps, steps 2 to 9

MemberInfo worker() {
  return {.role = wire::ROLE_WORKER, .rank = 1, .incarnation = 7, .host = "node", .pid = 12};
}

TEST(MessageChecks, SenderMustBeAMemberWithTheRole) {
  const MemberInfo member = worker();
  EXPECT_EQ(reason_of(check_member(&member, wire::ROLE_WORKER, 7)), "");
  const Checked unknown = check_member(nullptr, wire::ROLE_SERVER, 9);
  EXPECT_EQ(reason_of(unknown), "unknown-member");
  EXPECT_THAT(unknown->text, HasSubstr("incarnation 9"));
  const Checked wrong = check_member(&member, wire::ROLE_SERVER, 7);
  EXPECT_EQ(reason_of(wrong), "wrong-role");
  EXPECT_EQ(wrong->text, "expected a server, got worker 1 (node, pid 12)");
}

TEST(MessageChecks, OnlyADeclaredWorkerMaySendResults) {
  MemberInfo member = worker();
  EXPECT_EQ(reason_of(check_trainer(&member, 7)), "undeclared");
  member.declared = true;
  EXPECT_EQ(reason_of(check_trainer(&member, 7)), "");
}

TEST(MessageChecks, StepMustBelongToTheRun) {
  const MemberInfo member = worker();
  EXPECT_EQ(reason_of(check_step(kBarriers, 2, member)), "");
  EXPECT_EQ(reason_of(check_step(kBarriers, 9, member)), "");
  for (const int64_t step : {int64_t{1}, int64_t{10}, INT64_MIN, INT64_MAX}) {
    const Checked refusal = check_step(kBarriers, step, member);
    EXPECT_EQ(reason_of(refusal), "wrong-step") << step;
    EXPECT_EQ(refusal->text, "expected a step from 2 to 9, got " + std::to_string(step) +
                                 " from worker 1 (node, pid 12)");
  }
}

TEST(MessageChecks, ResultsMustBelongToADueEvaluation) {
  wire::EvalResult result;
  result.set_step(4);
  EXPECT_EQ(reason_of(check_results(kBarriers, 8, {}, result, worker())), "");
  result.set_step(5);
  EXPECT_EQ(reason_of(check_results(kBarriers, 8, {}, result, worker())), "no-evaluation");
}

TEST(MessageChecks, SumsOfAChunkMustBePossible) {
  const std::vector<HeadInfo> heads = {{"label", Metric::kAccuracy, 1},
                                       {"next", Metric::kPerplexity, 3}};
  const auto reason = [&](const std::vector<HeadSums>& sums) {
    wire::EvalResult result;
    result.set_step(4);
    to_wire(sums, result.add_chunks());
    return reason_of(check_results(kBarriers, 8, heads, result, worker()));
  };
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(reason({{1.0, 8, 8.0}, {1.0, 24, 1.0}}), "");
  EXPECT_EQ(reason({{kNan, 8, 0.0}, {kNan, 0, kNan}}), "") << "a model that has diverged";
  EXPECT_EQ(reason({{1.0, 8, 8.0}}), "bad-result");
  EXPECT_EQ(reason({{1.0, 8, 8.0}, {}, {}}), "bad-result");
  for (const HeadSums& bad :
       {HeadSums{1.0, 9, 0.0}, HeadSums{1.0, -1, 0.0}, HeadSums{1.0, 4, 5.0},
        HeadSums{1.0, 8, -1.0}, HeadSums{1.0, 8, 0.5}, HeadSums{1.0, 8, kNan}}) {
    EXPECT_EQ(reason({bad, {}}), "bad-result") << bad.counted << " " << bad.metric;
  }
  EXPECT_EQ(reason({{}, {1.0, 25, 0.0}}), "bad-result");
}

TEST(MessageChecks, NamedSumsAndValuesMustBeThoseOfAProgram) {
  const std::vector<HeadInfo> heads = {{"label", Metric::kAccuracy, 1}, {"f1", Metric::kValue, 1}};
  const auto reason = [&](const std::vector<std::string>& names, int values) {
    wire::EvalResult result;
    result.set_step(4);
    if (!names.empty()) to_wire(std::vector<HeadSums>(2), result.add_chunks());
    for (const std::string& name : names) result.mutable_chunks(0)->add_named()->set_name(name);
    for (int i = 0; i < values; ++i) result.add_values(0.5);
    return reason_of(check_results(kBarriers, 8, heads, result, worker()));
  };
  EXPECT_EQ(reason({"tp", "fp.1"}, 0), "");
  EXPECT_EQ(reason({}, 1), "");
  EXPECT_EQ(reason({"t p"}, 0), "bad-result");
  EXPECT_EQ(reason(std::vector<std::string>(kMaxNamedSums + 1, "tp"), 0), "bad-result");
  EXPECT_EQ(reason({}, 2), "bad-result") << "one head has a formula";
  EXPECT_EQ(reason({"tp"}, 1), "bad-result") << "both in one message";
}

}  // namespace
}  // namespace pushpull
