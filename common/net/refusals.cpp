#include "common/net/refusals.h"

namespace pushpull {

bool Refusals::add(const PeerId& peer, const Refusal& refusal, int64_t now_ms) {
  const std::string reason(refusal.reason);
  ++counts_[reason];
  ++total_;
  if (now_ms - window_ms_ >= kWindowMs) {
    window_ms_ = now_ms;
    reports_ = 0;
  }
  if (reports_ >= kMaxReports || known_.contains({peer, reason})) return false;
  // a peer that reconnects again and again is a new peer each time
  if (known_.size() >= kMaxKnown) known_.clear();
  known_.emplace(peer, reason);
  ++reports_;
  return true;
}

void Refusals::report(int64_t rejected, wire::Stats& stats) const {
  stats.set_rejected_frames(rejected);
  const auto set = [&](const std::string& reason, int64_t count) {
    wire::Refusal* refusal = stats.add_refusals();
    refusal->set_reason(reason);
    refusal->set_count(count);
  };
  for (const auto& [reason, count] : counts_) set(reason, count);
  if (rejected > total_) set("frame", rejected - total_);
}

}  // namespace pushpull
