// Sums of all members' statistics: time, memory, bytes. Plain bookkeeping; one thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "common/net/message.h"
#include "common/net/refusal.h"

namespace pushpull {

// Whether a member can honestly send these numbers: finite, none below zero.
Checked check_stats(const wire::Stats& stats);

struct RunTotals {
  // Sums over all servers, or over all workers.
  struct Role {
    double cpu_seconds = 0.0;  // of all
    int64_t peak_rss_kib = 0;  // of the largest
  };
  // Seconds of training tasks.
  struct Split {
    double compute = 0.0;
    double push = 0.0;
    double wait = 0.0;
    double pull = 0.0;
  };

  Role servers;
  Role workers;
  Split split;        // of all workers
  int64_t tasks = 0;  // that these were spent on
  int64_t bytes_pushed = 0;
  int64_t bytes_pulled = 0;
  int64_t rejected_frames = 0;
  // The same by reason; "other" where a member gives none.
  std::map<std::string, int64_t> refusals;
  int64_t refused_peers = 0;  // connections that were not let in
  int64_t clock_gap_max = 0;

  void add(wire::Role role, const wire::Stats& stats);
  // `rejected` frames at one member, some of them with their reason.
  void add_refusals(int64_t rejected,
                    const google::protobuf::RepeatedPtrField<wire::Refusal>& reasons);
  // Seconds of a mean task; 0 where there is none.
  Split mean_split() const;
};

}  // namespace pushpull
