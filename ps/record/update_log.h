// The updates that a server has applied, in its order, kept until the coordinator has them for the
// record of the run. One part is in flight at a time, and is resent until acknowledged. Does no
// I/O. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "common/net/message.h"

namespace pushpull {

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

}  // namespace pushpull
