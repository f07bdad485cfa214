// Tests the roles of servers, the refusals, and the text of --explain.
#include "common/launch/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <random>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/net/address.h"
#include "tests/common/thrown.h"

namespace pushpull {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

Environment torchrun(int rank, int size) {
  return {{"RANK", std::to_string(rank)},
          {"WORLD_SIZE", std::to_string(size)},
          {"LOCAL_RANK", "0"},
          {"MASTER_ADDR", "10.1.2.3"},
          {"MASTER_PORT", "29500"}};
}

Environment open_mpi(int rank, int size) {
  return {{"OMPI_COMM_WORLD_RANK", std::to_string(rank)},
          {"OMPI_COMM_WORLD_SIZE", std::to_string(size)}};
}

Environment tf_config(const std::string& type, int index) {
  return {{"TF_CONFIG",
           R"({"cluster": {"ps": ["a:1", "b:1"], "chief": ["c:1"], "worker": ["d:1", "e:1"],)"
           R"( "evaluator": ["f:1"]}, "task": {"type": ")" +
               type + R"(", "index": )" + std::to_string(index) + "}}"}};
}

Environment operator+(Environment one, const Environment& other) {
  one.insert(other.begin(), other.end());
  return one;
}

Placement place(const Environment& environment, const LaunchFlags& flags = {}) {
  return place_task(flags, read_claims(environment, "node17"));
}

Placement server(const Environment& environment, std::optional<int64_t> servers = {}) {
  return place(environment, {.server = true, .servers = servers});
}

std::string refusal(const Environment& environment, const LaunchFlags& flags = {}) {
  return thrown(ErrorCode::kUsage, [&] { place(environment, flags); });
}

TEST(Placement, TheServerOfRankZeroIsTheFirst) {
  const Placement first = server(torchrun(0, 3), 2);
  EXPECT_EQ(first.role, TaskRole::kFirstServer);
  EXPECT_EQ(first.listen(), "tcp://*:29555");
  EXPECT_EQ(first.workers->value, 3);
  EXPECT_EQ(server(torchrun(1, 3), 2).role, TaskRole::kServer);
  EXPECT_EQ(server(torchrun(2, 3), 2).role, TaskRole::kNone);
  EXPECT_EQ(server(torchrun(1, 3)).role, TaskRole::kNone);
}

TEST(Placement, FlagsOverrideTheNumberOfWorkers) {
  EXPECT_EQ(place(torchrun(0, 3), {.server = true, .workers = 2}).workers->value, 2);
}

TEST(Placement, AServerListensOnLoopbackIfItsHostIsLoopback) {
  const Environment local = {{"MASTER_ADDR", "localhost"}, {"RANK", "0"}, {"WORLD_SIZE", "1"}};
  EXPECT_EQ(server(local).listen(), "tcp://127.0.0.1:5555");
  const Environment v6 = {{"MASTER_ADDR", "::1"}, {"RANK", "0"}, {"WORLD_SIZE", "1"}};
  EXPECT_EQ(server(v6).listen(), "tcp://[::1]:5555");
  const Environment far = {{"MASTER_ADDR", "fd00::1"}, {"RANK", "0"}, {"WORLD_SIZE", "1"}};
  EXPECT_EQ(server(far).listen(), "tcp://[::]:5555");
}

TEST(Placement, AServerListensOnIpv6IfItsNameHasNoOtherAddress) {
  Placement named = server({{"MASTER_ADDR", "node17"}, {"RANK", "0"}, {"WORLD_SIZE", "1"}});
  EXPECT_EQ(named.listen(), "tcp://*:5555");
  named.host_is_ipv6 = true;
  EXPECT_EQ(named.listen(), "tcp://[::]:5555");
}

TEST(Placement, TfConfigGivesServersAndWorkers) {
  const Placement first = server(tf_config("ps", 0));
  EXPECT_EQ(first.role, TaskRole::kFirstServer);
  EXPECT_EQ(first.servers.value, 2);
  EXPECT_EQ(first.workers->value, 3);
  EXPECT_EQ(server(tf_config("ps", 1)).role, TaskRole::kServer);
  EXPECT_EQ(place(tf_config("chief", 0)).rank->value, 0);
  EXPECT_EQ(place(tf_config("worker", 1)).rank->value, 2);
}

