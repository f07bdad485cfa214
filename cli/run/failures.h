// The failures of a job's processes, and which of them is the cause of the others. Part of the
// supervisor's state machine. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "cli/run/ending.h"

namespace pushpull {

class Failures {
 public:
  struct Blame {
    size_t slot = 0;
    int code = 0;
    std::string reason;
  };

  void add(size_t slot, const Ending& ending) { by_slot_[slot] = {ending, ++order_}; }
  // The coordinator reports that this process failed the job.
  void blame(Blame blame) { blame_ = std::move(blame); }

  bool any() const { return !by_slot_.empty(); }
  const std::optional<Blame>& blamed() const { return blame_; }
  // Returns how the process in this slot failed, or nothing if it has not.
  std::optional<Ending> of(size_t slot) const;
  // Returns the slot of the process that the coordinator has blamed; else that of the first process
  // that failed by itself, or of the first that failed. Needs one of these.
  size_t cause() const;

 private:
  struct Failure {
    Ending ending;
    int64_t order = 0;  // of the calls of `add`
  };
  std::map<size_t, Failure> by_slot_;
  int64_t order_ = 0;
  std::optional<Blame> blame_;
};

}  // namespace pushpull
