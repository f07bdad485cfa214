// The workers as units that take work. Usually each worker with a rank is one. If the job divides the
// model among several workers (`stages`), a unit is a group of so many, one for each stage. Part of
// the coordinator's state machine. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "common/net/message.h"
#include "ps/members/membership.h"

namespace pushpull {

// A unit has a number that is never used again: of a worker its incarnation, of a group a counter
// from 1. 0 is none.
class WorkGroups {
 public:
  // Borrows the members.
  WorkGroups(int64_t stages, const Membership& members) : stages_(stages), members_(members) {}

  // Returns true if units are groups.
  bool divides() const { return stages_ > 1; }
  int64_t stages() const { return stages_; }
  // Forms groups of workers that are in none, in the order of their ranks. A worker that has had a
  // stage keeps it, because its model has no other part.
  void form();
  // Handles the loss of a worker. Returns the unit that ends with it; the others of a group wait for
  // another worker.
  uint64_t lose(uint64_t incarnation);
  // Notes that the work of a unit has changed: the workers of a group agree anew on where to begin.
  void work_changed(uint64_t unit);

  // Returns the units, ascending.
  std::vector<uint64_t> units() const;
  // Returns the unit with this worker; 0 if there is none.
  uint64_t unit_of(uint64_t incarnation) const;
  // Returns the units whose evaluations this worker may report: its own, and earlier ones of it.
  std::set<uint64_t> reports_for(uint64_t incarnation) const;
  // Returns the unit that the share with this index begins with; 0 if there is none.
  uint64_t unit_at(int index) const;
  // Returns the unit's workers, by stage.
  std::vector<uint64_t> workers_of(uint64_t unit) const;
  // Returns the stage that a worker computes, or computed last; -1 if it has had none.
  int stage_of(uint64_t incarnation) const;
  // Returns "worker 1 (host, pid 123)" for messages, or "workers 2, 3".
  std::string name(uint64_t unit) const;
  // Returns the stages that have too few workers for another group, for messages: "stage 1".
  std::string missing() const;
  // Adds the worker's place in its group.
  void add_to_worker_state(wire::State* state, uint64_t incarnation) const;

 private:
  struct Group {
    std::vector<uint64_t> workers;  // by stage
    int64_t attempt = 0;
  };
  // Returns the workers without a group, by rank.
  std::vector<const MemberInfo*> free_workers() const;

  const int64_t stages_;
  const Membership& members_;
  std::map<uint64_t, Group> groups_;
  std::map<uint64_t, int> stage_of_;                // by worker
  std::map<uint64_t, std::set<uint64_t>> reports_;  // of the last stage, by worker
  uint64_t newest_ = 0;
  int64_t attempts_ = 0;
};

}  // namespace pushpull