TEST(Placement, TheSchedulerOfPsLiteIsTheFirstServer) {
  const Environment base = {{"DMLC_NUM_WORKER", "2"},
                            {"DMLC_NUM_SERVER", "1"},
                            {"DMLC_PS_ROOT_URI", "10.0.0.1"},
                            {"DMLC_PS_ROOT_PORT", "8000"}};
  const Placement first = server(base + Environment{{"DMLC_ROLE", "scheduler"}});
  EXPECT_EQ(first.role, TaskRole::kFirstServer);
  EXPECT_EQ(first.servers.value, 2);
  EXPECT_EQ(first.workers->value, 2);
  EXPECT_EQ(server(base + Environment{{"DMLC_ROLE", "server"}}).role, TaskRole::kServer);
  EXPECT_THAT(refusal(base + Environment{{"DMLC_ROLE", "head"}}), HasSubstr("DMLC_ROLE=head"));
}

TEST(Placement, AnAddressByHandNeedsNoLauncher) {
  const LaunchFlags flags{.server = false, .join = "tcp://head:6000"};
  EXPECT_EQ(place(torchrun(1, 2), flags).address(), "tcp://head:6000");
  EXPECT_EQ(place({}, {.server = true, .join = "tcp://head:6000"}).role, TaskRole::kServer);
  EXPECT_EQ(server({{"PUSHPULL_JOIN", "tcp://head:6000"}}).role, TaskRole::kServer);
}

TEST(Placement, TheMissingHalfIsNamed) {
  EXPECT_THAT(refusal({{"RANK", "1"}, {"MASTER_ADDR", "x"}}),
              HasSubstr("torchrun: RANK is set, but WORLD_SIZE is missing"));
  EXPECT_THAT(refusal({{"WORLD_SIZE", "2"}}), HasSubstr("WORLD_SIZE is set, but RANK is missing"));
  EXPECT_THAT(refusal({{"MASTER_ADDR", "x"}}), HasSubstr("RANK and WORLD_SIZE are missing"));
  EXPECT_THAT(refusal({{"RANK", "0"}, {"WORLD_SIZE", "1"}}), HasSubstr("set MASTER_ADDR"));
  EXPECT_THAT(refusal({{"PUSHPULL_RANK", "0"}}), HasSubstr("PUSHPULL_WORLD_SIZE is missing"));
  EXPECT_THAT(refusal({{"PUSHPULL_RANK", "0"}, {"PUSHPULL_JOIN", "tcp://a:1"}}),
              HasSubstr("PUSHPULL_WORLD_SIZE is missing"));
  EXPECT_THAT(refusal({{"OMPI_COMM_WORLD_RANK", "0"}}),
              HasSubstr("OMPI_COMM_WORLD_SIZE is missing"));
  EXPECT_THAT(refusal(open_mpi(1, 4)), AllOf(HasSubstr("Open MPI rank 1 of 4"),
                                             HasSubstr("MASTER_ADDR"), HasSubstr("--join tcp://")));
  EXPECT_THAT(refusal({{"PMIX_RANK", "1"}}),
              HasSubstr("PMIX_RANK is set, but PMI_SIZE is missing"));
  EXPECT_THAT(refusal({{"PET_NODE_RANK", "1"}}), HasSubstr("PET_NNODES is missing"));
  EXPECT_THAT(refusal({{"JOB_COMPLETION_INDEX", "1"}}), HasSubstr("node17 has no subdomain"));
  EXPECT_THAT(refusal({{"DMLC_ROLE", "worker"}}), HasSubstr("DMLC_PS_ROOT_URI"));
}

TEST(Placement, NoLauncherIsAnErrorThatNamesTheFlag) {
  EXPECT_THAT(refusal({}), AllOf(HasSubstr("--join auto finds no launcher's variables"),
                                 HasSubstr("--join tcp://HOST:PORT")));
}

TEST(Placement, ABatchScriptIsNoTask) {
  const Environment batch = {{"SLURM_JOB_ID", "77"},
                             {"SLURM_PROCID", "0"},
                             {"SLURM_NTASKS", "4"},
                             {"SLURM_JOB_NODELIST", "n[0-1]"}};
  EXPECT_THAT(refusal(batch), HasSubstr("in no step: start it with srun"));
  EXPECT_THAT(refusal(batch + Environment{{"SLURM_STEP_ID", "4294967290"}}),
              AllOf(HasSubstr("Slurm: SLURM_STEP_ID=4294967290 is the batch script or the shell"),
                    HasSubstr("with srun"), Not(HasSubstr("missing"))));
}

