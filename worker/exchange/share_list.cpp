#include "worker/exchange/share_list.h"

#include <algorithm>
#include <utility>

#include "common/base/error.h"

namespace pushpull {

bool ShareList::assign(const wire::State& state,
                       const std::function<int64_t(int64_t from_step)>& clock, bool may_be_empty) {
  std::vector<OwnedShare> shares;
  bool grown = false;
  const int64_t end = plan_.barriers.end_step;
  for (const wire::Share& assigned : state.assigned()) {
    const int count = assigned.shares() == 0 ? plan_.shares : assigned.shares();
    const Range steps{assigned.first_step(), assigned.to_step() == 0 ? end : assigned.to_step()};
    const auto known = std::find_if(shares_.begin(), shares_.end(), [&](const OwnedShare& share) {
      return share.index == assigned.index() && share.shares == count &&
             share.attempt == state.group().attempt();
    });
    const Range range{assigned.lo(), assigned.hi()};
    if (known != shares_.end() && known->range == range) {
      shares.push_back(*known);
      shares.back().steps = steps;
      continue;
    }
    const bool fits = assigned.index() >= 0 && assigned.index() < count && range.lo >= 0 &&
                      (range.lo < range.hi || (may_be_empty && range == Range{})) &&
                      range.hi <= plan_.micro_batches && assigned.from_step() >= 0 &&
                      steps.lo >= 0 && steps.hi <= end;
    if (!fits)
      throw Error(ErrorCode::kProtocol,
                  "[state] the coordinator has assigned a share that cannot exist");
    OwnedShare share;
    share.range = range;
    share.steps = steps;
    share.shares = count;
    share.index = assigned.index();
    // The end is not evaluated though the run starts there.
    share.evaluated_through = assigned.from_step() - (plan_.barriers.starts_at_end() ? 1 : 0);
    share.clock = clock(assigned.from_step());
    if (share.clock >= 0) share.clock = std::max(share.clock, steps.lo);
    share.grant = assigned.grant();
    share.attempt = state.group().attempt();
    shares.push_back(share);
    grown = true;
  }
  shares_ = std::move(shares);
  return grown;
}

void ShareList::begin_at(int64_t clock) {
  for (OwnedShare& share : shares_) {
    if (share.clock < 0) share.clock = std::max(clock, share.steps.lo);
  }
}

int64_t ShareList::unfinished() const {
  return std::count_if(shares_.begin(), shares_.end(),
                       [this](const OwnedShare& share) { return !finished(share); });
}

int64_t ShareList::newest_clock() const {
  int64_t newest = 0;
  for (const OwnedShare& share : shares_) newest = std::max(newest, share.clock);
  return newest;
}

const OwnedShare* ShareList::lowest() const {
  const int64_t end = plan_.barriers.end_step;
  const OwnedShare* best = nullptr;
  for (const OwnedShare& share : shares_) {
    if (finished(share) || share.clock > end || (share.clock == end && share.evaluated)) continue;
    if (best == nullptr || share.clock < best->clock) best = &share;
  }
  return best;
}

std::optional<Task> ShareList::next_task() const {
  const OwnedShare* share = lowest();
  if (share == nullptr) return std::nullopt;
  if (plan_.barriers.evaluation_due(share->clock) && !share->evaluated) {
    return Task{Task::kEvaluate, share->clock, chunks_of(*share)};
  }
  const int64_t steps = plan_.barriers.round_end(share->clock) - share->clock;
  return Task{Task::kCompute, share->clock, share->range, steps};
}

std::optional<Task> ShareList::upcoming() const {
  const OwnedShare* first = lowest();
  if (first == nullptr) return std::nullopt;
  Task task{Task::kCompute, plan_.barriers.round_end(first->clock), first->range};
  for (const OwnedShare& share : shares_) {
    if (&share != first && !finished(share) && share.clock < task.step)
      task = {Task::kCompute, share.clock, share.range};
  }
  if (task.step >= plan_.barriers.end_step) return std::nullopt;
  return task;
}

void ShareList::pushed(int64_t step, Range range) {
  const OwnedShare* found = lowest();
  PP_ASSERT(found != nullptr && found->range == range && found->clock == step);
  OwnedShare& share = shares_[static_cast<size_t>(found - shares_.data())];
  share.clock = plan_.barriers.round_end(step);
  share.evaluated = false;
}

void ShareList::evaluated() {
  const OwnedShare* found = lowest();
  PP_ASSERT(found != nullptr);
  shares_[static_cast<size_t>(found - shares_.data())].evaluated = true;
}

wire::Grant ShareList::grant(Range range) const {
  const auto found = std::find_if(shares_.begin(), shares_.end(), [&](const OwnedShare& share) {
    return share.range == range && !finished(share);
  });
  return found == shares_.end() ? wire::Grant{} : found->grant;
}

Range ShareList::chunks_of(const OwnedShare& share) const {
  return share_range(share.index, share.shares, plan_.chunks);
}

}  // namespace pushpull
