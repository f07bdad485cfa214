#include "ps/server/pending_pull.h"

#include <utility>

namespace pushpull {

namespace {

constexpr int64_t kMaxReceived = int64_t{1} << 50;  // sums cannot overflow

}  // namespace

PendingPull::PendingPull(PeerId peer, const wire::Pull& pull, size_t slices, bool one_version)
    : peer_(std::move(peer)), pull_(pull), open_(true) {
  if (one_version) {
    received_bytes_ = std::min(pull.received_bytes(), kMaxReceived);
    sent_bytes_ = received_bytes_;
  }
  if (pull.lease_only()) return;
  unsent_.reserve(slices);
  for_places(slices, [this](size_t place) { unsent_.insert(place); });
}

void PendingPull::on_sent(size_t place, int64_t bytes) {
  sent_bytes_ += bytes;
  unsent_.erase(place);
}

void PendingPull::on_received(int64_t bytes) {
  received_bytes_ = std::clamp(bytes, received_bytes_, sent_bytes_);
}

void PendingPull::repeat(const wire::Pull& pull, const std::vector<int>& slices, int servers) {
  if (pull.asked() < pull_.asked()) return;
  pull_ = pull;
  on_received(pull.received_bytes());
  if (report_ == 0 || pull.heard() < report_) return;
  report_ = 0;
  // slices sent before the report have been counted by the worker, or are lost
  const int64_t since = std::max<int64_t>(0, sent_bytes_ - sent_at_report_);
  sent_bytes_ = received_bytes_ + since;
  for (const int slice : pull.missing()) {
    if (slice < 0) continue;
    const auto place = static_cast<size_t>(slice / servers);
    if (place >= slices.size() || slices[place] != slice) continue;  // another server's
    if (!settled_.contains(place)) continue;
    settled_.erase(place);
    if (unsent_.insert(place)) open_ = true;
  }
}

void PendingPull::on_progress_report(size_t slices) {
  if (report_ != 0) return;  // the last report may still be in flight
  report_ = pull_.asked();
  sent_at_report_ = sent_bytes_;
  settled_ = {};
  for_places(slices, [this](size_t place) {
    if (!unsent_.contains(place)) settled_.insert(place);
  });
}

}  // namespace pushpull
