// The findings of `pushpull doctor` about a host, before any job: what it gives, and what to do where that is little.
// Plain functions; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/doctor/finding.h"
#include "cli/doctor/host_facts.h"
#include "common/launch/claim.h"

namespace pushpull {

// The launcher of this task, as `--join auto` sees it. Plain functions; any thread.
struct TaskFinding {
  Finding finding;
  int64_t tasks = 1;  // of the launcher; 1 also if there is none
  int64_t rank = 0;
  int64_t local_rank = 0;
};

//   host_name: full name of this host.
TaskFinding check_launcher(const Environment& environment, const std::string& host_name);

// The same for this process.
TaskFinding check_launcher_here();

Finding check_cores(const HostFacts& facts);
Finding check_memory(const HostFacts& facts);
Finding check_processes(const HostFacts& facts);
Finding check_gpus(const GpuFacts& gpus);
Finding check_open_files(const Limits& files);
Finding check_locked_memory(const HostFacts& facts);

// Returns all of them, and that of /dev/shm.
std::vector<Finding> check_facts(const HostFacts& facts);

// Returns the titles of the table of hosts, and the row of one host. Widths are fixed, since each host prints its own row
// and no process sees all of them.
std::string host_titles();
std::string host_row(const HostFacts& facts);

}  // namespace pushpull
