// Sums of all members' statistics: time, memory, bytes. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/net/message.h"
#include "common/net/refusals.h"

namespace pushpull {

// Checks that a member's numbers are possible: finite, and none below zero.
Checked check_stats(const wire::Stats& stats);

struct RunTotals {
  // Totals of all servers, or of all workers.
  struct Role {
    double cpu_seconds = 0.0;  // sum
    int64_t peak_rss_kib = 0;  // largest of all processes
  };
  // Seconds of training tasks.
  struct Split {
    double compute = 0.0;
    double push = 0.0;
    double wait = 0.0;
    double pull = 0.0;
  };

  // A stage of the workers' models, over all workers that divide theirs.
  struct Stage {
    int64_t layers = 0;  // operations with parameters; the most of a worker
    double busy = 0.0;   // seconds
    double span = 0.0;   // seconds
    int64_t slots_max = 0;
    int64_t bytes_in = 0;
    int64_t bytes_out = 0;
    // The share of the time in which the stage waited.
    double bubble() const { return span > 0.0 ? 1.0 - busy / span : 0.0; }
  };

  Role servers;
  Role workers;
  std::vector<Stage> stages;  // by their order
  Split split;                // over all workers
  int64_t tasks = 0;          // tasks in `split`
  int64_t bytes_pushed = 0;
  int64_t bytes_pulled = 0;
  int64_t rejected_frames = 0;
  // Rejected frames by reason; "other" if a member gives none.
  std::map<std::string, int64_t> refusals;
  int64_t refused_peers = 0;  // connections refused by the handshake
  int64_t clock_gap_max = 0;
  // Values that the workers' programs have logged, by name.
  struct Logged {
    double sum = 0.0;
    int64_t count = 0;
  };
  std::map<std::string, Logged> logged;

  void add(wire::Role role, const wire::Stats& stats);
  void add_stages(const wire::Stats& stats);
  // Adds the `rejected` frames of one member, some of them with their reason.
  void add_refusals(int64_t rejected,
                    const google::protobuf::RepeatedPtrField<wire::Refusal>& reasons);
  // Returns the means of the values that were logged since `before`.
  std::map<std::string, double> logged_since(const RunTotals& before) const;
  // Returns the seconds of a mean task, or zeros if there are no tasks.
  Split mean_split() const;
};

}  // namespace pushpull