TEST(Placement, ContradictionsNameBothSources) {
  EXPECT_THAT(refusal(torchrun(0, 4) + open_mpi(2, 4)),
              AllOf(HasSubstr("torchrun rank 0 of 4"), HasSubstr("Open MPI rank 2 of 4")));
  // torchrun itself deals out ranks in an order of its own
  EXPECT_EQ(refusal(torchrun(0, 4) + open_mpi(2, 4) + Environment{{"TORCHELASTIC_RUN_ID", "7"}}),
            "");
  EXPECT_THAT(refusal(open_mpi(2, 4) + Environment{{"WORLD_SIZE", "8"}, {"MASTER_ADDR", "x"}}),
              HasSubstr("WORLD_SIZE=8 contradicts OMPI_COMM_WORLD_SIZE=4"));
  EXPECT_THAT(refusal(torchrun(0, 4) + tf_config("worker", 0)),
              AllOf(HasSubstr("MASTER_ADDR 10.1.2.3"), HasSubstr("TF_CONFIG cluster.ps[0] a")));
  EXPECT_THAT(refusal(torchrun(4, 4)), HasSubstr("RANK=4 contradicts WORLD_SIZE=4"));
  EXPECT_THAT(refusal({{"PUSHPULL_JOIN", "tcp://a:1"}, {"PUSHPULL_PORT", "2"}}),
              HasSubstr("PUSHPULL_JOIN=tcp://a:1 contradicts PUSHPULL_PORT=2"));
}

TEST(Placement, BadValuesAreNamed) {
  EXPECT_THAT(refusal({{"RANK", "one"}}), HasSubstr("RANK=one: must be a whole number from 0"));
  EXPECT_THAT(refusal({{"RANK", "-1"}}), HasSubstr("RANK=-1"));
  EXPECT_THAT(refusal(torchrun(0, 1) + Environment{{"PUSHPULL_PORT", "70000"}}),
              HasSubstr("PUSHPULL_PORT=70000"));
  EXPECT_THAT(refusal({{"PUSHPULL_JOIN", "head"}}),
              AllOf(HasSubstr("PUSHPULL_JOIN"), HasSubstr("tcp://HOST:PORT")));
  EXPECT_THAT(refusal({{"MASTER_ADDR", "tcp://x"}}), HasSubstr("MASTER_ADDR=tcp://x"));
  EXPECT_THAT(
      refusal(
          {{"SLURM_JOB_ID", "7"}, {"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NODELIST", "n[0-[1-2]]"}}),
      AllOf(HasSubstr("SLURM_STEP_NODELIST"), HasSubstr("a bracket inside a bracket")));
}

TEST(Placement, TheRoleOfATaskMustFitItsProgram) {
  EXPECT_THAT(refusal(tf_config("ps", 0)),
              EndsWith("start pushpull-server here, not pushpull-worker"));
  EXPECT_THAT(refusal(tf_config("worker", 0), {.server = true}),
              EndsWith("start pushpull-worker here, not pushpull-server"));
  EXPECT_THAT(refusal(tf_config("evaluator", 0)), HasSubstr("pushpull eval"));
}

TEST(Placement, ADamagedTfConfigIsRefused) {
  const auto refused = [](const std::string& text) { return refusal({{"TF_CONFIG", text}}); };
  EXPECT_THAT(refused("{oops"), HasSubstr("TF_CONFIG is no JSON object: {oops"));
  EXPECT_THAT(refused("[]"), HasSubstr("TF_CONFIG is no JSON object"));
  EXPECT_THAT(refused(std::string(100'000, '[')), HasSubstr("TF_CONFIG is no JSON object"));
  EXPECT_THAT(refused("{}"), HasSubstr("\"cluster\""));
  EXPECT_THAT(refused(R"({"cluster": {}})"), HasSubstr("\"task\""));
  EXPECT_THAT(refused(R"({"cluster": {}, "task": {"index": 0}})"), HasSubstr("task.type"));
  EXPECT_THAT(refused(R"({"cluster": {}, "task": {"type": "ps"}})"), HasSubstr("task.index"));
  EXPECT_THAT(refused(R"({"cluster": {}, "task": {"type": "ps", "index": -1}})"),
              HasSubstr("task.index"));
  EXPECT_THAT(refused(R"({"cluster": {"ps": 1}, "task": {"type": "ps", "index": 0}})"),
              HasSubstr("cluster.ps must be a list"));
  EXPECT_THAT(refused(R"({"cluster": {"ps": ["a"]}, "task": {"type": "ps", "index": 0}})"),
              HasSubstr("HOST:PORT"));
  EXPECT_THAT(refused(R"({"cluster": {"ps": ["a:1"]}, "task": {"type": "ps", "index": 1}})"),
              HasSubstr("task.index 1 contradicts cluster.ps, which has 1 task"));
  for (const char* first : {"h 1:2222", "h1/x:2222", "http://h1:2222", "h1:2:3", ":2222", "h1:"}) {
    EXPECT_THAT(refused(R"({"cluster": {"ps": [")" + std::string(first) +
                        R"("]}, "task": {"type": "ps", "index": 0}})"),
                HasSubstr("TF_CONFIG: cluster.ps begins with " + std::string(first)));
  }
  EXPECT_THAT(refused(R"({"cluster": {"worker": ["a"]}, "task": {"type": "worker", "index": 0}})"),
              HasSubstr("TF_CONFIG: cluster.worker begins with a, not with HOST:PORT"));
  EXPECT_THAT(refused(R"({"cluster": {"ps": ["a:1"]}, "task": {"type": "x", "index": 0}})"),
              HasSubstr("task.type is x"));
}

