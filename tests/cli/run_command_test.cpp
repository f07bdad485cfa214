#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "cli/commands.h"
#include "cli/run/child.h"
#include "common/base/error.h"
#include "common/host/cores.h"
#include "tests/common/thrown.h"
#include "worker/devices.h"

namespace pushpull::run_command_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

CommandLine parse(std::vector<const char*> words) {
  words.insert(words.begin(), "run");
  return parse_command_line(static_cast<int>(words.size()), words.data(), run_options());
}

// Returns the error of a plan, or "".
std::string refusal(const std::vector<const char*>& words) {
  return thrown(ErrorCode::kUsage, [&] { plan_run(parse(words), "/bin", false); });
}

TEST(RunCommand, PassesTheJobTheFlagsAndEveryKeyToTheCoordinator) {
  const LauncherOptions options =
      plan_run(parse({"--steps", "10", "--servers", "2", "--workers=3", "--strategy", "ssp:2",
                      "--out", "o", "--listen", "tcp://0.0.0.0:*", "--insecure"}),
               "/opt/bin", true);
  EXPECT_EQ(options.supervisor.servers, 2);
  EXPECT_EQ(options.supervisor.workers, 3);
  EXPECT_EQ(options.supervisor.on_worker_loss, OnWorkerLoss::kContinue) << "ssp's default";
  EXPECT_EQ(options.server_program, "/opt/bin/pushpull-server");
  EXPECT_EQ(options.worker_program, "/opt/bin/pushpull-worker");
  EXPECT_THAT(options.coordinator_arguments,
              ElementsAre("--listen", "tcp://0.0.0.0:*", "--servers", "2", "--workers", "3",
                          "--out", "o", "--progress", "tty", "--steps=10", "--strategy=ssp:2"));
  EXPECT_TRUE(options.insecure) << "for all processes";
}

TEST(RunCommand, TheDataPortIsThatOfAllProcesses) {
  const LauncherOptions options = plan_run(
      parse({"--steps", "10", "--servers", "2", "--data-port", "5600-5609"}), "/bin", false);
  for (size_t slot = 0; slot < 3; ++slot) {
    EXPECT_THAT(plan_start(options, slot, "tcp://a:1").words,
                ::testing::IsSupersetOf({"--data-port", "5600-5609"}))
        << slot;
  }
  EXPECT_THAT(refusal({"--steps", "10", "--data-port", "many"}), HasSubstr("--data-port many"));
}

TEST(RunCommand, WorkersOfAHostNeedLinks) {
  EXPECT_THAT(refusal({"--steps=10", "--per-host=4"}), HasSubstr("--per-host 4: needs --link"));
  EXPECT_THAT(refusal({"--steps=10", "--per-host=0", "--link=any,1ms"}), HasSubstr("--per-host"));
  plan_run(parse({"--steps=10", "--per-host=4", "--link=any,1ms"}), "/b", false);
}

TEST(RunCommand, WorkersUseTheHostsGpusInTurn) {
  EXPECT_THAT(devices_in_turns("cuda", 3, 2), ElementsAre("cuda:0", "cuda:1", "cuda:0"));
  EXPECT_THAT(devices_in_turns("cuda", 2, 1), ElementsAre("cuda", "cuda"));
  EXPECT_THAT(devices_in_turns("cuda:1", 2, 4), ElementsAre("cuda:1", "cuda:1"));
  EXPECT_THAT(
      plan_run(parse({"--steps=10", "--workers=2", "--device=auto"}), "/b", false).worker_devices,
      ElementsAre("auto", "auto"));
  EXPECT_TRUE(plan_run(parse({"--steps=10"}), "/b", false).worker_devices.empty());
  EXPECT_THAT(refusal({"--steps=10", "--device=cuda:x"}), HasSubstr("cuda:x"));
}

TEST(RunCommand, EachProcessKnowsItsNumberInItsRoleAndItsCores) {
  const LauncherOptions options =
      plan_run(parse({"--steps=10", "--servers=2", "--workers=3"}), "/b", false);
  const auto variable = [&](size_t slot, const std::string& name) -> std::string {
    for (const auto& [key, value] : plan_start(options, slot, "tcp://a:1").environment) {
      if (key == name) return value.value_or("removed");
    }
    return "";
  };
  EXPECT_EQ(variable(1, "PUSHPULL_LOCAL_RANK"), "1");
  EXPECT_EQ(variable(1, "PUSHPULL_LOCAL_WORLD_SIZE"), "2");
  EXPECT_EQ(variable(2, "PUSHPULL_LOCAL_RANK"), "0");
  EXPECT_EQ(variable(2, "PUSHPULL_RANK"), "0");
  EXPECT_EQ(variable(4, "PUSHPULL_RANK"), "2") << "its number in lines of the launcher";
  EXPECT_EQ(variable(4, "PUSHPULL_LOCAL_RANK"), "2");
  EXPECT_EQ(variable(4, "PUSHPULL_LOCAL_WORLD_SIZE"), "3");
  EXPECT_EQ(variable(4, "PUSHPULL_CORES"), std::to_string(std::max(1, read_cores().count() / 3)));
  EXPECT_TRUE(plan_start(options, 4, "tcp://a:1").cpus.empty()) << "not bound by default";
  EXPECT_EQ(variable(4, "OMP_NUM_THREADS"), "") << "its threads are the job's key";
}

