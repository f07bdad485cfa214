#include "cli/report/run_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "cli/report/run_data.h"
#include "common/base/error.h"
#include "tests/common/scratch_folder.h"

namespace pushpull {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class RunReport : public ::testing::Test {
 protected:
  RunReport() { put("job.ini", "model = mlp\nstrategy = async\nglobal-batch = 64\n"); }
  void put(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name) << text;
  }
  std::string page() const { return run_report_html(read_run_data(folder_.path())); }

  ScratchFolder folder_;
};

TEST_F(RunReport, NeedsAJob) {
  std::filesystem::remove(folder_ / "job.ini");
  EXPECT_THROW(read_run_data(folder_.path()), Error);
}

TEST_F(RunReport, ARunWithoutFilesIsAPageWithoutCharts) {
  EXPECT_THAT(page(), HasSubstr("not finished"));
  EXPECT_THAT(page(), HasSubstr("There are no metrics yet."));
  EXPECT_THAT(page(), Not(HasSubstr("<svg")));
}

TEST_F(RunReport, DamagedFilesAreLeftOut) {
  put("metrics.jsonl",
      "{\"seconds\":1,\"step\":10,\"samples\":640,\"loss\":2.5}\n[]\nnonsense\n"
      "{\"seconds\":\"x\",\"step\":11}\n{\"seconds\":2,\"step\":20,\"samples\":1280,\"loss\":1.5}\n"
      "{\"seconds\":3,\"step\":3");
  for (const char* damaged : {"", "[]", "{\"members\":7,\"left\":{}}", "{\"members\":[3,{}]"}) {
    put("members.json", damaged);
    put("summary.json", damaged);
    const RunData data = read_run_data(folder_.path());
    EXPECT_EQ(data.points.size(), 2U);
    EXPECT_FALSE(data.finished) << damaged;
    EXPECT_THAT(page(), HasSubstr("Training loss over time"));
  }
}

TEST_F(RunReport, AfterALostServerTheLaterLineOfAStepCounts) {
  put("metrics.jsonl",
      "{\"seconds\":1,\"step\":10}\n{\"seconds\":2,\"step\":30}\n{\"seconds\":3,\"step\":20}\n");
  const RunData data = read_run_data(folder_.path());
  ASSERT_EQ(data.points.size(), 2U);
  EXPECT_EQ(data.points[1].step, 20);
}

TEST_F(RunReport, TextOfMembersIsEscaped) {
  put("members.json",
      R"({"members":[{"role":"worker","rank":0,"host":"<b>&\"","pid":1,"cpu_seconds":1.5,
          "peak_rss_mib":20}],"left":[{"role":"worker","rank":null,"reason":"</table><script>"}]})");
  EXPECT_THAT(page(), HasSubstr("&lt;b&gt;&amp;"));
  EXPECT_THAT(page(), Not(HasSubstr("<script")));
  EXPECT_THAT(page(), HasSubstr("<td class=\"n\">1.50</td><td class=\"n\">20.0</td>"));
}

TEST_F(RunReport, CountsOfFaultsAreShownIfThereAreAny) {
  put("summary.json", R"({"samples_per_second":5,"workers":3,"servers":2,"recoveries":2,
      "checkpoints_failed":0,"rejected_by_reason":{"push-share":4,"x":"y"},"stopped_by":"SIGTERM"})");
  const RunData data = read_run_data(folder_.path());
  EXPECT_TRUE(data.finished);
  EXPECT_EQ(data.run.workers, 3);
  EXPECT_THAT(data.faults,
              ::testing::ElementsAre(::testing::Pair("servers lost and replaced", 2),
                                     ::testing::Pair("messages rejected: push-share", 4)));
  EXPECT_THAT(page(), HasSubstr("stopped by SIGTERM"));
}

}  // namespace
}  // namespace pushpull
