#include "common/host/binding.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "common/base/error.h"
#include "common/base/text.h"
#include "common/host/kernel_files.h"

namespace pushpull {

namespace {

constexpr const char* kNodes = "/sys/devices/system/node";
constexpr const char* kCpus = "/sys/devices/system/cpu";

std::map<int, int> nodes_of_cpus(const std::string& root) {
  std::map<int, int> out;
  const std::string online = read_small_file(root + kNodes + "/online").value_or("");
  for (const int node : parse_cpu_list(online).value_or(std::vector<int>())) {
    const auto text = read_small_file(root + kNodes + "/node" + std::to_string(node) + "/cpulist");
    for (const int cpu : parse_cpu_list(text.value_or("")).value_or(std::vector<int>())) {
      out[cpu] = node;
    }
  }
  return out;
}

// Returns -1 if the host does not say.
int64_t topology_number(const std::string& root, int cpu, const char* file) {
  const auto text =
      read_small_file(root + kCpus + "/cpu" + std::to_string(cpu) + "/topology/" + file);
  return text ? parse_int64(trim(*text)).value_or(-1) : -1;
}

template <int CpuPlace::*field>
std::vector<std::vector<int>> groups_by(const std::vector<CpuPlace>& places) {
  std::vector<std::vector<int>> out;
  for (size_t i = 0; i < places.size(); ++i) {
    if (i == 0 || places[i].*field != places[i - 1].*field) out.emplace_back();
    out.back().push_back(places[i].cpu);
  }
  return out;
}

}  // namespace

Bind parse_bind(const std::string& text) {
  if (text == "none") return Bind::kNone;
  if (text == "cores") return Bind::kCores;
  if (text == "numa") return Bind::kNuma;
  throw Error(ErrorCode::kUsage,
              "[bind] --bind " + printable(text) + ": must be none, cores or numa");
}

std::vector<CpuPlace> read_topology(const std::vector<int>& cpus, const std::string& root) {
  const std::map<int, int> nodes = nodes_of_cpus(root);
  using Core = std::tuple<int, int64_t, int64_t, int64_t>;  // node, package, core, CPU if unknown
  std::map<Core, std::vector<int>> cores;
  for (const int cpu : cpus) {
    const auto node = nodes.find(cpu);
    const int64_t core = topology_number(root, cpu, "core_id");
    cores[{node == nodes.end() ? 0 : node->second,
           topology_number(root, cpu, "physical_package_id"), core, core < 0 ? cpu : 0}]
        .push_back(cpu);
  }
  std::vector<CpuPlace> out;
  int number = 0;
  for (const auto& [core, threads] : cores) {
    for (const int cpu : threads) out.push_back({cpu, std::get<0>(core), number});
    ++number;
  }
  return out;
}

BindPlan plan_binding(Bind bind, const std::vector<CpuPlace>& places, int64_t processes) {
  BindPlan plan;
  if (bind == Bind::kNone || places.empty()) return plan;
  const auto groups = bind == Bind::kCores ? groups_by<&CpuPlace::core>(places)
                                           : groups_by<&CpuPlace::node>(places);
  const auto count = static_cast<int64_t>(groups.size());
  plan.shared = bind == Bind::kCores && count < processes;
  for (int64_t i = 0; i < processes; ++i) {
    int64_t first = i;
    int64_t end = i + 1;
    if (bind == Bind::kNuma && count <= processes) {
      first = i * count / processes;
      end = first + 1;
    } else if (plan.shared) {
      first = i % count;
      end = first + 1;
    } else if (bind == Bind::kCores) {
      first = i * count / processes;
      end = (i + 1) * count / processes;
    }
    std::vector<int> mine;
    for (int64_t g = first; g < end; ++g) {
      const std::vector<int>& group = groups[static_cast<size_t>(g)];
      mine.insert(mine.end(), group.begin(), group.end());
    }
    std::ranges::sort(mine);
    plan.cpus.push_back(std::move(mine));
  }
  return plan;
}

int count_nodes(const std::vector<CpuPlace>& places) {
  std::set<int> nodes;
  for (const CpuPlace& place : places) nodes.insert(place.node);
  return static_cast<int>(nodes.size());
}

namespace {

// Returns the number of processes of one role that run on the CPUs of process `i`, itself included.
int64_t neighbours(const std::vector<std::vector<int>>& cpus, size_t i) {
  return std::max<int64_t>(1, std::ranges::count(cpus, cpus[i]));
}

// Returns the shares of one role.
//   cpus: of each process; empty: none is bound.
std::vector<HostShare> shares_of_role(const Cores& cores, std::vector<std::vector<int>> cpus,
                                      int64_t processes) {
  std::vector<HostShare> shares;
  for (int64_t i = 0; i < processes; ++i) {
    HostShare share;
    share.task = {i, processes};
    int64_t count = cores.count() / processes;
    if (!cpus.empty()) {
      share.cpus = cpus[static_cast<size_t>(i)];
      const int64_t own = std::ssize(share.cpus) / neighbours(cpus, static_cast<size_t>(i));
      count = cores.quota ? std::min(own, count) : own;
    }
    share.cores = static_cast<int>(std::max<int64_t>(1, count));
    shares.push_back(std::move(share));
  }
  return shares;
}

}  // namespace

std::vector<HostShare> plan_host_shares(Bind bind, const Cores& cores,
                                        const std::vector<CpuPlace>& places, int64_t servers,
                                        int64_t workers) {
  std::vector<std::vector<int>> of_servers;
  std::vector<std::vector<int>> of_workers;
  if (bind == Bind::kCores) {
    of_servers = plan_binding(bind, places, servers + workers).cpus;
    of_workers.assign(of_servers.begin() + servers, of_servers.end());
    of_servers.resize(static_cast<size_t>(servers));
  } else {
    of_servers = plan_binding(bind, places, servers).cpus;
    of_workers = plan_binding(bind, places, workers).cpus;
  }
  std::vector<HostShare> shares = shares_of_role(cores, std::move(of_servers), servers);
  for (HostShare& share : shares_of_role(cores, std::move(of_workers), workers)) {
    shares.push_back(std::move(share));
  }
  return shares;
}

}  // namespace pushpull
