#include "ps/work/work_groups.h"

#include <algorithm>

#include "common/base/error.h"

namespace pushpull {

std::vector<const MemberInfo*> WorkGroups::free_workers() const {
  std::vector<const MemberInfo*> out;
  for (const auto& [incarnation, member] : members_.all()) {
    const bool has_rank = member.role == wire::ROLE_WORKER && member.rank >= 0;
    if (has_rank && unit_of(incarnation) == 0) out.push_back(&member);
  }
  std::ranges::sort(out, {}, &MemberInfo::rank);
  return out;
}

void WorkGroups::form() {
  if (!divides()) return;
  while (true) {
    std::vector<const MemberInfo*> free = free_workers();
    std::vector<uint64_t> workers;
    for (int stage = 0; stage < stages_; ++stage) {
      const auto with = [&](int wanted) {
        return std::ranges::find_if(
            free, [&](const MemberInfo* m) { return stage_of(m->incarnation) == wanted; });
      };
      auto found = with(stage);
      if (found == free.end()) found = with(-1);
      if (found == free.end()) return;
      workers.push_back((*found)->incarnation);
      free.erase(found);
    }
    for (int stage = 0; stage < stages_; ++stage) {
      stage_of_[workers[static_cast<size_t>(stage)]] = stage;
    }
    reports_[workers.back()].insert(++newest_);
    groups_[newest_] = {std::move(workers), ++attempts_};
  }
}

uint64_t WorkGroups::lose(uint64_t incarnation) {
  if (!divides()) return incarnation;
  const uint64_t unit = unit_of(incarnation);
  groups_.erase(unit);
  stage_of_.erase(incarnation);
  reports_.erase(incarnation);
  return unit;
}

void WorkGroups::work_changed(uint64_t unit) {
  const auto group = groups_.find(unit);
  if (group != groups_.end()) group->second.attempt = ++attempts_;
}

std::vector<uint64_t> WorkGroups::units() const {
  std::vector<uint64_t> out;
  for (const auto& [unit, group] : groups_) out.push_back(unit);
  if (divides()) return out;
  for (const auto& [incarnation, member] : members_.all()) {
    if (member.role == wire::ROLE_WORKER && member.rank >= 0) out.push_back(incarnation);
  }
  return out;
}

uint64_t WorkGroups::unit_of(uint64_t incarnation) const {
  if (!divides()) return incarnation;
  const auto found = std::ranges::find_if(groups_, [&](const auto& entry) {
    return std::ranges::find(entry.second.workers, incarnation) != entry.second.workers.end();
  });
  return found == groups_.end() ? 0 : found->first;
}

std::set<uint64_t> WorkGroups::reports_for(uint64_t incarnation) const {
  if (!divides()) return {incarnation};
  const auto found = reports_.find(incarnation);
  return found == reports_.end() ? std::set<uint64_t>{} : found->second;
}

uint64_t WorkGroups::unit_at(int index) const {
  if (divides()) {
    const std::vector<uint64_t> all = units();
    return index < std::ssize(all) ? all[static_cast<size_t>(index)] : 0;
  }
  const MemberInfo* worker = members_.find_rank(wire::ROLE_WORKER, index);
  return worker == nullptr ? 0 : worker->incarnation;
}

std::vector<uint64_t> WorkGroups::workers_of(uint64_t unit) const {
  if (!divides()) return {unit};
  const auto found = groups_.find(unit);
  return found == groups_.end() ? std::vector<uint64_t>{} : found->second.workers;
}

int WorkGroups::stage_of(uint64_t incarnation) const {
  const auto found = stage_of_.find(incarnation);
  return found == stage_of_.end() ? -1 : found->second;
}

std::string WorkGroups::name(uint64_t unit) const {
  std::string text;
  const std::vector<uint64_t> workers = workers_of(unit);
  for (const uint64_t incarnation : workers) {
    const MemberInfo* member = members_.find(incarnation);
    if (member == nullptr) continue;
    if (workers.size() == 1) return member->name();
    text += (text.empty() ? "workers " : ", ") + std::to_string(member->rank);
  }
  return text;
}

std::string WorkGroups::missing() const {
  std::vector<int64_t> of_stage(static_cast<size_t>(stages_));
  int64_t unset = 0;
  for (const MemberInfo* member : free_workers()) {
    const int stage = stage_of(member->incarnation);
    stage < 0 ? ++unset : ++of_stage[static_cast<size_t>(stage)];
  }
  std::string text;
  for (size_t stage = 0; stage < of_stage.size(); ++stage) {
    if (of_stage[stage] > 0 || unset-- > 0) continue;
    text += (text.empty() ? "stage " : ", ") + std::to_string(stage);
  }
  return text;
}

void WorkGroups::add_to_worker_state(wire::State* state, uint64_t incarnation) const {
  const auto found = groups_.find(divides() ? unit_of(incarnation) : 0);
  if (found == groups_.end()) return;
  wire::Group* group = state->mutable_group();
  group->set_stage(stage_of(incarnation));
  group->set_attempt(found->second.attempt);
  for (const uint64_t other : found->second.workers) {
    const MemberInfo* member = members_.find(other);
    PP_ASSERT(member != nullptr);
    wire::GroupMember* out = group->add_members();
    out->set_endpoint(member->peer_endpoint);
    out->set_incarnation(other);
    out->set_rank(member->rank);
  }
}

}  // namespace pushpull
