// Binds the processes of one host to its cores: --bind. What is bound runs on its CPUs only, and its memory comes from
// their node, as the kernel prefers the node of the CPU that touches a page first. Source of the topology: Linux,
// Documentation/admin-guide/cputopology.rst. Plain functions; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/host/cores.h"

namespace pushpull {

enum class Bind {
  kNone,
  kCores,  // each process has cores of its own
  kNuma,   // each process has all given cores of one NUMA node
};

// Parses none, cores or numa. Throws Error(kUsage) naming --bind.
Bind parse_bind(const std::string& text);

// A logical CPU and its place.
struct CpuPlace {
  int cpu = 0;
  int node = 0;
  int core = 0;  // logical CPUs with the same number are threads of one core
};

// Returns the places of `cpus`, ordered by node, then by core. A host that does not say has one node, and each CPU is a
// core.
//   root: in front of /sys, for tests.
std::vector<CpuPlace> read_topology(const std::vector<int>& cpus, const std::string& root = "");

struct BindPlan {
  std::vector<std::vector<int>> cpus;  // of each process, ascending; empty for Bind::kNone
  bool shared = false;  // there are fewer cores than processes, so some have the same
};

// Divides `places` among processes. With enough cores each gets an equal share of neighbouring ones, else one core
// round robin. Nodes are dealt out in blocks: neighbouring processes have the same one.
BindPlan plan_binding(Bind bind, const std::vector<CpuPlace>& places, int64_t processes);

// Returns the number of distinct nodes.
int count_nodes(const std::vector<CpuPlace>& places);

// Divides this host among the servers and workers that one launcher starts: local ranks, cores, bindings (--bind). Plain
// functions; any thread.

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
