// Counts refused messages by reason, and decides which of them to report to users, so that a flood
// fills neither the log nor memory. Each socket of a process has one. Time is an argument. One
// thread.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "common/net/message.h"
#include "common/net/refusal.h"

namespace pushpull {

class Refusals {
 public:
  static constexpr int64_t kWindowMs = 10'000;
  static constexpr int kMaxReports = 5;       // in one window
  static constexpr size_t kMaxKnown = 1'024;  // pairs of peer and reason that are remembered

  // Counts one refusal. Returns true if it should be reported: it is the first of this peer for
  // this reason, and few have been reported recently.
  bool add(const PeerId& peer, const Refusal& refusal, int64_t now_ms);

  // Returns the number of refusals by reason.
  const std::map<std::string, int64_t>& counts() const { return counts_; }
  int64_t total() const { return total_; }
  // Adds the counts to the statistics that this process sends to the coordinator.
  //   rejected: all frames that it has rejected; those beyond total() could not be read at all.
  void report(int64_t rejected, wire::Stats& stats) const;

 private:
  std::map<std::string, int64_t> counts_;
  int64_t total_ = 0;
  std::set<std::pair<PeerId, std::string>> known_;
  int64_t window_ms_ = 0;  // when the running window began
  int reports_ = 0;        // in the running window
};

}  // namespace pushpull
