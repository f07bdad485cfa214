#include "worker/schedule/share_list.h"

#include <algorithm>
#include <utility>

#include "common/base/error.h"

namespace pushpull {

bool ShareList::assign(const wire::State& state,
                       const std::function<int64_t(int64_t from_step)>& clock, bool may_be_empty) {
  std::vector<OwnedShare> shares;
  bool grown = false;
  for (const wire::Share& assigned : state.assigned()) {
    const auto known = std::find_if(shares_.begin(), shares_.end(), [&](const OwnedShare& share) {
      return share.index == assigned.index();
    });
    const Range range{assigned.lo(), assigned.hi()};
    if (known != shares_.end() && known->range == range) {
      shares.push_back(*known);
      continue;
    }
    const bool fits = assigned.index() >= 0 && assigned.index() < plan_.shares && range.lo >= 0 &&
                      (range.lo < range.hi || (may_be_empty && range == Range{})) &&
                      range.hi <= plan_.micro_batches && assigned.from_step() >= 0;
    if (!fits) throw Error(ErrorCode::kProtocol, "[state] the coordinator has assigned no share");
    OwnedShare share;
    share.range = range;
    share.index = assigned.index();
    share.evaluated_through = assigned.from_step();
    share.clock = clock(assigned.from_step());
    share.grant = assigned.grant();
    shares.push_back(share);
    grown = true;
  }
  shares_ = std::move(shares);
  return grown;
}

void ShareList::begin_at(int64_t clock) {
  for (OwnedShare& share : shares_) {
    if (share.clock < 0) share.clock = clock;
  }
}

const OwnedShare* ShareList::lowest() const {
  const int64_t end = plan_.barriers.end_step;
  const OwnedShare* best = nullptr;
  for (const OwnedShare& share : shares_) {
    if (share.clock > end || (share.clock == end && share.evaluated)) continue;
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
    if (&share != first && share.clock < task.step)
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
  const auto found = std::ranges::find(shares_, range, &OwnedShare::range);
  return found == shares_.end() ? wire::Grant{} : found->grant;
}

Range ShareList::chunks_of(const OwnedShare& share) const {
  return {share.index * plan_.chunks / plan_.shares,
          (share.index + 1) * plan_.chunks / plan_.shares};
}

}  // namespace pushpull
