#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "ps/report/metrics_sink.h"
#include "tests/ps/cluster_parts.h"

namespace pushpull {
namespace {

using testing::HasSubstr;
using testing::Not;

class PrometheusText : public testing::Test {
 protected:
  void add(wire::Role role, uint64_t incarnation, int rank, const std::string& host) {
    MemberInfo member{.role = role, .rank = rank, .incarnation = incarnation, .host = host};
    member.pid = static_cast<int64_t>(100 + incarnation);
    member.peer = "peer";
    member.last_heard_ms = 1'000;
    shown_[incarnation] = member;
  }
  void train() {
    facts_.phase = wire::PHASE_TRAINING;
    facts_.step = 7;
  }
  std::string text() const {
    return prometheus_text({.now_ms = 3'500,
                            .shown = &shown_,
                            .members = &members_,
                            .stragglers = &stragglers_,
                            .groups = &groups_},
                           facts_);
  }

  std::map<uint64_t, MemberInfo> shown_;
  Membership members_{5.0};
  StragglerDetector stragglers_;
  std::map<uint64_t, GroupPlace> groups_;
  RunFigures facts_;
};

TEST_F(PrometheusText, HasNoFiguresOfTrainingBeforeTheStart) {
  facts_.up_ms = 1500;
  EXPECT_THAT(text(), HasSubstr("pushpull_phase{phase=\"gathering\"} 1\n"));
  EXPECT_THAT(text(), HasSubstr("# TYPE pushpull_up_seconds gauge\npushpull_up_seconds 1.5\n"));
  EXPECT_THAT(text(), Not(HasSubstr("pushpull_step ")));
  EXPECT_THAT(text(), Not(HasSubstr("loss")));
}

TEST_F(PrometheusText, StalenessIsACumulativeHistogram) {
  train();
  facts_.staleness = {{0, 5}, {3, 2}, {5000, 1}};
  for (const char* line :
       {"_bucket{le=\"0\"} 5\n", "_bucket{le=\"2\"} 5\n", "_bucket{le=\"4\"} 7\n",
        "_bucket{le=\"4096\"} 7\n", "_bucket{le=\"+Inf\"} 8\n", "_sum 5006\n", "_count 8\n"}) {
    EXPECT_THAT(text(), HasSubstr("pushpull_staleness" + std::string(line)));
  }
}

TEST_F(PrometheusText, NumbersThatAreNotFiniteHaveTheNamesOfTheFormat) {
  train();
  facts_.loss = std::nan("");
  EXPECT_THAT(text(), HasSubstr("pushpull_loss NaN\n"));
  facts_.loss = -HUGE_VAL;
  EXPECT_THAT(text(), HasSubstr("pushpull_loss -Inf\n"));
}

TEST_F(PrometheusText, ALabelCannotEndItsLine) {
  add(wire::ROLE_WORKER, 1, 0, "a\"} 1\nx{y=\"\\\xff");
  EXPECT_THAT(text(), HasSubstr(R"(host="a\"} 1\\x0ax{y=\"\\\\xff",pid="101"} 0)"));
}

TEST_F(PrometheusText, MembersHaveTheirRoleRankAndAge) {
  add(wire::ROLE_SERVER, 1, 0, "head");
  add(wire::ROLE_WORKER, 2, -1, "spare");
  const std::string all = text();
  EXPECT_THAT(all,
              HasSubstr("pushpull_member_heard_seconds{role=\"server\",rank=\"0\",host=\"head\","
                        "pid=\"101\"} 2.5\n"));
  EXPECT_THAT(all, HasSubstr("pushpull_member_straggler{role=\"worker\",rank=\"\",host=\"spare\","
                             "pid=\"102\"} 0\n"));
  EXPECT_THAT(all, Not(HasSubstr("pushpull_member_straggler{role=\"server\"")));
}

TEST_F(PrometheusText, WorkersOfAGroupHaveItsNumberAndTheirStage) {
  add(wire::ROLE_SERVER, 1, 0, "head");
  add(wire::ROLE_WORKER, 2, 0, "node");
  EXPECT_THAT(text(), Not(HasSubstr("pushpull_member_stage")));
  groups_[2] = {3, 1};
  const std::string labels = R"({role="worker",rank="0",host="node",pid="102"} )";
  EXPECT_THAT(text(), HasSubstr("pushpull_member_group" + labels + "3\n"));
  EXPECT_THAT(text(), HasSubstr("pushpull_member_stage" + labels + "1\n"));
  EXPECT_THAT(text(), Not(HasSubstr("pushpull_member_stage{role=\"server\"")));
}

TEST_F(PrometheusText, EachHeadHasItsLossAndItsMetric) {
  train();
  facts_.evaluation = Evaluation{
      5,
      {{{"label", Metric::kAccuracy, 1}, {5.0, 10, 8.0}}, {{"span", Metric::kExactMatch, 2}, {}}}};
  EXPECT_THAT(text(), HasSubstr("pushpull_test_step 5\n"));
  EXPECT_THAT(text(), HasSubstr("pushpull_test_loss{head=\"label\"} 0.5\n"));
  EXPECT_THAT(text(), HasSubstr("pushpull_test_metric{head=\"label\",metric=\"accuracy\"} 0.8"));
  EXPECT_THAT(text(), Not(HasSubstr("head=\"span\""))) << "it has no value";
}

}  // namespace
}  // namespace pushpull
