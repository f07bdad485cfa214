// The updates that servers apply: the log of one server, and those of all at the coordinator.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "common/io/record.h"
#include "common/layout/tensor_table.h"
#include "common/net/message.h"
#include "common/net/refusals.h"

namespace pushpull {

struct Job;

// The updates that a server has applied, in its order, kept until the coordinator has them for the
// record of the run. One part is in flight at a time, and is resent until acknowledged. Does no
// I/O. Not thread-safe.
class UpdateLog {
 public:
  static constexpr int64_t kEveryMs = 50;               // between parts, to collect small ones
  static constexpr int64_t kRepeatMs = 300;             // resend interval of a part
  static constexpr size_t kMaxEntries = 4096;           // per part
  static constexpr size_t kMaxBytes = size_t{1} << 18;  // per part, approximately

  void add(wire::Applied applied);

  // Returns the oldest unacknowledged entries, as many as fit into one message, or nothing.
  std::optional<wire::RecordPart> part() const;
  // Returns `part` if it is time to send or resend it.
  std::optional<wire::RecordPart> due(int64_t now_ms);
  // Notes that the coordinator has this many entries.
  void confirm(int64_t through);
  // Returns all unacknowledged entries. Call before the process ends.
  std::vector<wire::RecordPart> take_rest();

  // The number of entries ever added.
  int64_t size() const { return confirmed_ + static_cast<int64_t>(open_.size()); }
  int64_t confirmed() const { return confirmed_; }

 private:
  std::deque<wire::Applied> open_;  // from confirmed_ on
  int64_t confirmed_ = 0;
  int64_t due_ms_ = 0;
};

// The updates that the servers of a recorded run have applied, collected by the coordinator and
// merged into one order. Does no I/O. Not thread-safe.
class ServerLogs {
 public:
  struct Entry {
    RecordedPush push;
    bool uncompensated = false;
    bool more = false;  // the next entry is part of the same update
  };

  //   micro_batches: per step. stages: of a group of workers.
  ServerLogs(int servers, int64_t micro_batches, int64_t stages = 1);

  // Takes entries of `server`, in its order. Drops repeated ones; ignores a part after a gap, which
  // the server will resend. Refuses entries that cannot belong to a log.
  Checked take(int server, const wire::RecordPart& part);
  // The number of this server's entries so far.
  int64_t have(int server) const { return std::ssize(logs_[static_cast<size_t>(server)]); }

  int servers() const { return static_cast<int>(logs_.size()); }
  const std::vector<Entry>& of(int server) const { return logs_[static_cast<size_t>(server)]; }
  // Converts a message to a push, in `out`. Refuses one that cannot be a push of this run.
  Checked to_push(const wire::Applied& applied, RecordedPush& out) const;

 private:
  int64_t micro_batches_;
  int64_t stages_;
  std::vector<std::vector<Entry>> logs_;
};

// How versions are counted: by a server's updates, or by its step.
struct VersionRules {
  // Versions are steps, and all entries of a step at a server make one update (backup). Otherwise
  // each update makes one version.
  bool in_steps = false;
  int64_t start = 0;  // first version of every server
  int servers = 1;
  int with_slices = 1;  // servers from this rank on hold no slices and have no versions

  // A version that a stage of the model, usually the only one, has read of a server with slices.
  struct Read {
    int64_t version = 0;
    size_t server = 0;
    size_t stage = 0;
  };
  std::vector<Read> reads_of(const RecordedPush& push) const;
};

// Versions start at the run's `start`.
VersionRules version_rules(const Job& job, const RecordedStart& start, const TensorTable& table,
                           int servers);

// Merges the logs into a possible order of events: each server's own order is kept, and a push that
// has read version v of server k follows the update that made v. The pushes of one update stay
// together. If several servers could be next, the one with the fewest entries so far is taken, then
// the one with the lower rank. Leaves out an entry that has read a version missing from all logs,
// with all later entries of its server, and an update that has lost its last entries. Returns the
// number of entries left out.
int64_t merge_logs(const ServerLogs& logs, const VersionRules& rules, RunRecord& out);

// Returns for each entry of the record whether it is the last one of its update. An entry marked
// `more` makes one update with its server's next one. So do entries of one step if rules.in_steps,
// since old files have no marks.
std::vector<bool> ends_of_updates(const RunRecord& record, const VersionRules& rules);

// Returns why a record's updates cannot be computed one after the other, or "".
std::string check_order(const RunRecord& record, const VersionRules& rules);

}  // namespace pushpull