TEST(Placement, ATfConfigWithoutPsHasItsServersBesideTheFirstTasks) {
  const auto task = [](const char* type, int index) {
    return Environment{
        {"TF_CONFIG",
         std::string(R"({"cluster": {"chief": ["c:5"], "worker": ["a:1", "b:2"]}, "task": )") +
             R"({"type": ")" + type + R"(", "index": )" + std::to_string(index) + "}}"}};
  };
  const auto server = [&](const char* type, int index, std::optional<int64_t> servers = {}) {
    return place_task({.server = true, .servers = servers}, read_claims(task(type, index), "h"));
  };
  const Placement first = server("chief", 0);
  EXPECT_EQ(first.role, TaskRole::kFirstServer);
  EXPECT_EQ(first.address(), "tcp://c:5");
  ASSERT_TRUE(first.workers);
  EXPECT_EQ(first.workers->value, 3) << "each task also has a worker";
  EXPECT_EQ(server("worker", 0).role, TaskRole::kNone);
  EXPECT_EQ(server("worker", 0, 2).role, TaskRole::kServer) << "--servers 2";
  const Placement worker = place_task({}, read_claims(task("worker", 1), "h"));
  EXPECT_EQ(worker.role, TaskRole::kWorker);
  EXPECT_EQ(worker.rank->value, 2);
  EXPECT_EQ(worker.address(), "tcp://c:5");
}

TEST(Placement, RanksOfAJobSetWithSeveralJobsAreUnknown) {
  const Environment pod = {{"JOB_COMPLETION_INDEX", "0"}};
  EXPECT_THROW(place_task({}, read_claims(pod, "s-node-1-0.s")), Error);
}

// Returns one of the texts.
template <size_t N>
std::string any_of(std::mt19937_64& random, const std::array<const char*, N>& texts) {
  return texts[random() % N];
}

TEST(Placement, AnyEnvironmentIsPlacedOrRefused) {
  constexpr std::array kVariables = {"RANK",
                                     "WORLD_SIZE",
                                     "LOCAL_RANK",
                                     "MASTER_ADDR",
                                     "MASTER_PORT",
                                     "PUSHPULL_JOIN",
                                     "PUSHPULL_RANK",
                                     "PUSHPULL_WORLD_SIZE",
                                     "PUSHPULL_PORT",
                                     "PET_NODE_RANK",
                                     "PET_NNODES",
                                     "OMPI_COMM_WORLD_RANK",
                                     "OMPI_COMM_WORLD_SIZE",
                                     "OMPI_COMM_WORLD_LOCAL_SIZE",
                                     "PMI_RANK",
                                     "PMI_SIZE",
                                     "PMIX_RANK",
                                     "PMIX_NAMESPACE",
                                     "SLURM_JOB_ID",
                                     "SLURM_STEP_ID",
                                     "SLURM_PROCID",
                                     "SLURM_NTASKS",
                                     "SLURM_STEP_NODELIST",
                                     "SLURM_JOB_NODELIST",
                                     "JOB_COMPLETION_INDEX",
                                     "TF_CONFIG",
                                     "DMLC_ROLE",
                                     "DMLC_PS_ROOT_URI",
                                     "DMLC_PS_ROOT_PORT"};
  constexpr std::array kValues = {"0",
                                  "1",
                                  "2",
                                  "2",
                                  "2",
                                  "29500",
                                  "a",
                                  "10.0.0.1",
                                  "fd00::1",
                                  "tcp://a:1",
                                  "tcp://a:*",
                                  "auto",
                                  "n[0-1]",
                                  "n[0-",
                                  "worker",
                                  "server",
                                  "scheduler",
                                  "-1",
                                  "99999999999999999999",
                                  "9223372036854775807",
                                  "\xff",
                                  "",
                                  "{}"};
  constexpr std::array kHosts = {"", "node17", "-", ".", "a-0.", "a-1.b", "b-c-0-1.b.d", "b-1-1.b"};
  const std::vector<Environment> kBases = {{}, torchrun(1, 2), open_mpi(0, 2), tf_config("ps", 1)};
  const std::string config = tf_config("worker", 0).at("TF_CONFIG");
  int64_t placed = 0;
  for (uint64_t seed = 0; seed < 10000; ++seed) {
    std::mt19937_64 random(seed);
    Environment environment = kBases[random() % kBases.size()];
    for (uint64_t i = random() % 7; i > 0; --i) {
      environment[any_of(random, kVariables)] = any_of(random, kValues);
    }
    if (random() % 8 == 0) {
      std::string damaged = config;
      damaged[random() % damaged.size()] = static_cast<char>(random() % 256);
      environment["TF_CONFIG"] = damaged;
    }
    try {
      const std::vector<Claim> claims = read_claims(environment, any_of(random, kHosts));
      const Placement found = place_task({.server = random() % 2 == 0}, claims);
      ++placed;
      ASSERT_NE(found.host.value, "") << "seed " << seed;
      ASSERT_NO_THROW(parse_address(found.address(), "join")) << "seed " << seed;
      ASSERT_NE(explain(found) + summary_line(found), "") << "seed " << seed;
    } catch (const Error& e) {
      ASSERT_EQ(e.code(), ErrorCode::kUsage) << "seed " << seed << ": " << e.what();
    }
  }
  EXPECT_GT(placed, 300);
}

