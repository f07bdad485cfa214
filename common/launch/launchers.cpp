#include "common/launch/launchers.h"

#include <initializer_list>
#include <string>

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
  claim.port = port_of(environment, {"PUSHPULL_PORT"});
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
  if (!step || step->value >= kFirstStepOfSlurm) {
    claim.missing = "SLURM_STEP_ID is missing, so this process is in no step: start it with srun";
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

}  // namespace pushpull
