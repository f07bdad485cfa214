#include "common/host/host_shares.h"

#include <algorithm>

namespace pushpull {

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
