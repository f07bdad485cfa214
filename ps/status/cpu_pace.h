// How many cores each member uses: its CPU time over the last 8 s, as its reports say. Part of the coordinator's state
// machine. Does no I/O and reads no clock. Not thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>

#include "ps/members/membership.h"

namespace pushpull {

class CpuPace {
 public:
  // Notes the newest reports, and forgets members that are gone.
  //   shown: by incarnation.
  void on_tick(int64_t now_ms, const std::map<uint64_t, MemberInfo>& shown);
  // Returns CPU seconds per second, or nullopt if there have not been two reports yet.
  std::optional<double> cores_used(uint64_t incarnation) const;

 private:
  struct Point {
    int64_t at_ms = 0;  // when the report arrived
    double cpu_seconds = 0.0;
  };

  std::map<uint64_t, std::deque<Point>> points_;  // by incarnation, in order
};

}  // namespace pushpull
