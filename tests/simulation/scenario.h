// The parameters of one simulated run, drawn from its seed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/job/job.h"
#include "tests/simulation/network.h"

namespace pushpull::sim {

// An accident of a worker.
struct Accident {
  int64_t at_ms = 0;
  int worker = 0;             // in the order of their start
  int64_t freeze_ms = 0;      // stops the process for so long; 0 = kills it
  int64_t replaced_ms = -1;   // a replacement starts so much later; -1 = none
  bool trainer_only = false;  // stalls only the trainer, for good; heartbeats continue
};

// A process that joins without being expected.
struct Newcomer {
  int64_t at_ms = 0;
  std::string digest = "digest";  // of a worker's data
  bool replaced = true;           // another one is started if it fails
  bool surplus_server = false;    // a server beyond the job's number, not a worker
  int64_t deaf_ms = 0;            // no message to it or from it passes at first
  bool once_trained = false;      // comes once the run has trained, also in a later term
  int stage = -1;  // that a worker declares where they declare stages; -1: by its number
};

// A time in which no message passes on a control connection.
struct Silence {
  bool server = false;  // a joined server, else a worker
  int number = 0;       // in the order of their start
  int64_t at_ms = 0;
  int64_t ms = 0;
};

// A time in which no message passes on data connections of a server. Control connections work.
struct Partition {
  int server = 0;   // in the order of their start
  int worker = -1;  // process; -1 = from all processes, also from those that start meanwhile
  int64_t at_ms = 0;
  int64_t ms = 0;
};

// A time in which no message passes between a worker and the others of its group. All other connections work.
struct PeerPartition {
  int worker = 0;  // process
  bool to_it = true;
  bool from_it = true;
  int64_t at_ms = 0;
  int64_t ms = 0;
};

// A process with the job's key that repeats messages of others on its own connections, and sends
// messages that it may not send.
struct Forgery {
  bool on = false;
  int64_t until_ms = 0;
  int64_t every_us = 10'000;  // mean time between its messages
};

// The death of a server process, with a replacement.
struct ServerLoss {
  int64_t at_ms = 0;
  int server = 0;       // 0 = the coordinator; else in the order of their start
  int64_t back_ms = 0;  // the replacement starts so much later
};

// Workers and servers on one host, with shared memory.
struct Sharing {
  bool on = false;
  double workers = 1.0;  // probability that a worker shares memory
  int64_t late_ms = 0;   // sharing starts at most so long after training
  double ends = 0.0;     // probability that it stops sharing, per server
  bool again = false;    // starts sharing again
};

struct Scenario {
  uint64_t seed = 0;
  Job job;
  int servers = 1;
  int workers = 1;
  int spares = 0;
  int64_t elements = 1024;
  int64_t test_samples = 0;
  int64_t start_step = 0;  // starts from loaded weights if > 0
  bool counting = false;
  Faults faults;
  std::vector<Accident> accidents;
  std::vector<ServerLoss> server_losses;
  std::vector<Newcomer> newcomers;
  std::vector<Silence> silences;
  std::vector<Partition> partitions;
  std::vector<PeerPartition> peer_partitions;
  Forgery forgery;
  int64_t declares_again_ms = -1;  // a worker then declares other data; -1 = never
  bool servers_lossy = false;      // joined servers' control connections also lose messages
  double join_timeout_s = 60.0;    // of joining members
  double start_timeout_s = 1e6;    // of the coordinator
  int64_t servers_late_ms = 0;     // all servers but the first start so much later
  int64_t stop_ms = -1;            // the coordinator is then told to end; -1 = never
  bool stops_by_limit = false;     // not by a signal: its allocation ends
  std::vector<int64_t> checkpoint_signals_ms;  // the coordinator is told to write a checkpoint
  bool all_signalled = false;     // all members are told to end too, within half a second
  int64_t server_killed_ms = -1;  // the second server dies then; -1 = never
  int64_t compute_us = 1000;      // longest time of one micro-batch
  int64_t write_us = 1000;        // longest time of a checkpoint's write
  int64_t file_us = 0;            // time of work on other files
  double write_fails = 0.0;  // probability that a checkpoint other than the last cannot be written
  size_t flush_bytes = 1 << 20;  // of a push's message
  int64_t window_bytes = 0;      // of a pull; 0 = no window
  Sharing sharing;
  bool on_device = false;  // servers keep weights on devices if the job allows it

  // Returns true if each message arrives, possibly late or twice.
  bool gentle() const { return faults.lose == 0 && faults.reset == 0 && silences.empty(); }
  std::string to_string() const;
};

// Returns `first`, then seeds from 1 (or PUSHPULL_SIM_FIRST) on: `count` times the scale of the
// build and of PUSHPULL_SIM_SCALE, or PUSHPULL_SIM_MOST many. PUSHPULL_SIM_SEED selects only that
// seed.
std::vector<uint64_t> seeds_to_run(uint64_t count, std::vector<uint64_t> first = {});
// Draws a job without faults. strategy: "sync", "async", "ssp:S", "backup:B" (at most B) or
// "local:H".
Scenario draw(uint64_t seed, const std::string& strategy);
// Draws a job whose model groups of workers divide, without faults. strategy: "sync" or "ssp:S".
Scenario draw_groups(uint64_t seed, const std::string& strategy);
// Draws a job with a real optimizer and a record, in which weights depend on the order. strategy:
// "async", "ssp:S" or "backup:B".
Scenario draw_recorded(uint64_t seed, const std::string& strategy);
// The same for groups that divide the model.
Scenario draw_recorded_groups(uint64_t seed, const std::string& strategy);
// Lets servers share memory with some workers, from the start or later, permanently or not.
void add_sharing(Scenario& scenario);
// Adds faults: messages are lost, repeated or late, and connections break.
void add_faults(Scenario& scenario);
// Delays and repeats messages, but loses none. The timeouts for members are long.
void add_disorder(Scenario& scenario);
// Lets all control connections lose messages, break and go silent. Some workers come late or do not
// fit, and a surplus server comes.
void add_control_faults(Scenario& scenario);
// Kills or freezes workers at random moments. Each share has an owner in the end.
void add_accidents(Scenario& scenario, OnWorkerLoss on_worker_loss);
// Tells the job to end at a random moment: its coordinator alone, by a signal or by the end of its
// allocation, or all members.
void add_stop(Scenario& scenario);
// Asks the coordinator for checkpoints at random moments, some in quick succession.
void add_checkpoint_signals(Scenario& scenario);
// Lets the coordinator choose the checkpoints, and makes the run long enough for some.
void add_chosen_checkpoints(Scenario& scenario);
// Kills servers at random moments, also the coordinator, and restarts them.
void add_server_losses(Scenario& scenario);
// Kills servers that are replaced within the term. The coordinator lives.
void add_replaced_servers(Scenario& scenario);
// Interrupts data connections for less time than it takes a worker to give up.
void add_short_partitions(Scenario& scenario);
// Interrupts data connections for up to several times heartbeat-timeout.
void add_long_partitions(Scenario& scenario);
// Interrupts connections between workers for less or more time than it takes them to give up.
void add_short_peer_partitions(Scenario& scenario);
void add_long_peer_partitions(Scenario& scenario);
// Adds a process that forges messages.
void add_forgery(Scenario& scenario);

}  // namespace pushpull::sim
