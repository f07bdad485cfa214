#include "common/launch/launchers.h"

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/parse_json.h"
#include "common/base/text.h"
#include "common/launch/claim.h"
#include "common/launch/node_list.h"

namespace pushpull {

namespace {

constexpr int64_t kFirstStepOfSlurm = 4294967290;  // steps from here on are no tasks of srun

// Names of the variables of a rank and a size, for what is missing.
struct Pair {
  const char* rank;
  const char* size;
};

std::string missing_half(const Claim& claim, const Pair& names) {
  if (claim.rank && claim.size) return "";
  if (claim.rank) return claim.rank->from + " is set, but " + names.size + " is missing: set it";
  if (claim.size) return claim.size->from + " is set, but " + names.rank + " is missing: set it";
  return std::string(names.rank) + " and " + names.size + " are missing: set them";
}

std::string value_text(const Found<int64_t>& value) {
  return value.from + "=" + std::to_string(value.value);
}

void check_rank(const Claim& claim) {
  if (!claim.rank || !claim.size || claim.rank->value < claim.size->value) return;
  refuse_launch(value_text(*claim.rank) + " contradicts " + value_text(*claim.size) +
                ": ranks go from 0 to one less than the size");
}

std::optional<Found<int64_t>> port_beside(const Environment& environment, const char* variable) {
  const auto master = port_of(environment, {variable});
  if (!master) return std::nullopt;
  const bool fits = master->value + kMasterPortOffset <= 65535;
  return {{fits ? master->value + kMasterPortOffset : master->value - kMasterPortOffset,
           std::string(variable) + (fits ? " + " : " - ") + std::to_string(kMasterPortOffset)}};
}

// Returns a port for a job with this number. Ports of jobs with near numbers differ.
Found<int64_t> job_port(uint64_t number, const std::string& from) {
  const auto offset = static_cast<int64_t>(number % static_cast<uint64_t>(kJobPorts));
  return {kFirstJobPort + offset,
          std::to_string(kFirstJobPort) + " + " + from + " modulo " + std::to_string(kJobPorts)};
}

// Returns a number for a name, the name's own if it is one. Source: FNV-1a, 64 bits.
uint64_t number_of_name(const std::string& name) {
  if (const auto number = parse_uint64(name)) return *number;
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

std::optional<Found<std::string>> first_node(const Environment& environment,
                                             std::initializer_list<const char*> variables) {
  const auto list = text_of(environment, variables);
  if (!list) return std::nullopt;
  const std::string first = expand_node_list(list->value, list->from, 1).front();
  return {{checked_host(first, list->from), "first node of " + list->from}};
}

// Returns the only host if all tasks are on it.
std::optional<Found<std::string>> only_host(const std::optional<Found<int64_t>>& size,
                                            const std::optional<Found<int64_t>>& local_size) {
  if (!size || !local_size || size->value != local_size->value) return std::nullopt;
  return {{"127.0.0.1", "all tasks are on this host, by " + local_size->from}};
}

// Sets host and port of PUSHPULL_JOIN, unless that is `auto`.
void set_join(const Environment& environment, Claim& claim) {
  const auto join = text_of(environment, {"PUSHPULL_JOIN"});
  if (!join || join->value == "auto") return;
  const std::string shown = "PUSHPULL_JOIN=" + printable(join->value);
  const Address address =
      address_or_refuse(join->value, shown + ": expected tcp://HOST:PORT or auto");
  const auto port = parse_int64(address.port);
  if (!port || *port == 0) refuse_launch(shown + ": the port must be a number");
  if (claim.port && claim.port->value != *port) {
    refuse_launch(shown + " contradicts " + value_text(*claim.port) + "; unset one of them");
  }
  claim.host = {address.host, join->from};
  claim.port = {*port, join->from};
}

}  // namespace

std::optional<Claim> claim_of_users(const Environment& environment) {
  Claim claim{.source = "PUSHPULL_*"};
  claim.rank = number_of(environment, {"PUSHPULL_RANK"});
  claim.size = number_of(environment, {"PUSHPULL_WORLD_SIZE"});
  claim.local_rank = number_of(environment, {"PUSHPULL_LOCAL_RANK"});
  // Kubernetes sets PUSHPULL_PORT=tcp://IP:PORT beside a Service that is called pushpull
  const auto port = text_of(environment, {"PUSHPULL_PORT"});
  if (port && port->value.find("://") == std::string::npos) {
    claim.port = port_of(environment, {"PUSHPULL_PORT"});
  }
  check_rank(claim);
  set_join(environment, claim);
  if (!claim.rank && !claim.size && !claim.local_rank && !claim.port) return std::nullopt;
  claim.missing = missing_half(claim, {"PUSHPULL_RANK", "PUSHPULL_WORLD_SIZE"});
  return claim;
}

std::optional<Claim> claim_of_torchrun(const Environment& environment) {
  Claim claim{.source = "torchrun"};
  claim.rank = number_of(environment, {"RANK"});
  claim.size = number_of(environment, {"WORLD_SIZE"});
  claim.host = host_of(environment, {"MASTER_ADDR"});
  if (!claim.rank && !claim.size && !claim.host) return std::nullopt;
  claim.local_rank = number_of(environment, {"LOCAL_RANK"});
  claim.port = port_beside(environment, "MASTER_PORT");
  const auto run = text_of(environment, {"TORCHELASTIC_RUN_ID"});
  claim.own_ranks = run.has_value();
  if (run && run->value != "none") claim.job = "torchrun run " + run->value;
  claim.no_host = "set MASTER_ADDR";
  claim.missing = missing_half(claim, {"RANK", "WORLD_SIZE"});
  check_rank(claim);
  return claim;
}

std::optional<Claim> claim_of_kubeflow(const Environment& environment) {
  Claim claim{.source = "Kubeflow Trainer"};
  claim.rank = number_of(environment, {"PET_NODE_RANK"});
  if (!claim.rank) return std::nullopt;
  claim.size = number_of(environment, {"PET_NNODES"});
  claim.host = host_of(environment, {"PET_MASTER_ADDR"});
  claim.port = port_beside(environment, "PET_MASTER_PORT");
  claim.no_host = "set PET_MASTER_ADDR";
  claim.missing = missing_half(claim, {"PET_NODE_RANK", "PET_NNODES"});
  check_rank(claim);
  return claim;
}

std::optional<Claim> claim_of_open_mpi(const Environment& environment) {
  Claim claim{.source = "Open MPI"};
  claim.rank = number_of(environment, {"OMPI_COMM_WORLD_RANK"});
  claim.size = number_of(environment, {"OMPI_COMM_WORLD_SIZE"});
  if (!claim.rank && !claim.size) return std::nullopt;
  claim.local_rank = number_of(environment, {"OMPI_COMM_WORLD_LOCAL_RANK"});
  claim.host = only_host(claim.size, number_of(environment, {"OMPI_COMM_WORLD_LOCAL_SIZE"}));
  // Not SLURM_STEP_NODELIST: the steps of mpirun's daemons lack the node of mpirun.
  if (!claim.host) claim.host = first_node(environment, {"SLURM_JOB_NODELIST", "SLURM_NODELIST"});
  // Not the number of the Slurm job, in which several mpirun may run.
  const auto name = text_of(environment, {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"});
  if (name) {
    claim.port = job_port(number_of_name(name->value), name->from);
    claim.job = "Open MPI job " + name->value;
  }
  claim.no_host = "mpirun names none: set MASTER_ADDR to rank 0's host (mpirun -x MASTER_ADDR)";
  claim.missing = missing_half(claim, {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"});
  check_rank(claim);
  return claim;
}

std::optional<Claim> claim_of_pmi(const Environment& environment) {
  Claim claim{.source = "PMI"};
  claim.rank = number_of(environment, {"PMI_RANK"});
  claim.size = number_of(environment, {"PMI_SIZE"});
  claim.local_rank = number_of(environment, {"MPI_LOCALRANKID"});
  const bool of_open_mpi = text_of(environment, {"OMPI_COMM_WORLD_RANK"}).has_value();
  if (!claim.rank && !of_open_mpi) claim.rank = number_of(environment, {"PMIX_RANK"});
  if (!claim.rank && !claim.size) return std::nullopt;
  claim.host = only_host(claim.size, number_of(environment, {"MPI_LOCALNRANKS"}));
  claim.no_host = "mpiexec names none: set MASTER_ADDR to rank 0's host";
  claim.missing = missing_half(claim, {"PMI_RANK", "PMI_SIZE"});
  check_rank(claim);
  return claim;
}

std::optional<Claim> claim_of_slurm(const Environment& environment) {
  const auto job = number_of(environment, {"SLURM_JOB_ID", "SLURM_JOBID"});
  const auto step = number_of(environment, {"SLURM_STEP_ID", "SLURM_STEPID"});
  if (!job && !step) return std::nullopt;
  Claim claim{.source = "Slurm"};
  if (!step) {
    claim.missing = "SLURM_STEP_ID is missing, so this process is in no step: start it with srun";
    return claim;
  }
  if (step->value >= kFirstStepOfSlurm) {
    claim.missing =
        value_text(*step) +
        " is the batch script or the shell of the allocation, which has no ranks: start "
        "this process with srun";
    return claim;
  }
  claim.rank = number_of(environment, {"SLURM_PROCID"});
  claim.size = number_of(environment, {"SLURM_NTASKS", "SLURM_STEP_NUM_TASKS", "SLURM_NPROCS"});
  claim.local_rank = number_of(environment, {"SLURM_LOCALID"});
  claim.host =
      first_node(environment, {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"});
  if (job) {
    claim.port =
        job_port(static_cast<uint64_t>(job->value) * 16 + static_cast<uint64_t>(step->value),
                 "(16 " + job->from + " + " + step->from + ")");
    claim.job = "Slurm step " + std::to_string(job->value) + "." + std::to_string(step->value);
  }
  claim.own_ranks = true;
  claim.no_host = "SLURM_STEP_NODELIST is missing";
  claim.missing = missing_half(claim, {"SLURM_PROCID", "SLURM_NTASKS"});
  check_rank(claim);
  return claim;
}

namespace {

constexpr const char* kIndex = "JOB_COMPLETION_INDEX";

// The parts of "NAME-INDEX".
struct Indexed {
  std::string name;
  std::string index;  // "": the text does not end so
};

Indexed split_index(const std::string& text) {
  const size_t dash = text.rfind('-');
  if (dash == std::string::npos || dash == 0) return {text, ""};
  const std::string index = text.substr(dash + 1);
  if (index.empty() || index.find_first_not_of("0123456789") != std::string::npos)
    return {text, ""};
  return {text.substr(0, dash), index};
}

// A pod of a JobSet is SET-JOB-JOBINDEX-PODINDEX.SET. Returns false if `pod` is not one of `set`.
// Sets the first server's host, and the role if the replicated job is called "server" or "worker".
bool read_jobset(Claim& claim, const std::string& pod, const std::string& set,
                 const std::string& domain) {
  const Indexed without_pod = split_index(pod);
  const Indexed without_job = split_index(without_pod.name);
  if (without_job.index.empty() || !without_job.name.starts_with(set + "-")) return false;
  const std::string replicated = without_job.name.substr(set.size() + 1);
  if (without_job.index != "0") {
    claim.missing = "replicated job " + printable(replicated) +
                    " of the JobSet has several Jobs, so " + kIndex +
                    " is no rank: set PUSHPULL_RANK and PUSHPULL_WORLD_SIZE";
    claim.rank.reset();
  }
  const bool of_workers = replicated == "worker";
  if (of_workers) claim.role = {TaskRole::kWorker, "replicated job worker"};
  const std::string first = of_workers ? "server" : replicated;
  claim.host = {checked_host(set + "-" + first + "-0-0" + domain, "host name"),
                "first pod of the JobSet's replicated job " + first};
  return true;
}

}  // namespace

std::optional<Claim> claim_of_kubernetes(const Environment& environment,
                                         const std::string& host_name) {
  Claim claim{.source = "Kubernetes"};
  claim.rank = number_of(environment, {kIndex});
  if (!claim.rank) return std::nullopt;
  claim.no_host = "host name " + printable(host_name) +
                  " has no subdomain: set MASTER_ADDR, or give the Job's pods a subdomain and a "
                  "headless service";
  const size_t dot = host_name.find('.');
  if (dot == std::string::npos) return claim;
  const std::string pod = host_name.substr(0, dot);
  const std::string domain = host_name.substr(dot);  // with the dot
  const std::string set = domain.substr(1, domain.find('.', 1) - 1);
  if (read_jobset(claim, pod, set, domain)) return claim;
  const Indexed parts = split_index(pod);
  if (parts.index != std::to_string(claim.rank->value)) {
    claim.no_host = "host name " + printable(host_name) + " does not end with " + kIndex + "=" +
                    std::to_string(claim.rank->value) + ": set MASTER_ADDR";
    return claim;
  }
  claim.host = {checked_host(parts.name + "-0" + domain, "host name"), "first pod of the Job"};
  return claim;
}

namespace {

using Json = nlohmann::json;

// The hosts of one task type in TF_CONFIG's cluster.
std::vector<std::string> hosts_of(const Json& cluster, const std::string& type) {
  const auto found = cluster.find(type);
  if (found == cluster.end()) return {};
  std::vector<std::string> hosts;
  const auto refuse = [&type] {
    refuse_launch("TF_CONFIG: cluster." + type + " must be a list of \"HOST:PORT\"");
  };
  if (!found->is_array()) refuse();
  for (const Json& host : *found) {
    if (!host.is_string()) refuse();
    hosts.push_back(host.get<std::string>());
  }
  return hosts;
}

const Json& part_of(const Json& whole, const char* name) {
  const auto found = whole.find(name);
  if (found != whole.end() && found->is_object()) return *found;
  refuse_launch(std::string("TF_CONFIG has no \"") + name +
                "\"; it needs \"cluster\" and \"task\"");
}

struct TfTask {
  std::string type;
  int64_t index = 0;
};

TfTask task_of(const Json& config) {
  const Json& task = part_of(config, "task");
  const auto type = task.find("type");
  const auto index = task.find("index");
  if (type == task.end() || !type->is_string()) refuse_launch("TF_CONFIG: task.type is missing");
  if (index == task.end()) refuse_launch("TF_CONFIG: task.index is missing");
  // some launchers write the index as text
  const auto number = index->is_number_integer() ? std::optional(index->get<int64_t>())
                      : index->is_string()       ? parse_int64(index->get<std::string>())
                                                 : std::nullopt;
  if (!number || *number < 0) {
    refuse_launch("TF_CONFIG: task.index must be a whole number from 0");
  }
  return {type->get<std::string>(), *number};
}

//   type: of the tasks whose first one has the first server.
void set_address(Claim& claim, const std::string& type, const std::string& text) {
  const std::string why =
      "TF_CONFIG: cluster." + type + " begins with " + printable(text) + ", not with HOST:PORT";
  constexpr std::string_view kScheme = "grpc://";  // of TensorFlow's own addresses
  const std::string bare = text.starts_with(kScheme) ? text.substr(kScheme.size()) : text;
  const Address address = address_or_refuse("tcp://" + bare, why);
  const auto port = parse_int64(address.port);
  if (!port || *port == 0) refuse_launch(why);
  const std::string from = "TF_CONFIG cluster." + type + "[0]";
  claim.host = {address.host, from};
  claim.port = {*port, from};
}

Claim claim_of_cluster(const Json& config) {
  const Json& cluster = part_of(config, "cluster");
  const TfTask task = task_of(config);
  const std::vector<std::string> servers = hosts_of(cluster, "ps");
  const std::vector<std::string> workers = hosts_of(cluster, "worker");
  const std::string chief = hosts_of(cluster, "chief").empty() ? "master" : "chief";
  const std::vector<std::string> chiefs = hosts_of(cluster, chief);
  const auto tasks = static_cast<int64_t>(chiefs.size() + workers.size());
  const std::string from = "TF_CONFIG";
  Claim claim{.source = from};
  if (task.type == "evaluator") {
    refuse_launch(
        "TF_CONFIG makes this task an evaluator, which a job of pushpull does not have: its "
        "workers evaluate; start `pushpull eval --follow --checkpoint OUT/checkpoints` in it, "
        "which "
        "evaluates each new checkpoint");
  }
  const auto place = [&](TaskRole role, int64_t rank, size_t count) {
    if (task.index >= static_cast<int64_t>(count)) {
      refuse_launch("TF_CONFIG: task.index " + std::to_string(task.index) +
                    " contradicts cluster." + printable(task.type) + ", which has " +
                    plural(static_cast<int64_t>(count), "task"));
    }
    claim.role = {role, from};
    claim.rank = {rank, from};
  };
  const bool is_chief = task.type == "chief" || task.type == "master";
  if (task.type == "ps") {
    place(task.index == 0 ? TaskRole::kFirstServer : TaskRole::kServer, task.index, servers.size());
  } else if (is_chief) {
    place(TaskRole::kWorker, task.index, chiefs.size());
  } else if (task.type == "worker") {
    place(TaskRole::kWorker, static_cast<int64_t>(chiefs.size()) + task.index, workers.size());
  } else {
    refuse_launch("TF_CONFIG: task.type is " + printable(task.type) +
                  ", not ps, chief, worker or evaluator");
  }
  if (servers.empty()) {
    // MultiWorkerMirroredStrategy: ranks alone, as under torchrun. The server of rank 0 is the first one.
    claim.role.reset();
    claim.size = {tasks, from};
    set_address(claim, chiefs.empty() ? "worker" : chief,
                (chiefs.empty() ? workers : chiefs).front());
    return claim;
  }
  claim.servers = {static_cast<int64_t>(servers.size()), from};
  claim.workers = {tasks, from};
  claim.size = task.type == "ps" ? claim.servers : claim.workers;
  set_address(claim, "ps", servers.front());
  return claim;
}

}  // namespace

std::optional<Claim> claim_of_tf_config(const Environment& environment) {
  const auto text = text_of(environment, {"TF_CONFIG"});
  if (!text) return std::nullopt;
  const Json config = parse_json<Json>(text->value);
  if (config.is_discarded() || !config.is_object()) {
    refuse_launch("TF_CONFIG is no JSON object: " + printable(text->value));
  }
  return claim_of_cluster(config);
}

std::optional<Claim> claim_of_ps_lite(const Environment& environment) {
  const auto role = text_of(environment, {"DMLC_ROLE"});
  if (!role) return std::nullopt;
  Claim claim{.source = "ps-lite"};
  if (role->value == "scheduler") {
    claim.role = {TaskRole::kFirstServer, role->from};
  } else if (role->value == "server") {
    claim.role = {TaskRole::kServer, role->from};
  } else if (role->value == "worker") {
    claim.role = {TaskRole::kWorker, role->from};
  } else {
    refuse_launch("DMLC_ROLE=" + printable(role->value) + ": must be scheduler, server or worker");
  }
  claim.workers = number_of(environment, {"DMLC_NUM_WORKER"});
  claim.servers = number_of(environment, {"DMLC_NUM_SERVER"});
  if (claim.servers) {  // the scheduler is a server here
    claim.servers = {claim.servers->value + 1, claim.servers->from + " + 1, the scheduler"};
  }
  claim.host = host_of(environment, {"DMLC_PS_ROOT_URI"});
  claim.port = port_of(environment, {"DMLC_PS_ROOT_PORT"});
  claim.no_host = "set DMLC_PS_ROOT_URI";
  return claim;
}

}  // namespace pushpull
