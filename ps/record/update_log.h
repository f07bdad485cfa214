// The updates that a server has applied, in its order, until the coordinator has them for the
// record of the run. One part is on its way at a time, repeated until it is confirmed. Knows no
// connection. One thread.
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
  static constexpr int64_t kEveryMs = 50;    // between parts, so that small ones wait for company
  static constexpr int64_t kRepeatMs = 300;  // until a part is confirmed
  static constexpr size_t kMostEntries = 4096;           // of one part
  static constexpr size_t kMostBytes = size_t{1} << 18;  // of one part, about

  void add(wire::Applied applied);

  // Entries that the coordinator has not confirmed, oldest first, as many as one message may hold;
  // empty when there are none.
  std::optional<wire::RecordPart> part() const;
  // The same where it is time to send it: for the first time, or again.
  std::optional<wire::RecordPart> due(int64_t now_ms);
  // The coordinator has so many entries.
  void confirm(int64_t through);
  // All that is not confirmed, before the process ends.
  std::vector<wire::RecordPart> take_rest();

  // All that were ever added.
  int64_t size() const { return confirmed_ + static_cast<int64_t>(open_.size()); }
  int64_t confirmed() const { return confirmed_; }

 private:
  std::deque<wire::Applied> open_;  // from confirmed_ on
  int64_t confirmed_ = 0;
  int64_t due_ms_ = 0;
};

}  // namespace pushpull
