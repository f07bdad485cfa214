// The checks of `pushpull doctor`: of a host before any job, of a host in a job, of a job's ports,
// of the way to a server.
#pragma once

#include <cstdint>
#include <string>
#include <vector>
#include <zmq.hpp>

#include "cli/doctor/host_facts.h"
#include "common/launch/claim.h"
#include "common/net/credentials.h"
#include "common/net/keys.h"

namespace pushpull {

// The findings of `pushpull doctor` about a host, before any job: what it gives, and what to do where that is little.
// Plain functions; any thread.

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
Finding check_user_key(const HostFacts& facts);

// Returns all of them, and that of /dev/shm.
std::vector<Finding> check_facts(const HostFacts& facts);

// Returns the titles of the table of hosts, and the row of one host. Widths are fixed, since each host prints its own row
// and no process sees all of them.
std::string host_titles();
std::string host_row(const HostFacts& facts);

// Checks of this host: clock, limit of open files, shared memory, disk of the output folder. Plain
// functions; any thread.

// Returns bytes with a unit: "1.5 GB".
std::string with_unit(double bytes);
std::string with_unit(int64_t bytes);

// Compares two clocks. The difference is accurate to half of the round trip.
Finding check_clock(int64_t theirs_ms, int64_t ours_ms, double round_trip_ms);
// soft, hard: limits of open files. needed: open files of this job's largest process.
Finding check_files(int64_t soft, int64_t hard, int64_t needed);
Finding check_files_here(int64_t needed);
// Checks the size of /dev/shm, in bytes.
Finding check_shm(int64_t bytes, int64_t free_bytes);
Finding check_shm_here();
// Checks free space (bytes) and write speed of the disk under `folder`.
Finding check_disk(const std::string& folder, int64_t free_bytes, double bytes_per_second);
// Writes 8 MiB to a temporary file in `folder` and removes it. Waits at most 10 s.
Finding check_disk_here(const std::string& folder);

// Checks the ports of a job, from the coordinator's to each member's, and checks this host against
// the coordinator's answer. One thread.

// Checks whether an address can be reached: its name, then its port. One thread.
struct AddressFindings {
  Finding name;
  Finding port;  // an error too if the name cannot be resolved
  bool ok = false;
};

// address: tcp://HOST:PORT. check: appended to the name of each finding, "" or "of server 1".
// way_out: remedy if the port cannot be reached. Waits a few seconds at most.
AddressFindings reach(const std::string& address, const std::string& check,
                      const std::string& way_out);

// Returns all findings of `pushpull doctor`. Omits checks that depend on one that failed.
std::vector<Finding> check_job(const std::string& address, const Keys& keys, double timeout_s);

// Measures the path to one server's data port: latency, rate in each direction, and whether its
// memory can be shared. Transfers a few MiB at most. One thread.
struct ServerWay {
  double latency_ms = 0.0;        // median round trip of a small message
  double there_per_second = 0.0;  // bytes, to the server
  double back_per_second = 0.0;
  std::string memory;  // why its memory cannot be shared; "" = it can
  bool here = false;   // the server is on this host
};

// Turns a measurement into findings named after the server, such as "server 1".
std::vector<Finding> findings_of(const std::string& who, const std::string& address,
                                 const ServerWay& way);

// Measures for a few seconds. If the server does not answer for 3 s, returns that as an error.
std::vector<Finding> check_server(zmq::context_t& context, const std::string& who,
                                  const std::string& address, const Credentials& credentials);

}  // namespace pushpull
