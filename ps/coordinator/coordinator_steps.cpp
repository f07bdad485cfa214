// Coordinator: what the servers need to know of each other to end a step. The norm of the whole
// gradient; for backup:B one set of pushes, evaluations that wait for everybody, and whose pushes
// were dropped.
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "common/layout/slice_map.h"
#include "ps/coordinator/coordinator.h"

namespace pushpull {

bool Coordinator::on_norms(const wire::Norms& norms) {
  const MemberInfo* member = members_.find(norms.incarnation());
  if (member == nullptr || member->role != wire::ROLE_SERVER || !training_) return false;
  if (norms.step() < barriers_.start_step || norms.step() >= barriers_.end_step) return false;
  if (norm_total_ && norm_total_->step() == norms.step()) {
    Message message;
    *message.header.mutable_norm_total() = *norm_total_;
    outgoing_.push_back({member->peer, std::move(message)});
    return true;
  }
  if (norms.step() < norm_step_) return true;
  if (norms.step() > norm_step_) norms_.clear();
  norm_step_ = norms.step();
  norms_[norms.incarnation()] = norms;
  if (static_cast<int>(norms_.size()) < servers_with_slices()) return true;
  const SliceMap map(declaration_.table.total, options_.job.slice_bytes, options_.servers);
  std::vector<NormPart> parts;
  for (const auto& [incarnation, part] : norms_) {
    for (const wire::NormNode& node : part.nodes()) {
      parts.push_back({{node.lo(), node.hi()}, node.squares()});
    }
  }
  norm_total_.emplace();
  norm_total_->set_step(norm_step_);
  norm_total_->set_norm(std::sqrt(total_squares(std::move(parts), map.blocks())));
  norms_.clear();
  Message message;
  *message.header.mutable_norm_total() = *norm_total_;
  tell_servers(message);
  return true;
}

void Coordinator::tell_servers(const Message& message) {
  for (const auto& [incarnation, server] : members_.all()) {
    if (server.role == wire::ROLE_SERVER) outgoing_.push_back({server.peer, message});
  }
}

int Coordinator::servers_with_slices() const {
  const SliceMap map(declaration_.table.total, options_.job.slice_bytes, options_.servers);
  return std::min(options_.servers, map.slices());
}

// ---- backup:B ----

bool Coordinator::on_arrived(const wire::Arrived& arrived) {
  const MemberInfo* member = members_.find(arrived.incarnation());
  if (member == nullptr || member->role != wire::ROLE_SERVER || !choice_) return false;
  if (arrived.step() < barriers_.start_step || arrived.step() >= barriers_.end_step) return false;
  if (!choice_->take(arrived)) return true;
  Message message;
  *message.header.mutable_chosen() = *choice_->chosen();
  if (choice_->fixed_now()) {
    tell_servers(message);
  } else {
    outgoing_.push_back({member->peer, std::move(message)});
  }
  return true;
}

int64_t Coordinator::evaluated_barrier() const {
  if (evaluations_->complete(barriers_.end_step)) return barriers_.end_step;
  const auto& newest = evaluations_->newest();
  return newest ? newest->step : barriers_.start_step;
}

// The chunks of a share that nobody computes are evaluated all the same.
void Coordinator::find_evaluators() {
  for (ShareOwner& share : share_owners_) {
    if (share.owner != 0 || share.evaluator != 0) continue;
    share.evaluator = least_loaded(INT64_MAX);
    if (share.evaluator == 0) return;
    share.from_step = evaluated_barrier();
    ++state_version_;
    dirty_ = true;
  }
}

// backup:B: whose pushes came too late, and how many.
void Coordinator::say_dropped() {
  const std::vector<int64_t>& dropped = training_->pushes_dropped_per_worker();
  std::string text;
  for (size_t rank = 0; rank < dropped.size(); ++rank) {
    if (dropped[rank] == 0) continue;
    text += text.empty() ? "dropped " : ", ";
    text += std::to_string(dropped[rank]) + (text == "dropped " ? " pushes" : "") + " of worker " +
            std::to_string(rank);
  }
  if (!text.empty()) notices_.push_back(text + ": their steps were made of other pushes");
}

}  // namespace pushpull
