// Checks of a host before any job.
#include <algorithm>
#include <array>
#include <map>

#include "cli/doctor/checks.h"
#include "common/base/process.h"
#include "common/base/text.h"
#include "common/host/kernel_files.h"
#include "common/launch/local_place.h"
#include "common/launch/placement.h"

namespace pushpull {

TaskFinding check_launcher(const Environment& environment, const std::string& host_name) {
  TaskFinding task;
  try {
    const std::vector<Claim> claims = read_claims(environment, host_name);
    if (claims.empty()) {
      task.finding = fine("launcher", "none: no variable of srun, mpirun, torchrun or Kubernetes");
      return task;
    }
    const auto complete = std::ranges::find_if(claims, [](const Claim& claim) {
      return claim.missing.empty() && claim.rank && claim.size;
    });
    if (complete != claims.end()) {
      task.tasks = complete->size->value;
      task.rank = complete->rank->value;
    }
    if (const auto local = local_place(environment)) task.local_rank = local->rank.value;
    task.finding = fine("launcher", summary_line(place_task({}, claims)));
  } catch (const Error& e) {
    task.finding = warning("launcher", e.what());
  }
  return task;
}

TaskFinding check_launcher_here() {
  return check_launcher(environment_of_this_process(), host_name());
}

namespace {

constexpr int64_t kLittleMemory = int64_t{1} << 30;
constexpr int64_t kFewProcesses = 256;  // a worker has about ten threads, a server more
constexpr int64_t kFilesOfAnyProcess = 64;
constexpr int64_t kFilesOfEachWorker = 16;  // at a server: connections and shared memory
constexpr int64_t kFewWorkers = 16;
constexpr std::array<size_t, 7> kWidths = {20, 13, 6, 13, 11, 9, 0};

std::string limit_text(int64_t value) {
  return value == INT64_MAX ? "unlimited" : std::to_string(value);
}

// Returns "4 x NVIDIA A100, 1 x NVIDIA H100".
std::string names_text(const std::vector<std::string>& names) {
  std::map<std::string, int> counts;
  for (const std::string& name : names) ++counts[name];
  std::string out;
  for (const auto& [name, count] : counts) {
    out += (out.empty() ? "" : ", ") + std::to_string(count) + " x " + name;
  }
  return out;
}

std::string cuda_text(int version) {
  return "CUDA " + std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

std::string table_row(const std::array<std::string, kWidths.size()>& cells) {
  std::string out;
  for (size_t i = 0; i < cells.size(); ++i) {
    out += cells[i];
    if (cells[i].size() < kWidths[i]) out += std::string(kWidths[i] - cells[i].size(), ' ');
    if (i + 1 < cells.size()) out += ' ';
  }
  return out + "\n";
}

}  // namespace

Finding check_cores(const HostFacts& facts) {
  const Cores& cores = facts.cores;
  const auto cpus = static_cast<int64_t>(cores.cpus.size());
  std::string text = plural(cpus, "CPU") + " (" + cpu_list_text(cores.cpus) + ")";
  if (cores.is_bound()) {
    text += " of " + cpu_list_text(cores.allowed) + ", by the launcher or taskset";
  }
  if (facts.numa_nodes > 1) {
    text += ", on " + plural(facts.numa_nodes, "NUMA node") + " (--bind numa)";
  }
  if (!cores.quota || *cores.quota >= static_cast<double>(cpus)) {
    return fine("cores", text + (cores.quota ? "" : ", no CPU quota"));
  }
  return warning("cores", text + ", but " + facts.groups.cpus_file + " allows the time of " +
                              print_real(*cores.quota) +
                              ": threads beyond that are stopped again and again; start at most " +
                              plural(cores.count(), "compute thread") +
                              " (workers x threads), or raise the quota (docker "
                              "--cpus, Kubernetes limits.cpu)");
}

Finding check_memory(const HostFacts& facts) {
  std::string text = with_unit(facts.available_bytes) + " of " + with_unit(facts.memory_bytes) +
                     " available on this host";
  if (facts.groups.memory) {
    const GroupLimit& limit = *facts.groups.memory;
    text += "; " + limit.file + " allows " + with_unit(limit.most) + ", " + with_unit(limit.used) +
            " used";
  } else {
    text += ", no limit of a control group";
  }
  if (free_memory(facts) >= kLittleMemory) return fine("memory", text);
  return warning("memory", text +
                               ": a process that exceeds this is killed (code 137); `pushpull "
                               "models --job FILE` says how much a worker needs; ask for more "
                               "(Slurm --mem, docker --memory, Kubernetes limits.memory)");
}

Finding check_processes(const HostFacts& facts) {
  const auto& group = facts.groups.pids;
  std::string text = "ulimit -u is " + limit_text(facts.processes.soft);
  int64_t left = facts.processes.soft;
  if (group) {
    text += "; " + group->file + " allows " + std::to_string(group->most) + ", " +
            std::to_string(group->used) + " used";
    left = std::min(left, group->most - group->used);
  } else {
    text += ", no limit of a control group";
  }
  if (left >= kFewProcesses) return fine("processes", text);
  return warning("processes", text +
                                  ": threads count, too, and each process has ten or more; raise "
                                  "it (ulimit -u, docker --pids-limit, systemd TasksMax)");
}

Finding check_gpus(const GpuFacts& gpus) {
  if (gpus.timed_out) {
    return warning("gpu",
                   "the driver has not answered within 5 s: programs that use it would hang, "
                   "too; look at dmesg, use --device cpu");
  }
  const bool library = gpus.library_error.empty();
  if (gpus.driver.empty() && !gpus.has_library) {
    return fine("gpu", "none: no NVIDIA driver here; --device cpu computes on the processor");
  }
  std::string text = gpus.driver.empty() ? "no /proc/driver/nvidia" : "driver " + gpus.driver;
  if (library) text += " for " + cuda_text(gpus.cuda_version);
  if (!gpus.names.empty()) text += ", " + names_text(gpus.names);
  if (gpus.visible) text += ", CUDA_VISIBLE_DEVICES=" + printable(*gpus.visible);
  if (!library) {
    return warning("gpu", text + ", but its library cannot be used (" +
                              printable(gpus.library_error, kMaxPathBytes) +
                              "): start containers with the driver's files (docker --gpus all, "
                              "apptainer --nv), or install the driver's libcuda");
  }
  if (!gpus.driver.empty() && gpus.names.empty()) {
    return warning("gpu", text + ", but no GPU: ask the scheduler for one (Slurm --gpus)");
  }
  if (gpus.visible && trim(*gpus.visible).empty()) {
    return warning("gpu", text + ": that hides all GPUs; ask the scheduler for one, or unset it");
  }
  if (!gpus.built_with_cuda) {
    return warning("gpu", text +
                              ", but this build has no CUDA in it: build it where nvcc is found "
                              "(docs/gpu.md)");
  }
  return fine("gpu", text);
}

Finding check_open_files(const Limits& files) {
  const int64_t workers = (files.hard - kFilesOfAnyProcess) / kFilesOfEachWorker;
  const std::string text =
      "ulimit -n is " + limit_text(files.soft) + ", at most " + limit_text(files.hard) +
      (files.hard == INT64_MAX ? ""
                               : ": enough for servers with " +
                                     std::to_string(std::max<int64_t>(0, workers)) + " workers");
  // Programs raise their soft limit to the hard limit.
  if (workers >= kFewWorkers) return fine("files", text);
  return warning("files", text +
                              "; raise the hard limit (ulimit -Hn, /etc/security/limits.conf, "
                              "docker --ulimit nofile)");
}

Finding check_locked_memory(const HostFacts& facts) {
  const bool unlimited = facts.locked.soft == INT64_MAX;
  const std::string text = "ulimit -l is " +
                           (unlimited ? "unlimited" : with_unit(facts.locked.soft)) +
                           "; pushpull locks no memory";
  if (unlimited || !facts.infiniband) return fine("memlock", text);
  return warning("memlock", text +
                                ", but MPI and NCCL do for InfiniBand, which this host has: set "
                                "it to unlimited for them (ulimit -l, limits.conf)");
}

Finding check_user_key(const HostFacts& facts) {
  if (facts.no_user_key.empty()) return fine("key", "there is one, or a place for one");
  return warning("key", facts.no_user_key +
                            "; set HOME to a folder of this user, or make a key elsewhere: "
                            "`pushpull keygen FILE`, and name it by PUSHPULL_KEY_FILE");
}

std::vector<Finding> check_facts(const HostFacts& facts) {
  std::vector<Finding> findings = {check_cores(facts), check_memory(facts), check_processes(facts),
                                   check_gpus(facts.gpus)};
  findings.push_back(facts.shm_bytes
                         ? check_shm(*facts.shm_bytes, facts.shm_free_bytes)
                         : warning("/dev/shm", "cannot be examined: mount a tmpfs there"));
  findings.push_back(check_open_files(facts.files));
  findings.push_back(check_locked_memory(facts));
  findings.push_back(check_user_key(facts));
  return findings;
}

std::string host_titles() {
  return table_row({"host", "cores", "nodes", "memory free", "/dev/shm", "files", "GPUs"});
}

std::string host_row(const HostFacts& facts) {
  const Cores& cores = facts.cores;
  std::string core_text = std::to_string(cores.cpus.size());
  if (cores.is_bound()) core_text += " of " + std::to_string(cores.allowed.size());
  if (cores.quota) core_text += ", quota " + print_real(*cores.quota);
  std::string gpus = facts.gpus.names.empty() ? "none" : names_text(facts.gpus.names);
  if (!facts.gpus.driver.empty()) gpus += ", driver " + facts.gpus.driver;
  return table_row({facts.host, core_text, std::to_string(facts.numa_nodes),
                    with_unit(free_memory(facts)),
                    facts.shm_bytes ? with_unit(facts.shm_free_bytes) : "-",
                    limit_text(facts.files.hard), gpus});
}

}  // namespace pushpull
