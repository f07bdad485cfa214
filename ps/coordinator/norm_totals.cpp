#include "ps/coordinator/norm_totals.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "common/layout/slice_map.h"
#include "common/update/norm.h"

namespace pushpull {

NormTotals::NormTotals(const SliceMap& map, int64_t kept)
    : servers_(std::min(map.servers(), map.slices())), blocks_(map.blocks()), kept_(kept) {}

bool NormTotals::take(const wire::Norms& norms) {
  all_here_now_ = false;
  if (const auto known = norms_.find(norms.step()); known != norms_.end()) {
    total_.emplace();
    total_->set_step(known->first);
    total_->set_norm(known->second);
    return true;
  }
  if (norms.step() < step_) return false;
  if (norms.step() > step_) parts_.clear();
  step_ = norms.step();
  parts_[norms.incarnation()] = norms;
  if (static_cast<int>(parts_.size()) < servers_) return false;
  std::vector<NormPart> nodes;
  for (const auto& [incarnation, part] : parts_) {
    for (const wire::NormNode& node : part.nodes()) {
      nodes.push_back({{node.lo(), node.hi()}, node.squares()});
    }
  }
  total_.emplace();
  total_->set_step(step_);
  total_->set_norm(std::sqrt(total_squares(std::move(nodes), blocks_)));
  parts_.clear();
  norms_[step_] = total_->norm();
  norms_.erase(norms_.begin(), norms_.lower_bound(step_ - kept_));
  all_here_now_ = true;
  return true;
}

}  // namespace pushpull