TEST(RunCommand, AProgramOfTheUserKeepsItsHeapUnlessItsEnvironmentSaysOtherwise) {
  constexpr const char* kName = "MALLOC_TRIM_THRESHOLD_";
  const LauncherOptions options = plan_run(parse({"--steps=10", "--worker=true"}), "/b", false);
  const auto is_set = [&](size_t slot) {
    const StartPlan plan = plan_start(options, slot, "tcp://a:1");
    return std::ranges::count(plan.environment, kName, [](const auto& v) { return v.first; });
  };
  unsetenv(kName);  // NOLINT(concurrency-mt-unsafe)
  EXPECT_EQ(is_set(0), 0) << "a server does it itself";
  EXPECT_EQ(is_set(1), 1);
  setenv(kName, "131072", 1);  // NOLINT(concurrency-mt-unsafe)
  EXPECT_EQ(is_set(1), 0);
  unsetenv(kName);  // NOLINT(concurrency-mt-unsafe)
}

TEST(RunCommand, BindsEachProcessToItsCores) {
  const LauncherOptions options =
      plan_run(parse({"--steps=10", "--workers=2", "--bind=numa"}), "/b", false);
  for (size_t slot = 0; slot < 3; ++slot) {
    EXPECT_FALSE(plan_start(options, slot, "tcp://a:1").cpus.empty()) << slot;
  }
  EXPECT_THAT(refusal({"--steps=10", "--bind=socket"}), HasSubstr("none, cores or numa"));
}

TEST(RunCommand, TooFewCoresAreSaidBeforeTheStart) {
  const std::string threads = "--threads=" + std::to_string(read_cores().count() + 1);
  EXPECT_THAT(
      plan_run(parse({"--steps=10", threads.c_str(), "--oversubscribe"}), "/b", false).notes,
      ElementsAre(HasSubstr("more threads than cores: 1 worker")));
  EXPECT_THAT(
      refusal({"--steps=10", threads.c_str()}),
      AllOf(HasSubstr("[threads] more threads than cores: 1 worker"), HasSubstr("--oversubscribe"),
            HasSubstr("take threads = " + std::to_string(read_cores().count()))));
  const std::string workers = "--workers=" + std::to_string(read_cores().count() + 1);
  EXPECT_THAT(plan_run(parse({"--steps=10", workers.c_str()}), "/b", false).notes,
              ElementsAre(HasSubstr("more threads than cores")))
      << "with one thread each they take turns";
  EXPECT_THAT(
      plan_run(parse({"--steps=10", threads.c_str(), "--device=cuda:0"}), "/b", false).notes,
      ElementsAre());
  EXPECT_THAT(plan_run(parse({"--steps=10", "--servers=1000", "--bind=cores"}), "/b", false).notes,
              ElementsAre(HasSubstr("--bind cores: ")));
}

TEST(RunCommand, ServersHaveTheirOwnDevice) {
  const LauncherOptions options =
      plan_run(parse({"--steps=10", "--servers=2", "--server-device=cuda:1"}), "/b", false);
  EXPECT_THAT(options.server_devices, ElementsAre("cuda:1", "cuda:1"));
  EXPECT_TRUE(options.worker_devices.empty());
  EXPECT_TRUE(plan_run(parse({"--steps=10", "--device=auto"}), "/b", false).server_devices.empty());
  EXPECT_THAT(refusal({"--steps=10", "--server-device=gpu"}),
              HasSubstr("--server-device gpu: gpu is unknown"));
  EXPECT_THAT(refusal({"--steps=10", "--server-device=cuda:0,cuda:1"}),
              HasSubstr("a server uses one device"));
}

TEST(RunCommand, StartsOneServerAndOneWorkerOnALoopbackPortByDefault) {
  const LauncherOptions options = plan_run(parse({"--steps=10"}), "/opt/bin", false);
  EXPECT_EQ(options.supervisor.on_worker_loss, OnWorkerLoss::kAbort) << "sync's default";
  EXPECT_THAT(options.coordinator_arguments,
              ElementsAre("--listen", "tcp://127.0.0.1:*", "--servers", "1", "--workers", "1",
                          "--out", "pushpull-out", "--progress", "plain", "--steps=10"));
}

