#include "client/upcoming_tasks.h"

#include <algorithm>

namespace pushpull {

std::deque<HandedTask>::iterator UpcomingTasks::waiting(const Key& key) {
  return std::ranges::find(waiting_, key, key_of);
}

void UpcomingTasks::add(HandedTask task) {
  const Key key = key_of(task);
  if (waiting_.size() == kMaxTasks || told_.contains(key)) return;
  if (waiting(key) == waiting_.end()) waiting_.push_back(std::move(task));
}

void UpcomingTasks::begin(const HandedTask& task) {
  told_.erase(key_of(task));
  const auto found = waiting(key_of(task));
  if (found != waiting_.end()) waiting_.erase(waiting_.begin(), found + 1);
}

// A task that was told and never begins would be known for ever: the oldest steps are forgotten.
std::optional<HandedTask> UpcomingTasks::take() {
  if (waiting_.empty()) return std::nullopt;
  HandedTask task = std::move(waiting_.front());
  waiting_.pop_front();
  told_.insert(key_of(task));
  if (told_.size() > kMaxTasks) told_.erase(told_.begin());
  return task;
}

}  // namespace pushpull
