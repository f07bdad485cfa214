#include "ps/server/backup_set.h"

#include <algorithm>
#include <utility>

namespace pushpull {

bool BackupSet::add(ReceivedPush&& push) {
  const int64_t first = push.range.lo;
  return pushes_.try_emplace(first, std::move(push)).second;
}

std::vector<int64_t> BackupSet::complete() const {
  std::vector<int64_t> out;
  for (const auto& [lo, push] : pushes_) out.push_back(lo);
  return out;
}

bool BackupSet::choose(const std::set<int64_t>& lo) {
  const auto here = [&](int64_t l) { return pushes_.contains(l); };
  if (decided() || !std::all_of(lo.begin(), lo.end(), here)) return false;
  chosen_ = lo;
  int64_t leaf = 0;
  for (const int64_t first : chosen_) {
    for (auto& [slice, part] : pushes_.at(first).parts) {
      parts_[slice].push_back(
          {{leaf, leaf + 1}, std::exchange(part.payload, Payload{}), part.kept});
    }
    ++leaf;
  }
  return decided();
}

int64_t BackupSet::micro_batches() const {
  int64_t sum = 0;
  for (const int64_t lo : chosen_) sum += pushes_.at(lo).range.size();
  return sum;
}

BackupSet::Done BackupSet::take() {
  Done out;
  for (auto& [lo, push] : pushes_) {
    push.parts.clear();
    (chosen_.contains(lo) ? out.counted : out.dropped).push_back(std::move(push));
  }
  pushes_.clear();
  parts_.clear();
  before_ = std::exchange(chosen_, {});
  return out;
}

bool BackupChoice::take(const wire::Arrived& arrived) {
  fixed_now_ = false;
  if (chosen_ && chosen_->step() == arrived.step()) return true;
  if (arrived.step() < step_) return false;
  if (arrived.step() > step_) {
    complete_.clear();
    order_.clear();
  }
  step_ = arrived.step();
  complete_[arrived.incarnation()].insert(arrived.lo().begin(), arrived.lo().end());
  if (static_cast<int>(complete_.size()) < servers_) return false;
  for (const int64_t lo : complete_.begin()->second) {
    const bool everywhere = std::all_of(complete_.begin(), complete_.end(),
                                        [lo](const auto& c) { return c.second.contains(lo); });
    const bool known = std::find(order_.begin(), order_.end(), lo) != order_.end();
    if (everywhere && !known) order_.push_back(lo);
  }
  if (static_cast<int>(order_.size()) < wanted_) return false;
  order_.resize(static_cast<size_t>(wanted_));
  std::sort(order_.begin(), order_.end());
  chosen_.emplace();
  chosen_->set_step(step_);
  for (const int64_t lo : order_) chosen_->add_lo(static_cast<int32_t>(lo));
  fixed_now_ = true;
  return true;
}

}  // namespace pushpull
