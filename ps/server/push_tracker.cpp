#include "ps/server/push_tracker.h"

namespace pushpull {

void PushTracker::mark(int64_t number) {
  if (complete(number)) return;
  beyond_.insert(number);
  while (!beyond_.empty() && *beyond_.begin() == through_ + 1) {
    ++through_;
    beyond_.erase(beyond_.begin());
  }
}

void PushTracker::begin_at(int64_t first) {
  if (first <= through_ + 1) return;
  through_ = first - 1;
  while (!beyond_.empty() && *beyond_.begin() <= through_) beyond_.erase(beyond_.begin());
  while (!beyond_.empty() && *beyond_.begin() == through_ + 1) {
    ++through_;
    beyond_.erase(beyond_.begin());
  }
}

}  // namespace pushpull
