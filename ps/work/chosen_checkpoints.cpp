#include "ps/work/chosen_checkpoints.h"

#include <algorithm>

namespace pushpull {

void ChosenCheckpoints::choose(int64_t step) {
  newest_ = step;
  held_ = true;
  out_.state_changed();
  announced_version_ = out_.state_version();
}

bool ChosenCheckpoints::on_tick() {
  if (!held_ || !all_confirmed()) return false;
  held_ = false;
  out_.state_changed();
  return true;
}

// The server in the coordinator's process receives each State at once. A spare has no rank and gets
// its first work with a State that names the checkpoint.
bool ChosenCheckpoints::all_confirmed() const {
  const auto& all = members_.all();
  return std::all_of(all.begin(), all.end(), [&](const auto& entry) {
    const MemberInfo& member = entry.second;
    if (member.role == wire::ROLE_WORKER && !workers_) return true;
    return member.peer.empty() || member.rank < 0 || member.state_version >= announced_version_;
  });
}

}  // namespace pushpull
