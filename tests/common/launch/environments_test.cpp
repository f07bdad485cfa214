// Tests that --join auto understands the variables of each launcher. The environments are those that the
// launchers set, as seen in real runs or in their sources.
#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <vector>

#include "common/launch/placement.h"

namespace pushpull {
namespace {

struct Row {
  std::string name;
  Environment environment;
  std::string launcher;
  int64_t rank;        // -1: none
  int64_t size;        // -1: none
  int64_t local_rank;  // -1: none
  std::string address;
  std::string host_name = "node17";
};

std::ostream& operator<<(std::ostream& out, const Row& row) { return out << row.name; }

int64_t number(const std::optional<Found<int64_t>>& found) { return found ? found->value : -1; }

const std::vector<Row>& rows() {
  // srun -N2 -n4 of Slurm 22.05, task 2
  static const Environment kSlurm = {{"SLURM_JOB_ID", "77"},
                                     {"SLURM_STEP_ID", "0"},
                                     {"SLURM_PROCID", "2"},
                                     {"SLURM_LOCALID", "0"},
                                     {"SLURM_NODEID", "1"},
                                     {"SLURM_NTASKS", "4"},
                                     {"SLURM_NPROCS", "4"},
                                     {"SLURM_NNODES", "2"},
                                     {"SLURM_JOB_NODELIST", "n[0-1]"},
                                     {"SLURM_NODELIST", "n[0-1]"},
                                     {"SLURM_STEP_NODELIST", "n[0-1]"},
                                     {"SLURM_STEP_NUM_TASKS", "4"},
                                     {"SLURM_TASKS_PER_NODE", "2(x2)"},
                                     {"SLURMD_NODENAME", "n1"},
                                     {"SLURM_LAUNCH_NODE_IPADDR", "10.9.9.9"}};
  // Open MPI 4.1, mpirun -np 4 over two hosts, rank 2
  static const Environment kOpenMpi = {
      {"OMPI_COMM_WORLD_RANK", "2"},
      {"OMPI_COMM_WORLD_SIZE", "4"},
      {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
      {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
      {"OMPI_COMM_WORLD_NODE_RANK", "0"},
      {"OMPI_UNIVERSE_SIZE", "4"},
      {"PMIX_RANK", "2"},
      {"PMIX_NAMESPACE", "2713780225"},
      {"OMPI_MCA_orte_hnp_uri", "2713780224.0;tcp://192.0.2.2:41235"}};
  // torchrun of PyTorch 2, node 1 of 2
  static const Environment kTorchrun = {{"RANK", "3"},
                                        {"WORLD_SIZE", "4"},
                                        {"LOCAL_RANK", "1"},
                                        {"LOCAL_WORLD_SIZE", "2"},
                                        {"GROUP_RANK", "1"},
                                        {"ROLE_RANK", "3"},
                                        {"MASTER_ADDR", "10.1.2.3"},
                                        {"MASTER_PORT", "29500"},
                                        {"TORCHELASTIC_RESTART_COUNT", "0"},
                                        {"TORCHELASTIC_RUN_ID", "none"},
                                        {"OMP_NUM_THREADS", "1"}};
  static const std::string kCluster =
      R"("cluster": {"ps": ["10.0.0.1:2222", "10.0.0.2:2222"], "chief": ["10.0.0.3:2222"],)"
      R"( "worker": ["10.0.0.4:2222"]})";
  const auto with = [](Environment base, const Environment& more) {
    for (const auto& [variable, value] : more) base[variable] = value;
    return base;
  };
  static const std::vector<Row> kRows = {
      {"torchrun", kTorchrun, "torchrun", 3, 4, 1, "tcp://10.1.2.3:29555"},
      {"torchrun with a high port", with(kTorchrun, {{"MASTER_PORT", "65500"}}), "torchrun", 3, 4,
       1, "tcp://10.1.2.3:65445"},
      {"a script that sets torchrun's variables",
       {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "fd00::7"}},
       "torchrun",
       0,
       2,
       -1,
       "tcp://[fd00::7]:5555"},
      {"torchrun, one agent for each Slurm task", with(kSlurm, kTorchrun), "torchrun", 3, 4, 1,
       "tcp://10.1.2.3:29555"},
      {"torchrun under mpirun", with(kOpenMpi, kTorchrun), "torchrun", 3, 4, 1,
       "tcp://10.1.2.3:29555"},
      {"Kubeflow Trainer v2 without torchrun",
       {{"PET_NNODES", "3"},
        {"PET_NPROC_PER_NODE", "1"},
        {"PET_NODE_RANK", "2"},
        {"PET_MASTER_ADDR", "train-node-0-0.train"},
        {"PET_MASTER_PORT", "29400"},
        {"JOB_COMPLETION_INDEX", "2"}},
       "Kubeflow Trainer",
       2,
       3,
       -1,
       "tcp://train-node-0-0.train:29455",
       "train-node-0-2.train"},
      {"torchrun in a pod of Kubeflow Trainer",
       with(kTorchrun, {{"PET_NNODES", "2"},
                        {"PET_NODE_RANK", "1"},
                        {"PET_MASTER_ADDR", "train-node-0-0.train"},
                        {"PET_MASTER_PORT", "29400"}}),
       "torchrun", 3, 4, 1, "tcp://10.1.2.3:29555"},
      {"mpirun on one host", with(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}}), "Open MPI", 2,
       4, 0, "tcp://127.0.0.1:20225"},
      {"mpirun -x MASTER_ADDR", with(kOpenMpi, {{"MASTER_ADDR", "head"}}), "Open MPI", 2, 4, 0,
       "tcp://head:20225"},
      {"mpirun of Open MPI 5", with(kOpenMpi, {{"MASTER_ADDR", "head"}, {"MASTER_PORT", "6000"}}),
       "Open MPI", 2, 4, 0, "tcp://head:6055"},
      // the daemons are Slurm's tasks: PROCID and NTASKS are theirs, the step may lack node n0
      {"mpirun inside Slurm",
       with(with(kSlurm, kOpenMpi),
            {{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "2"}, {"SLURM_STEP_NODELIST", "n1"}}),
       "Open MPI", 2, 4, 0, "tcp://n0:20225"},
      {"mpirun inside Slurm, on the node of the batch script",
       with(kOpenMpi, {{"SLURM_JOB_ID", "77"},
                       {"SLURM_PROCID", "0"},
                       {"SLURM_NTASKS", "4"},
                       {"SLURM_JOB_NODELIST", "n[0-1]"}}),
       "Open MPI", 2, 4, 0, "tcp://n0:20225"},
      {"MPICH on one host",
       {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}},
       "PMI",
       1,
       2,
       1,
       "tcp://127.0.0.1:5555"},
      {"MPICH on several hosts",
       {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MASTER_ADDR", "head"}, {"MASTER_PORT", "7000"}},
       "PMI",
       1,
       2,
       -1,
       "tcp://head:7055"},
      {"srun --mpi=pmi2", with(kSlurm, {{"PMI_RANK", "2"}, {"PMI_SIZE", "4"}}), "PMI", 2, 4, -1,
       "tcp://n0:21232"},
      {"srun --mpi=pmix", with(kSlurm, {{"PMIX_RANK", "2"}, {"PMIX_NAMESPACE", "slurm.pmix.77.0"}}),
       "Slurm", 2, 4, 0, "tcp://n0:21232"},
      {"srun", kSlurm, "Slurm", 2, 4, 0, "tcp://n0:21232"},
      {"the second step of srun", with(kSlurm, {{"SLURM_STEP_ID", "1"}}), "Slurm", 2, 4, 0,
       "tcp://n0:21233"},
      {"srun with a list of padded names",
       {{"SLURM_JOB_ID", "77"},
        {"SLURM_STEP_ID", "0"},
        {"SLURM_STEP_NODELIST", "gpu[003-005,7]"},
        {"SLURM_PROCID", "2"},
        {"SLURM_NTASKS", "8"},
        {"SLURM_LOCALID", "0"}},
       "Slurm",
       2,
       8,
       0,
       "tcp://gpu003:21232"},
      {"srun in a script that exports WORLD_SIZE and MASTER_ADDR",
       with(kSlurm, {{"WORLD_SIZE", "4"}, {"MASTER_ADDR", "n0-ib"}, {"MASTER_PORT", "12345"}}),
       "Slurm", 2, 4, 0, "tcp://n0-ib:12400"},
      {"a pod of an indexed Job",
       {{"JOB_COMPLETION_INDEX", "3"}},
       "Kubernetes",
       3,
       -1,
       -1,
       "tcp://mnist-0.mnist-pods.ml.svc.cluster.local:5555",
       "mnist-3.mnist-pods.ml.svc.cluster.local"},
      {"a pod of an indexed Job with its size",
       {{"JOB_COMPLETION_INDEX", "3"}, {"PUSHPULL_WORLD_SIZE", "4"}, {"PUSHPULL_PORT", "7777"}},
       "Kubernetes",
       3,
       4,
       -1,
       "tcp://mnist-0.pods:7777",
       "mnist-3.pods"},
      {"a pod of an indexed Job without subdomain",
       {{"JOB_COMPLETION_INDEX", "1"}, {"MASTER_ADDR", "10.4.0.9"}},
       "Kubernetes",
       1,
       -1,
       -1,
       "tcp://10.4.0.9:5555",
       "mnist-1"},
      {"a worker of a JobSet",
       {{"JOB_COMPLETION_INDEX", "2"}},
       "Kubernetes",
       2,
       -1,
       -1,
       "tcp://pushpull-server-0-0.pushpull.ml.svc.cluster.local:5555",
       "pushpull-worker-0-2.pushpull.ml.svc.cluster.local"},
      {"a JobSet of one replicated job",
       {{"JOB_COMPLETION_INDEX", "2"}},
       "Kubernetes",
       2,
       -1,
       -1,
       "tcp://my-set-node-0-0.my-set:5555",
       "my-set-node-0-2.my-set"},
      {"TF_CONFIG, chief",
       {{"TF_CONFIG", "{" + kCluster + R"(, "task": {"type": "chief", "index": 0}})"}},
       "TF_CONFIG",
       0,
       2,
       -1,
       "tcp://10.0.0.1:2222"},
      {"TF_CONFIG, worker after the chief",
       {{"TF_CONFIG", "{" + kCluster + R"(, "task": {"type": "worker", "index": 0}})"}},
       "TF_CONFIG",
       1,
       2,
       -1,
       "tcp://10.0.0.1:2222"},
      {"TF_CONFIG without a chief, index as text",
       {{"TF_CONFIG", R"({"cluster": {"ps": ["[fd00::1]:1"], "worker": ["a:1", "b:1"]},)"
                      R"( "task": {"type": "worker", "index": "1"}})"}},
       "TF_CONFIG",
       1,
       2,
       -1,
       "tcp://[fd00::1]:1"},
      {"TF_CONFIG with addresses of gRPC",
       {{"TF_CONFIG", R"({"cluster": {"ps": ["grpc://h1:2222"], "worker": ["grpc://h2:2222"]},)"
                      R"( "task": {"type": "worker", "index": 0}})"}},
       "TF_CONFIG",
       0,
       1,
       -1,
       "tcp://h1:2222"},
      {"TF_CONFIG without ps, worker after the chief",
       {{"TF_CONFIG", R"({"cluster": {"chief": ["h1:2222"], "worker": ["h2:2222"]},)"
                      R"( "task": {"type": "worker", "index": 0}})"}},
       "TF_CONFIG",
       1,
       2,
       -1,
       "tcp://h1:2222"},
      {"TF_CONFIG of workers alone",
       {{"TF_CONFIG", R"({"cluster": {"worker": ["h1:2222", "h2:2222", "h3:2222"]},)"
                      R"( "task": {"type": "worker", "index": 2}})"}},
       "TF_CONFIG",
       2,
       3,
       -1,
       "tcp://h1:2222"},
      {"ps-lite",
       {{"DMLC_ROLE", "worker"},
        {"DMLC_NUM_WORKER", "2"},
        {"DMLC_NUM_SERVER", "1"},
        {"DMLC_PS_ROOT_URI", "10.0.0.1"},
        {"DMLC_PS_ROOT_PORT", "8000"}},
       "ps-lite",
       -1,
       -1,
       -1,
       "tcp://10.0.0.1:8000"},
      {"PUSHPULL_JOIN alone",
       {{"PUSHPULL_JOIN", "tcp://head:6000"}},
       "PUSHPULL_*",
       -1,
       -1,
       -1,
       "tcp://head:6000"},
      {"all PUSHPULL_* variables",
       {{"PUSHPULL_JOIN", "tcp://head:6000"},
        {"PUSHPULL_RANK", "1"},
        {"PUSHPULL_WORLD_SIZE", "2"},
        {"PUSHPULL_LOCAL_RANK", "0"}},
       "PUSHPULL_*",
       1,
       2,
       0,
       "tcp://head:6000"},
      {"PUSHPULL_JOIN over torchrun's address",
       with(kTorchrun, {{"PUSHPULL_JOIN", "tcp://head:6000"}}), "torchrun", 3, 4, 1,
       "tcp://head:6000"},
      {"PUSHPULL_JOIN=auto and PUSHPULL_PORT",
       with(kTorchrun, {{"PUSHPULL_JOIN", "auto"}, {"PUSHPULL_PORT", "6001"}}), "torchrun", 3, 4, 1,
       "tcp://10.1.2.3:6001"},
      {"PUSHPULL_PORT of a Service of Kubernetes",
       with(kTorchrun, {{"PUSHPULL_PORT", "tcp://10.96.0.7:5555"}}), "torchrun", 3, 4, 1,
       "tcp://10.1.2.3:29555"},
      {"PUSHPULL_RANK over torchrun's",
       with(kTorchrun, {{"PUSHPULL_RANK", "0"}, {"PUSHPULL_WORLD_SIZE", "2"}}), "PUSHPULL_*", 0, 2,
       -1, "tcp://10.1.2.3:29555"},
      {"empty variables are absent", with(kSlurm, {{"RANK", ""}, {"TF_CONFIG", ""}}), "Slurm", 2, 4,
       0, "tcp://n0:21232"},
  };
  return kRows;
}

class Environments : public ::testing::TestWithParam<Row> {};

TEST_P(Environments, PlaceAWorker) {
  const Row& row = GetParam();
  const Placement found = place_task({}, read_claims(row.environment, row.host_name));
  EXPECT_EQ(found.role, TaskRole::kWorker);
  EXPECT_EQ(found.launcher, row.launcher);
  EXPECT_EQ(number(found.rank), row.rank);
  EXPECT_EQ(number(found.size), row.size);
  EXPECT_EQ(number(found.local_rank), row.local_rank);
  EXPECT_EQ(found.address(), row.address);
}

INSTANTIATE_TEST_SUITE_P(All, Environments, ::testing::ValuesIn(rows()));

}  // namespace
}  // namespace pushpull