TEST(RunCommand, FlagsOfStopsGoToTheFirstServer) {
  const LauncherOptions options = plan_run(
      parse({"--steps=10", "--grace=110", "--checkpoint-signal=SIGWINCH", "--stop-before=120"}),
      "/b", false);
  EXPECT_EQ(options.supervisor.stop_ms, 115'000) << "the coordinator ends the job first";
  EXPECT_EQ(options.checkpoint_signal, SIGWINCH);
  EXPECT_THAT(options.coordinator_arguments,
              ::testing::IsSupersetOf(
                  {"--grace", "110", "--checkpoint-signal", "SIGWINCH", "--stop-before", "120"}));
  const LauncherOptions usual = plan_run(parse({"--steps=10"}), "/b", false);
  EXPECT_EQ(usual.supervisor.stop_ms, 30'000);
  EXPECT_EQ(usual.checkpoint_signal, SIGUSR1);
  EXPECT_THAT(refusal({"--steps=10", "--checkpoint-signal=KILL"}), HasSubstr("another meaning"));
  EXPECT_THAT(refusal({"--steps=10", "--grace=0"}), HasSubstr("--grace 0"));
  EXPECT_THAT(refusal({"--steps=10", "--stop-at=soon"}), HasSubstr("--stop-at soon"));
}

TEST(RunCommand, ReadsThePolicyFromTheJobFile) {
  const std::filesystem::path file =
      std::filesystem::path(::testing::TempDir()) / "run_command_test.ini";
  std::ofstream(file) << "steps = 10\non-worker-loss = wait\n";
  const LauncherOptions options = plan_run(parse({"--job", file.c_str()}), "/opt/bin", false);
  EXPECT_EQ(options.supervisor.on_worker_loss, OnWorkerLoss::kWait);
  EXPECT_EQ(options.coordinator_arguments[0], "--job");
  EXPECT_EQ(options.coordinator_arguments[1], file.string());
  std::filesystem::remove(file);
}

TEST(RunCommand, RefusesAStragglerThatIsNotAWorker) {
  EXPECT_EQ(refusal({"--steps=10", "--workers=2", "--straggler=1:4"}), "");
  EXPECT_THAT(refusal({"--steps=10", "--workers=2", "--straggler=2:4"}),
              AllOf(HasSubstr("2:4"), HasSubstr("only 2"), HasSubstr("0 to 1")));
}

TEST(RunCommand, ACommandOfTheUserTakesThePlaceOfTheWorker) {
  const LauncherOptions options = plan_run(
      parse({"--steps=10", "--model=external", "--worker", "sh -c 'exit 1'"}), "/b", false);
  EXPECT_THAT(options.worker_command, ElementsAre("sh", "-c", "exit 1"));
  EXPECT_EQ(options.supervisor.finish_ms, 60000);
  EXPECT_TRUE(plan_run(parse({"--steps=10"}), "/b", false).worker_command.empty());
  EXPECT_THAT(refusal({"--model=mlp", "--worker", "sh"}), HasSubstr("[run] --worker: the job has"));
}

TEST(RunCommand, ACommandOfTheUserMaySayTheJob) {
  const auto says = [](const std::vector<const char*>& words) {
    const LauncherOptions options = plan_run(parse(words), "/b", false);
    return std::ranges::count(options.coordinator_arguments, kJobFromWorker) == 1;
  };
  EXPECT_TRUE(says({"--worker", "sh"}));
  EXPECT_TRUE(says({"--steps=10", "--worker", "sh"}));
  EXPECT_FALSE(says({"--model=external", "--worker", "sh"}));
  EXPECT_FALSE(says({"--steps=10"}));
}

TEST(RunCommand, RefusesAnImpossibleJobBeforeItStartsAProcess) {
  EXPECT_EQ(refusal({"--steps", "10"}), "");
  EXPECT_THAT(refusal({"--steps", "10", "--workers", "0"}), HasSubstr("--workers is '0'"));
  EXPECT_THAT(refusal({"--steps", "10", "--servers", "-1"}), HasSubstr("--servers is '-1'"));
  EXPECT_THAT(refusal({"--steps", "10", "--workers", "two"}), HasSubstr("--workers is 'two'"));
  EXPECT_THAT(refusal({"--steps", "10", "--workers", "99999"}), HasSubstr("--workers"));
  EXPECT_THAT(refusal({"--steps", "10", "--workers", "2", "--strategy", "backup:9"}),
              AllOf(HasSubstr("backup:9"), HasSubstr("2 workers"), HasSubstr("below 2")));
  EXPECT_THAT(refusal({"--steps", "10", "--workers", "9", "--strategy", "backup:8"}),
              HasSubstr("only 8 micro-batches"));
  EXPECT_EQ(refusal({"--steps", "10", "--workers", "2", "--strategy", "backup:1"}), "");
  EXPECT_THAT(refusal({"--steps", "10", "job.ini"}), HasSubstr("'job.ini' is not a flag"));
  EXPECT_THAT(refusal({"--job", "/nowhere/job.ini"}), HasSubstr("/nowhere/job.ini"));
  EXPECT_THAT(refusal({"--steps", "10", "--lr", "fast"}), HasSubstr("lr"));
  EXPECT_THAT(refusal({"--steps", "10", "--optimi", "sgd"}), HasSubstr("optimi"));
}

}  // namespace
}  // namespace pushpull::run_command_test