TEST(Explain, NamesTheSourceOfEachValue) {
  EXPECT_EQ(explain(server(torchrun(0, 3), 2)),
            "launcher      torchrun\n"
            "role          first server (pushpull-server, rank 0)\n"
            "rank          0 of 3 (RANK, WORLD_SIZE)\n"
            "local rank    0 (LOCAL_RANK)\n"
            "first server  tcp://10.1.2.3:29555 (host: MASTER_ADDR; port: MASTER_PORT + 55)\n"
            "servers       2 (--servers)\n"
            "workers       3 (one for each task)\n");
  const Environment step = {{"SLURM_JOB_ID", "77"},
                            {"SLURM_STEP_ID", "0"},
                            {"SLURM_PROCID", "1"},
                            {"SLURM_NTASKS", "2"},
                            {"SLURM_STEP_NODELIST", "n[0-1]"}};
  EXPECT_THAT(explain(place(torchrun(3, 4) + step)),
              HasSubstr("not needed    Slurm rank 1 of 2\n"));
  EXPECT_THAT(
      explain(place(step)),
      HasSubstr("first server  tcp://n0:21232 (host: first node of SLURM_STEP_NODELIST; port: "
                "20000 + (16 SLURM_JOB_ID + SLURM_STEP_ID) modulo 10000)\n"));
  EXPECT_EQ(summary_line(place(step)),
            "--join auto: Slurm, rank 1 of 2, first server at tcp://n0:21232 (port: 20000 + (16 "
            "SLURM_JOB_ID + SLURM_STEP_ID) modulo 10000)");
}

TEST(Placement, ADerivedPortIsSearchedByTheNameOfTheJob) {
  const Environment step = {{"SLURM_JOB_ID", "77"},
                            {"SLURM_STEP_ID", "3"},
                            {"SLURM_PROCID", "0"},
                            {"SLURM_NTASKS", "2"},
                            {"SLURM_STEP_NODELIST", "n0"}};
  EXPECT_EQ(place(step).job_token, "Slurm step 77.3");
  EXPECT_EQ(place(step).ports, 16);
  EXPECT_EQ(place(step + Environment{{"PUSHPULL_PORT", "7000"}}).ports, 1) << "the user's port";
  const Environment mpi =
      open_mpi(0, 1) + Environment{{"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}, {"PMIX_NAMESPACE", "123"}};
  EXPECT_EQ(place(mpi).job_token, "Open MPI job 123");
  EXPECT_EQ(place(mpi).ports, 16);
  EXPECT_EQ(place(torchrun(0, 2)).ports, 1) << "nothing names the job";
  EXPECT_EQ(place(torchrun(0, 2) + Environment{{"TORCHELASTIC_RUN_ID", "none"}}).job_token, "");
  const Placement named = place(torchrun(0, 2) + Environment{{"TORCHELASTIC_RUN_ID", "a7"}});
  EXPECT_EQ(named.job_token, "torchrun run a7");
  EXPECT_EQ(named.ports, 16);
  EXPECT_EQ(place(tf_config("chief", 0)).ports, 1);
}

}  // namespace
}  // namespace pushpull
