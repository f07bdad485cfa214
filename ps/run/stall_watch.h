// Detects that training is stuck although all members send heartbeats: names the workers that a
// step waits for, and finds workers that count as lost because they compute nothing. Part of the
// coordinator's state machine. Not thread-safe.
//
// A worker is stuck if for progress-timeout it neither reports that it waits nor computes a
// micro-batch or an evaluation chunk. If all workers wait for that long and nothing is computed,
// the job cannot continue.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ps/members/membership.h"

namespace pushpull {

struct Job;
class TrainingRun;

class StallWatch {
 public:
  // Borrows both.
  StallWatch(const Job& job, const Membership& members) : job_(job), members_(members) {}

  // Takes the members' reports and the commits. Call before the queries.
  //   run: the training that is watched, the same in each call.
  void on_tick(int64_t now_ms, const TrainingRun& run);

  // Returns a line for users once a step has lasted for 10 s or three typical steps, whichever is
  // longer, and again every 30 s.
  std::optional<std::string> take_notice(int64_t now_ms, const TrainingRun& run);
  // Returns the workers that count as lost now.
  std::vector<Membership::Loss> stuck(int64_t now_ms) const;
  // Returns why the job cannot continue, or "".
  std::string overdue(int64_t now_ms, const TrainingRun& run) const;

 private:
  struct Worker {
    int64_t progress = 0;   // as last reported
    int64_t active_ms = 0;  // when it last computed something or reported that it waits
  };

  void note_workers(int64_t now_ms);
  void note_floor(int64_t now_ms, const TrainingRun& run);
  bool evaluating(const TrainingRun& run) const;
  // Returns true for a worker that is no longer a member, too.
  bool waits(uint64_t incarnation) const;
  int64_t limit_ms() const;
  // Returns "worker 1 (host, pid 123) has computed nothing for 12.0 s".
  std::string describe(uint64_t incarnation, int64_t now_ms) const;
  std::string describe_all(const std::vector<uint64_t>& workers, int64_t now_ms) const;

  const Job& job_;
  const Membership& members_;
  std::map<uint64_t, Worker> workers_;
  int64_t floor_ = -1;
  int64_t floor_ms_ = 0;         // when the floor was reached
  int64_t moves_ = 0;            // commits and snapshot slices
  int64_t moved_ms_ = 0;         // when something last moved, or could not for a known reason
  int64_t notice_ms_ = -1;       // last notice for the running step; -1 if there is none
  std::deque<int64_t> step_ms_;  // durations of the newest steps
};

}  // namespace pushpull
