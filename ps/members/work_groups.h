// The workers as units that take work. Usually each worker with a rank is one. If the job divides the
// model among several workers (`stages`), a unit is a group of so many, one for each stage. Part of
// the coordinator's state machine. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/net/message.h"
#include "ps/members/membership.h"

namespace pushpull {

// The place of a worker in a group.
struct GroupPlace {
  uint64_t group = 0;  // the unit; 0: it waits for one
  int stage = -1;      // that it computes, or computed last; -1: none yet
};

// A unit has a number that is never used again: of a worker its incarnation, of a group a counter
// from 1. 0 is none.
class WorkGroups {
 public:
  // Borrows the members.
  //   attempts: those before the first one. They are numbered through the terms of a run.
  WorkGroups(int64_t stages, const Membership& members, int64_t attempts = 0)
      : stages_(stages), members_(members), attempts_(attempts) {}

  // Returns true if units are groups.
  bool divides() const { return stages_ > 1; }
  int64_t stages() const { return stages_; }
  // Forms groups of workers that are in none, in the order of their ranks, each of workers on one
  // host as far as there are enough. A worker that has declared or had a stage keeps it, because its
  // model has no other part.
  void form();
  // Handles the loss of a worker. Returns the unit that ends with it; the others of a group wait for
  // another worker.
  uint64_t lose(uint64_t incarnation);
  // Notes that the work of a unit has changed: the workers of a group agree anew on where to begin.
  void work_changed(uint64_t unit);
  // Makes another unit of a group's workers. Returns it.
  uint64_t renew(uint64_t unit);

  // Returns the units, ascending.
  std::vector<uint64_t> units() const;
  // Returns the unit with this worker; 0 if there is none.
  uint64_t unit_of(uint64_t incarnation) const;
  // Returns the unit whose evaluations this worker reports with this attempt: its own, or an earlier one
  // of it; 0 if there is none.
  uint64_t reports_for(uint64_t incarnation, int64_t attempt) const;
  // Returns the unit that the share with this index begins with; 0 if there is none.
  uint64_t unit_at(int index) const;
  // Returns the unit's workers, by stage.
  std::vector<uint64_t> workers_of(uint64_t unit) const;
  // Returns the stage that a worker computes, or computed last, or has declared; -1 if there is none.
  int stage_of(uint64_t incarnation) const;
  // Returns the places of all workers with a rank if units are groups; otherwise nothing.
  std::map<uint64_t, GroupPlace> places() const;
  // Returns the attempt of a unit that is a group; 0 for any other one.
  int64_t attempt_of(uint64_t unit) const;
  // Returns "worker 1 (host, pid 123)" for messages, or "workers 2, 3".
  std::string name(uint64_t unit) const;
  // Returns the stages that have too few workers for another group, for messages: "stage 1".
  std::string missing() const;
  // Adds the worker's place in its group. Returns false if it has no work: it is in no group, or a worker of its
  // group has left, as at the end of a job.
  bool add_to_worker_state(wire::State* state, uint64_t incarnation) const;

 private:
  struct Group {
    std::vector<uint64_t> workers;  // by stage
    int64_t attempt = 0;
  };
  // Makes a unit of these workers, by stage.
  void begin(std::vector<uint64_t> workers);
  void begin_attempt(uint64_t unit, Group& group);
  // Returns the workers without a group, by rank.
  std::vector<const MemberInfo*> free_workers() const;

  const int64_t stages_;
  const Membership& members_;
  std::map<uint64_t, Group> groups_;
  std::map<uint64_t, int> stage_of_;  // by worker
  // Units by attempt, for each worker with the last stage.
  std::map<uint64_t, std::map<int64_t, uint64_t>> reports_;
  uint64_t newest_ = 0;
  int64_t attempts_;
};

}  // namespace pushpull
