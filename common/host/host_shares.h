// Divides this host among the servers and workers that one launcher starts: local ranks, cores, bindings (--bind). Plain
// functions; any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "common/host/binding.h"
#include "common/host/cores.h"
#include "common/host/task_on_host.h"

namespace pushpull {

// A process's part of this host.
struct HostShare {
  TaskOnHost task;        // its number within its role
  std::vector<int> cpus;  // that it is bound to; empty: not bound
  int cores = 0;  // that it should count on when it chooses its number of threads, at least 1
};

// Returns the shares by slot: servers, then workers. kCores divides the cores among all processes; otherwise servers and
// workers have the same cores, since workers wait while servers update.
//   places: topology of cores.cpus.
std::vector<HostShare> plan_host_shares(Bind bind, const Cores& cores,
                                        const std::vector<CpuPlace>& places, int64_t servers,
                                        int64_t workers);

}  // namespace pushpull
