// How fast each worker is, and which ones hold the others up, from what workers have reported in the
// last seconds. Part of the coordinator's state machine; time comes in as an argument. One thread.
//
// A worker is a straggler where the others wait for it:
//   - per task, the others wait longer than it does itself, by at least a quarter of the time that
//     a task takes them, and it is busy for longer than they are; or
//   - a step has stood for at least 2 s and three times as long as a step takes, and it is one of
//     those that do not wait, while at least half of the workers do.
// Where nobody waits for anybody (async), a slow worker is none.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <set>

#include "ps/members/membership.h"
#include "ps/work/training_progress.h"

namespace pushpull {

class Pace {
 public:
  // Takes in what is known now; the more often, the closer, up to twice a second.
  void on_tick(int64_t now_ms, const Membership& members, const TrainingProgress& progress);

  // That are in the weights, over the last seconds. 0: not known yet.
  double samples_per_second(uint64_t incarnation) const;
  bool straggles(uint64_t incarnation) const { return stragglers_.contains(incarnation); }

 private:
  struct Point {
    int64_t at_ms = 0;
    int64_t samples = 0;
    int64_t tasks = 0;
    double busy_s = 0.0;
    double wait_s = 0.0;
  };
  struct Worker {
    std::deque<Point> points;  // of the last seconds, the newest last
    bool waits = false;
  };
  // Seconds of a mean task.
  struct Task {
    double busy_s = 0.0;
    double wait_s = 0.0;
  };

  void note_step(int64_t now_ms, int64_t floor);
  void find_slow();
  void find_standing(int64_t now_ms);
  std::map<uint64_t, Task> tasks() const;

  std::map<uint64_t, Worker> workers_;  // that have a rank
  std::set<uint64_t> stragglers_;
  int64_t floor_ = -1;
  int64_t floor_ms_ = 0;  // since when it is that
  double step_ms_ = 0.0;  // that a step takes
};

}  // namespace pushpull
