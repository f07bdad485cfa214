#include "ps/record/update_log.h"

#include <algorithm>
#include <utility>

namespace pushpull {

void UpdateLog::add(wire::Applied applied) { open_.push_back(std::move(applied)); }

std::optional<wire::RecordPart> UpdateLog::part() const {
  if (open_.empty()) return std::nullopt;
  wire::RecordPart out;
  out.set_first(confirmed_);
  size_t bytes = 0;
  for (const wire::Applied& applied : open_) {
    bytes += applied.ByteSizeLong();
    const bool full = static_cast<size_t>(out.applied_size()) >= kMaxEntries || bytes > kMaxBytes;
    if (full && out.applied_size() > 0) break;
    *out.add_applied() = applied;
  }
  return out;
}

void UpdateLog::confirm(int64_t through) {
  const int64_t news = std::min(through - confirmed_, static_cast<int64_t>(open_.size()));
  if (news <= 0) return;
  open_.erase(open_.begin(), open_.begin() + news);
  confirmed_ += news;
  // A backlog is sent at once: a server faster than the acknowledgements would otherwise never
  // catch up.
  const bool piled_up = open_.size() >= kMaxEntries;
  due_ms_ = piled_up ? 0 : std::min(due_ms_, due_ms_ - kRepeatMs + kEveryMs);
}

std::optional<wire::RecordPart> UpdateLog::due(int64_t now_ms) {
  if (open_.empty() || now_ms < due_ms_) return std::nullopt;
  due_ms_ = now_ms + kRepeatMs;
  return part();
}

std::vector<wire::RecordPart> UpdateLog::take_rest() {
  std::vector<wire::RecordPart> out;
  while (const auto rest = part()) {
    confirm(rest->first() + rest->applied_size());
    out.push_back(*rest);
  }
  return out;
}

}  // namespace pushpull
