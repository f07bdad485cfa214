#include "ps/members/work_groups.h"

#include <algorithm>
#include <tuple>

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
    std::string host;  // of the first one
    for (int stage = 0; stage < stages_; ++stage) {
      const auto choice = [&](const MemberInfo* m) {
        const int had = stage_of(m->incarnation);
        const int order = had == stage ? 0 : had == -1 ? 1 : 2;
        return std::tuple(order, !host.empty() && m->host != host, m->rank);
      };
      const auto found = std::ranges::min_element(free, {}, choice);
      if (found == free.end() || std::get<0>(choice(*found)) == 2) return;
      if (host.empty()) host = (*found)->host;
      workers.push_back((*found)->incarnation);
      free.erase(found);
    }
    for (int stage = 0; stage < stages_; ++stage) {
      stage_of_[workers[static_cast<size_t>(stage)]] = stage;
    }
    begin(std::move(workers));
  }
}

void WorkGroups::begin(std::vector<uint64_t> workers) {
  Group& group = groups_[++newest_];
  group.workers = std::move(workers);
  begin_attempt(newest_, group);
}

void WorkGroups::begin_attempt(uint64_t unit, Group& group) {
  group.attempt = ++attempts_;
  reports_[group.workers.back()][group.attempt] = unit;
}

uint64_t WorkGroups::renew(uint64_t unit) {
  begin(std::move(groups_.extract(unit).mapped().workers));
  return newest_;
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
  if (group != groups_.end()) begin_attempt(unit, group->second);
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

uint64_t WorkGroups::reports_for(uint64_t incarnation, int64_t attempt) const {
  if (!divides()) return incarnation;
  const auto worker = reports_.find(incarnation);
  if (worker == reports_.end()) return 0;
  const auto unit = worker->second.find(attempt);
  return unit == worker->second.end() ? 0 : unit->second;
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
  if (found != stage_of_.end()) return found->second;
  const MemberInfo* member = members_.find(incarnation);
  return member == nullptr ? -1 : member->stage;
}

std::map<uint64_t, GroupPlace> WorkGroups::places() const {
  std::map<uint64_t, GroupPlace> out;
  if (!divides()) return out;
  for (const auto& [incarnation, member] : members_.all()) {
    if (member.role != wire::ROLE_WORKER || member.rank < 0) continue;
    out[incarnation] = {unit_of(incarnation), stage_of(incarnation)};
  }
  return out;
}

int64_t WorkGroups::attempt_of(uint64_t unit) const {
  const auto group = groups_.find(unit);
  return group == groups_.end() ? 0 : group->second.attempt;
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

bool WorkGroups::add_to_worker_state(wire::State* state, uint64_t incarnation) const {
  if (!divides()) return true;
  const auto found = groups_.find(unit_of(incarnation));
  if (found == groups_.end()) return false;
  const std::vector<uint64_t>& workers = found->second.workers;
  const auto left = [this](uint64_t other) { return members_.find(other) == nullptr; };
  if (std::ranges::any_of(workers, left)) return false;
  wire::Group* group = state->mutable_group();
  group->set_stage(stage_of(incarnation));
  group->set_attempt(found->second.attempt);
  for (const uint64_t other : workers) {
    const MemberInfo* member = members_.find(other);
    wire::GroupMember* out = group->add_members();
    out->set_endpoint(member->group_endpoint);
    out->set_incarnation(other);
    out->set_rank(member->rank);
    out->set_port(member->port);
    out->set_local_stages(member->local_stages);
  }
  return true;
}

}  // namespace pushpull
