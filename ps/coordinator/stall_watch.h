// Notices that training stands although everybody sends heartbeats: names those whom a step waits
// for, and finds workers that count as lost because they compute nothing. Part of the coordinator's
// state machine; one thread.
//
// A worker is stuck when it says neither that it waits nor that it has computed a micro-batch or a
// chunk of an evaluation, for progress-timeout. Where everybody waits for so long and nothing is
// computed, the job cannot go on.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/job/job.h"
#include "ps/coordinator/training_run.h"
#include "ps/members/membership.h"

namespace pushpull {

class StallWatch {
 public:
  // All borrowed.
  StallWatch(const Job& job, const Membership& members, const TrainingRun& run);

  // Takes in what members have reported and what was committed. Comes before the queries.
  void on_tick(int64_t now_ms);

  // A line for people: a step stands for 10 s, or for three times as long as a step takes, whichever
  // is longer; and again every 30 s.
  std::optional<std::string> take_notice(int64_t now_ms);
  // Workers that count as lost now.
  std::vector<Membership::Loss> stuck(int64_t now_ms) const;
  // Why the job cannot go on; "": it can.
  std::string overdue(int64_t now_ms) const;

 private:
  struct Worker {
    int64_t progress = 0;   // as it last reported
    int64_t active_ms = 0;  // it has computed something, or has said that it waits
  };

  void note_workers(int64_t now_ms);
  void note_floor(int64_t now_ms);
  bool evaluating() const;
  // Also of one that is no member any more.
  bool waits(uint64_t incarnation) const;
  int64_t limit_ms() const;
  // "worker 1 (host, pid 123) has computed nothing for 12.0 s"
  std::string describe(uint64_t incarnation, int64_t now_ms) const;
  std::string describe_all(const std::vector<uint64_t>& workers, int64_t now_ms) const;

  const Job& job_;
  const Membership& members_;
  const TrainingRun& run_;
  std::map<uint64_t, Worker> workers_;
  int64_t floor_ = -1;
  int64_t floor_ms_ = 0;         // since when it is that
  int64_t moves_ = 0;            // commits, and slices of snapshots
  int64_t moved_ms_ = 0;         // something was computed or committed, or cannot be
  int64_t said_ms_ = -1;         // of the step that stands; -1: not yet
  std::deque<int64_t> step_ms_;  // of the newest steps
};

}  // namespace pushpull
