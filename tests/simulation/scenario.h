// What one simulated run is like, drawn from its seed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/job/job.h"
#include "tests/simulation/network.h"

namespace pushpull::sim {

// What happens to a worker.
struct Accident {
  int64_t at_ms = 0;
  int worker = 0;             // in the order in which they were started
  int64_t freeze_ms = 0;      // stopped for so long, then it goes on; 0: killed
  int64_t replaced_ms = -1;   // another one starts so much later; -1: none
  bool trainer_only = false;  // its trainer stands still for good, and its heartbeats go on
};

// A process that nobody waits for.
struct Newcomer {
  int64_t at_ms = 0;
  std::string digest = "digest";  // of a worker's data
  bool replaced = true;           // whoever started it starts another one where it fails
  bool surplus_server = false;    // no worker, but a server more than the job has
  int64_t deaf_ms = 0;            // nothing comes through to it or from it at first
};

// Nothing comes through on a process's control connection.
struct Silence {
  bool server = false;  // a joined server; else a worker
  int number = 0;       // in the order in which they were started
  int64_t at_ms = 0;
  int64_t ms = 0;
};

// A server process dies, and another one starts in its place.
struct ServerLoss {
  int64_t at_ms = 0;
  int server = 0;       // 0: the coordinator; else in the order in which they were started
  int64_t back_ms = 0;  // so much later
};

// Workers and servers are on one host.
struct Sharing {
  bool on = false;
  double workers = 1.0;  // probability that a worker shares memory
  int64_t late_ms = 0;   // a worker begins at most so much after its training
  double ends = 0.0;     // probability that it stops again, for each of its servers
  bool again = false;    // and begins anew
};

struct Scenario {
  uint64_t seed = 0;
  Job job;
  int servers = 1;
  int workers = 1;
  int spares = 0;
  int64_t elements = 1024;
  int64_t test_samples = 0;
  int64_t start_step = 0;  // with loaded weights when > 0
  bool counting = false;
  Faults faults;
  std::vector<Accident> accidents;
  std::vector<ServerLoss> server_losses;
  std::vector<Newcomer> newcomers;
  std::vector<Silence> silences;
  int64_t declares_again_ms = -1;  // a worker says then that its data are others; -1: never
  bool servers_lossy = false;      // also the control connections of joined servers lose messages
  double join_timeout_s = 60.0;    // of whoever joins
  double start_timeout_s = 1e6;    // of the coordinator, for all to come
  int64_t servers_late_ms = 0;     // all but the first start so much later
  int64_t stop_ms = -1;            // the coordinator is told to end then; -1: never
  bool all_are_told = false;       // and so is everybody else, within half a second
  int64_t server_killed_ms = -1;   // the second server dies then; -1: never
  int64_t compute_us = 1000;       // longest time for one micro-batch
  int64_t write_us = 1000;         // longest time for a checkpoint
  double write_fails = 0.0;        // probability that one but the last cannot be written
  size_t flush_bytes = 1 << 20;    // of a push's message
  bool early = true;               // workers begin while their weights are still coming
  int64_t window_bytes = 0;        // of a pull; 0: none
  Sharing sharing;
  bool on_device = false;  // servers keep weights on devices, where the job allows it

  // Every message comes through, though late or twice.
  bool gentle() const { return faults.lose == 0 && faults.reset == 0 && silences.empty(); }
  std::string to_string() const;
};

// `first`, then 1 to `count` times the scale of the build and of PUSHPULL_SIM_SCALE; only
// PUSHPULL_SIM_SEED where that is set; PUSHPULL_SIM_MOST in place of that many;
// from PUSHPULL_SIM_FIRST on in place of 1.
std::vector<uint64_t> seeds_to_run(uint64_t count, std::vector<uint64_t> first = {});
// A job without faults; strategy "sync", "async", "ssp:S", "backup:B" (B at most) or "local:H".
Scenario draw(uint64_t seed, const std::string& strategy);
// The same with a real optimizer and a record; "async", "ssp:S" or "backup:B". Weights depend on
// the order.
Scenario draw_recorded(uint64_t seed, const std::string& strategy);
// Memory is shared between servers and some workers, from the beginning or later, for good or not.
void add_sharing(Scenario& scenario);
// Messages are lost, repeated, late; connections break.
void add_faults(Scenario& scenario);
// Messages come late and twice, and all of them come. Members are waited for for long.
void add_disorder(Scenario& scenario);
// The control connections of all members lose messages, break, are silent for a while; workers come
// late, or do not fit, and a server too many.
void add_control_faults(Scenario& scenario);
// Workers die or freeze at random moments; every share finds somebody in the end.
void add_accidents(Scenario& scenario, OnWorkerLoss on_worker_loss);
// The job is told to end at a random moment: its coordinator, or everybody.
void add_stop(Scenario& scenario);
// The coordinator chooses when there are checkpoints, and there is time for some.
void add_chosen_checkpoints(Scenario& scenario);
// Servers die at random moments, the coordinator among them, and come back.
void add_server_losses(Scenario& scenario);
// ... which others replace within the term. The coordinator lives.
void add_replaced_servers(Scenario& scenario);

}  // namespace pushpull::sim
