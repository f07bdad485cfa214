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
    bool more = false;  // the next entry is part of the same update
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

// How versions are counted: by the updates that a server has had, or by its step.
struct VersionRules {
  // Versions are steps, and all entries of a step at a server make one update (backup). Otherwise
  // each update makes one version.
  bool in_steps = false;
  int64_t start = 0;    // version of every server
  int with_slices = 1;  // servers from here on hold no slices, and have no versions
};

// versions start with the run's `start`; elements: of the flat vector.
VersionRules version_rules(const Job& job, const RecordedStart& start, int64_t elements,
                           int servers);

// One order in which everything can have happened: each server's own order is kept, and a push that
// has read version v of server k comes after the update that made v. The pushes of one update stand
// together. If several servers could be next, it is the one with the fewest entries so far, then
// the one of lower rank.
// Left out are: an entry that has read something that no log holds, with all of its server behind
// it; an update whose last entries were lost. Returns how many entries those are.
int64_t merge_logs(const ServerLogs& logs, const VersionRules& rules, RunRecord& out);

// For each entry of the record, whether it is the last one of its update. Entries that are marked
// with `more` make one update with the next one of their server, as do those of one step where
// rules.in_steps: old files have no marks.
std::vector<bool> ends_of_updates(const RunRecord& record, const VersionRules& rules);

// Whether a record's updates can be computed one after the other. Returns what is wrong, "" for
// nothing.
std::string check_order(const RunRecord& record, const VersionRules& rules);

}  // namespace pushpull
