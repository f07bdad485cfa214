// Tracks which pushes of one worker are complete at a server, for acknowledgements. One thread.
#pragma once

#include <cstdint>
#include <set>

namespace pushpull {

// Pushes of one worker's life are numbered 1, 2, ...
class PushTracker {
 public:
  bool complete(int64_t number) const { return number <= through_ || beyond_.contains(number); }
  void mark(int64_t number);
  // Pushes below this number do not come.
  void begin_at(int64_t first);
  // All pushes up to this number are complete.
  int64_t through() const { return through_; }

 private:
  int64_t through_ = 0;
  std::set<int64_t> beyond_;
};

}  // namespace pushpull
