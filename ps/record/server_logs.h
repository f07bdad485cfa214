// The updates that the servers of a recorded run have applied, gathered by the coordinator and
// merged into one order. No files, no connections; one thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/io/record.h"
#include "common/job/job.h"
#include "common/net/message.h"
#include "common/net/refusal.h"

namespace pushpull {

class ServerLogs {
 public:
  struct Entry {
    RecordedPush push;
    bool uncompensated = false;
  };

  // micro_batches: of a step. updates: that each server has had at the start.
  ServerLogs(int servers, int64_t micro_batches, int64_t updates);

  // Takes entries of `server`, in its order. Repeated ones are dropped; a part behind a gap is not
  // taken, and will be repeated. Refuses what is no part of a log.
  Checked take(int server, const wire::RecordPart& part);
  // Entries of this server that are here.
  int64_t have(int server) const { return std::ssize(logs_[static_cast<size_t>(server)]); }

  int servers() const { return static_cast<int>(logs_.size()); }
  const std::vector<Entry>& of(int server) const { return logs_[static_cast<size_t>(server)]; }
  // The push that a message describes, in `out`. Refuses one that cannot be a push of this run.
  Checked to_push(const wire::Applied& applied, RecordedPush& out) const;
  int64_t start_updates() const { return updates_; }

 private:
  int64_t micro_batches_;
  int64_t updates_;
  std::vector<std::vector<Entry>> logs_;
};

// How the versions of a run are counted.
struct VersionRules {
  bool in_steps = false;  // all entries of a step make one update, and versions are steps (backup)
  int64_t start = 0;      // version of every server
  int with_slices = 1;    // servers from here on hold no slices, and have no versions
};

// versions start with the run's `start`; elements: of the flat vector.
VersionRules version_rules(const Job& job, const RecordedStart& start, int64_t elements,
                           int servers);

// One order in which everything can have happened: each server's own order is kept, and a push that
// has read version v of server k comes after what made v. Of the servers that could be next the one
// with the fewest updates so far is, the lower rank first.
// An update that has read something that no log holds is left out, with all later ones of its
// server; returns how many entries that were.
int64_t merge_logs(const ServerLogs& logs, const VersionRules& rules, RunRecord& out);

// For each update: true where no later one of its server belongs to the same step.
std::vector<bool> ends_of_steps(const RunRecord& record);

// Whether a record's updates can be computed one after the other. Returns what is wrong, "" for
// nothing.
std::string check_order(const RunRecord& record, const VersionRules& rules);

}  // namespace pushpull
