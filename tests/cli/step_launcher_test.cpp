// Tests the command lines of srun and mpirun, the places of their tasks and their refusals.
#include "cli/run/step_launcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <set>

#include "cli/run/merged_view.h"
#include "common/base/error.h"
#include "tests/common/thrown.h"

namespace pushpull::step_launcher_test {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

std::vector<std::string> words(const std::string& over, const Environment& environment,
                               int64_t tasks, const std::vector<std::string>& more = {}) {
  return make_step_launcher(over, environment)->words(tasks, {"PUSHPULL_KEY"}, more);
}

std::string refusal(const std::string& over, const Environment& environment) {
  return thrown(ErrorCode::kUsage, [&] { check_step_launcher(over, environment); });
}

TEST(StepLauncher, SrunTakesTheWholeAllocationAndKeepsOtherTasksWhenOneEnds) {
  EXPECT_THAT(words("slurm", {{"SLURM_JOB_ID", "7"}, {"SLURM_JOB_NUM_NODES", "2"}}, 4),
              ElementsAre("srun", "--export=ALL", "--kill-on-bad-exit=0", "--wait=0", "--mpi=none",
                          "--ntasks=4", "--nodes=2"));
  const Environment inner = {
      {"SLURM_STEP_ID", "0"}, {"SLURM_JOB_NUM_NODES", "3"}, {"SLURM_CPUS_PER_TASK", "8"}};
  const auto nested = words("slurm", inner, 2, {"--gpus-per-task=1"});
  EXPECT_THAT(nested, Contains("--overlap")) << "the step around it holds the CPUs";
  EXPECT_THAT(nested, Contains("--nodes=2")) << "not more nodes than tasks";
  EXPECT_THAT(nested, Contains("--cpus-per-task=8")) << "srun does not inherit it";
  EXPECT_EQ(nested.back(), "--gpus-per-task=1");
}

TEST(StepLauncher, MpirunGetsTheKeyByNameAndBindsNothing) {
  EXPECT_THAT(words("mpi", {}, 3),
              ElementsAre("mpirun", "-np", "3", "--bind-to", "none", "-x", "PUSHPULL_KEY"));
  EXPECT_THAT(words("mpi", {}, 3, {"--bind-to", "core"}), Not(Contains("none")));
  EXPECT_THAT(words("mpi", {{"OMPI_MCA_hwloc_base_binding_policy", "core"}}, 3),
              Not(Contains("none")));
}

TEST(StepLauncher, SlurmNamesTheNodeOfATask) {
  EXPECT_EQ(make_step_launcher("slurm", {{"SLURMD_NODENAME", "n3"}})->node(), "n3");
  EXPECT_EQ(make_step_launcher("slurm", {})->node(), "");
  EXPECT_EQ(make_step_launcher("mpi", {{"SLURMD_NODENAME", "n3"}})->node(), "");
}

TEST(StepLauncher, CountsTheTasksOfAnAllocation) {
  const auto tasks = [](const std::string& over, const Environment& environment) {
    return make_step_launcher(over, environment)->tasks();
  };
  EXPECT_EQ(tasks("slurm", {{"SLURM_NTASKS", "4"}, {"SLURM_TASKS_PER_NODE", "9"}}), 4);
  EXPECT_EQ(tasks("slurm", {{"SLURM_TASKS_PER_NODE", "2(x3),1"}}), 7);
  EXPECT_EQ(tasks("slurm", {}), std::nullopt);
  EXPECT_EQ(tasks("mpi", {{"SLURM_NTASKS", "4"}}), std::nullopt) << "outside of Slurm";
  EXPECT_EQ(tasks("mpi", {{"SLURM_JOB_ID", "1"}, {"SLURM_NTASKS", "4"}}), 4);
  EXPECT_EQ(sum_of_tasks("3"), 3);
  for (const char* text : {"", "x", "2(x", "2(x)", "-1", "1,,1", "0", "2(x9999999)"}) {
    EXPECT_EQ(sum_of_tasks(text), std::nullopt) << text;
  }
}

TEST(StepLauncher, NamesNodesWithoutScontrol) {
  const auto launcher = make_step_launcher("slurm", {{"SLURM_JOB_NODELIST", "n[08-10],x"}});
  EXPECT_THAT(launcher->nodes(3), ElementsAre("n08", "n09", "n10"));
}

TEST(StepLauncher, FindsThePlaceOfATaskInItsLaunchersVariables) {
  // mpirun inside Slurm: Slurm's variables are those of its daemon.
  const Environment both = {{"SLURM_PROCID", "1"},         {"SLURM_NTASKS", "2"},
                            {"SLURM_LOCALID", "0"},        {"OMPI_COMM_WORLD_RANK", "3"},
                            {"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}};
  const TaskPlace mpi = make_step_launcher("mpi", both)->place();
  EXPECT_EQ(mpi.rank, 3);
  EXPECT_EQ(mpi.size, 4);
  EXPECT_EQ(mpi.local_rank, 1);
  EXPECT_EQ(make_step_launcher("slurm", both)->place().rank, 1);
  EXPECT_THROW(make_step_launcher("mpi", {})->place(), Error);
}

TEST(StepLauncher, EachFurtherServerHasOneTaskAndEachNodeOneServer) {
  for (int64_t size = 1; size <= 40; ++size) {
    for (int64_t servers = 1; servers <= size; ++servers) {
      std::multiset<int64_t> found;
      for (int64_t rank = 0; rank < size; ++rank) {
        if (const auto server = server_beside({rank, size, 0}, servers)) found.insert(*server);
      }
      ASSERT_EQ(found.size(), static_cast<size_t>(servers - 1)) << size << " " << servers;
      for (int64_t server = 1; server < servers; ++server) EXPECT_EQ(found.count(server), 1U);
    }
  }
  // 3 nodes with 4 tasks each: the first task of the nodes 1 and 2.
  EXPECT_EQ(server_beside({4, 12, 0}, 3), 1);
  EXPECT_EQ(server_beside({8, 12, 0}, 3), 2);
}

TEST(StepLauncher, ExplainsRefusalsInOneLine) {
  const auto mpi = make_step_launcher("mpi", {});
  EXPECT_THAT(mpi->refusal("mpirun has detected an attempt to run as root."),
              HasSubstr("OMPI_ALLOW_RUN_AS_ROOT=1"));
  EXPECT_THAT(mpi->refusal("There are not enough slots available in the system to satisfy the 4"),
              HasSubstr("--oversubscribe"));
  EXPECT_EQ(mpi->refusal("any other line"), "");
  const auto slurm = make_step_launcher("slurm", {});
  EXPECT_THAT(slurm->refusal("srun: error: Unable to create step for job 8: More processors "
                             "requested than permitted"),
              HasSubstr("fewer CPUs"));
  EXPECT_THAT(slurm->refusal("srun: error: Unable to create step for job 8: Job is down"),
              HasSubstr("does not start the step: Job is down"));
  EXPECT_EQ(slurm->refusal("worker: More processors requested than permitted"), "");
  EXPECT_EQ(slurm->refusal("srun: error: n1: task 1: Exited with exit code 3"), "");
}

TEST(StepLauncher, RefusesWhatCannotStart) {
  EXPECT_THAT(refusal("pbs", {}), HasSubstr("must be slurm or mpi"));
  EXPECT_THAT(refusal("mpi", {{"PATH", "/nowhere"}}), HasSubstr("there is no mpirun in PATH"));
  EXPECT_THAT(refusal("slurm", {{"PATH", "/nowhere"}}), HasSubstr("there is no srun in PATH"));
}

TEST(StepLauncher, TellsLinesOfTasksFromThoseOfTheLauncher) {
  EXPECT_TRUE(is_line_of_task(task_prefix(12, "n1") + "worker: ready"));
  EXPECT_FALSE(is_line_of_task("srun: error: n1: task 1: Killed"));
  EXPECT_FALSE(is_line_of_task("task without a bar"));
  const std::string told = task_prefix(0, "n0") + std::string(kToldToEnd);
  EXPECT_EQ(told_to_end(told + "SIGTERM"), SIGTERM);
  EXPECT_EQ(told_to_end(told + "SIGKILL"), 0);
  EXPECT_EQ(told_to_end(std::string(kToldToEnd) + "SIGTERM"), 0) << "no task wrote it";
}

TEST(StepLines, TheReasonOfARefusalTakesThePlaceOfItsPage) {
  const auto launcher = make_step_launcher("mpi", {});
  StepLines lines(*launcher);
  EXPECT_FALSE(lines.take("-----------------").show);
  EXPECT_TRUE(lines.take("some warning").show);
  const auto refusal = lines.take("mpirun has detected an attempt to run as root.");
  EXPECT_FALSE(refusal.show);
  EXPECT_NE(refusal.refusal, "");
  EXPECT_FALSE(lines.take("Running as root is *strongly* discouraged").show);
  EXPECT_TRUE(lines.take(task_prefix(1, "n") + "worker: error").show) << "of another source";
}

TEST(StepLines, ASignalOfTheBatchSystemIsForTheJobAndOneOfMpirunIsNot) {
  const std::string told = task_prefix(0, "n0") + std::string(kToldToEnd) + "SIGTERM";
  const auto slurm = make_step_launcher("slurm", {});
  const auto mpi = make_step_launcher("mpi", {});
  EXPECT_EQ(StepLines(*slurm).take(told).signal, SIGTERM);
  EXPECT_EQ(StepLines(*mpi).take(told).signal, 0) << "mpirun ends tasks when one has failed";
  EXPECT_TRUE(StepLines(*mpi).take(told).show);
}

}  // namespace
}  // namespace pushpull::step_launcher_test
