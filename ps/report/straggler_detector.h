// Measures how fast each worker is and which workers delay the others, from the workers' reports of
// the last seconds. Part of the coordinator's state machine. The caller passes the time. Not
// thread-safe.
//
// A worker is a straggler if the others wait for it:
//   - per task, the others wait longer than it does, by at least a quarter of the others' time for
//     a task, and it is busy for longer than they are; or
//   - a step has lasted for at least 2 s and three times its usual duration, and the worker does
//     not wait while at least half of the workers do.
// If no worker waits for another (async), a slow worker is not a straggler.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>

#include "ps/members/committed_work.h"
#include "ps/members/membership.h"

namespace pushpull {

class StragglerDetector {
 public:
  // Records the workers' present figures. Call at least twice a second for best accuracy.
  void on_tick(int64_t now_ms, const Membership& members, const CommittedWork& committed);

  // Returns the worker's samples in the weights per second, over the last seconds, or 0 if unknown.
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
    std::deque<Point> points;  // of the last seconds, newest last
    bool waits = false;
  };
  // Seconds of a mean task.
  struct Task {
    double busy_s = 0.0;
    double wait_s = 0.0;
  };

  void note_step(int64_t now_ms, int64_t floor);
  void find_slow();
  void find_stalled(int64_t now_ms);
  std::map<uint64_t, Task> tasks() const;

  std::map<uint64_t, Worker> workers_;  // workers with a rank
  std::set<uint64_t> stragglers_;
  int64_t floor_ = -1;
  int64_t floor_ms_ = 0;  // when the floor was reached
  double step_ms_ = 0.0;  // usual duration of a step
};

// Measures what each member uses over the last 8 s, as its reports say: cores by its CPU time, and the
// network. Part of the coordinator's state machine. Does no I/O and reads no clock. Not thread-safe.
class UsageRates {
 public:
  // Notes the newest reports, and forgets members that are gone.
  //   shown: by incarnation.
  void on_tick(int64_t now_ms, const std::map<uint64_t, MemberInfo>& shown);
  // Each returns nullopt if there have not been two reports yet.
  // CPU seconds per second.
  std::optional<double> cores_used(uint64_t incarnation) const {
    return per_second(incarnation, &Point::cpu_seconds);
  }
  std::optional<double> bytes_sent_per_second(uint64_t incarnation) const {
    return per_second(incarnation, &Point::bytes_sent);
  }
  std::optional<double> bytes_received_per_second(uint64_t incarnation) const {
    return per_second(incarnation, &Point::bytes_received);
  }

 private:
  struct Point {
    int64_t at_ms = 0;  // when the report arrived
    double cpu_seconds = 0.0;
    double bytes_sent = 0.0;
    double bytes_received = 0.0;
  };

  std::optional<double> per_second(uint64_t incarnation, double Point::*total) const;

  std::map<uint64_t, std::deque<Point>> points_;  // by incarnation, in order
};

}  // namespace pushpull
