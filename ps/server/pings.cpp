#include "ps/server/pings.h"

#include "common/base/error.h"

namespace pushpull {

bool Pings::within_limits(int64_t now_ms, int64_t bytes) {
  if (now_ms - second_ms_ >= 1000) {
    second_ms_ = now_ms;
    answers_ = 0;
    bytes_ = 0;
  }
  if (answers_ >= kMaxPerSecond || bytes_ + bytes > kMaxBytesPerSecond) return false;
  ++answers_;
  bytes_ += bytes;
  return true;
}

Payload Pings::filler(int64_t bytes) {
  if (!zeros_) zeros_ = std::make_shared<std::byte[]>(kMaxBytes);
  return {zeros_, std::span(zeros_.get(), static_cast<size_t>(bytes))};
}

// Offers a page of memory for the peer to map. Only a process of this user on this host can map it,
// and such a process could read all memory of this one in any case.
void Pings::offer_memory(const std::string& theirs, wire::Pong& pong) {
  const std::string difference = host_difference(theirs, host_identity());
  if (!difference.empty()) return pong.set_text(difference);
  try {
    if (!probe_) probe_.emplace(1);
    *pong.mutable_probe() = probe_->description();
  } catch (const Error& e) {
    pong.set_text(e.what());
  }
}

Checked Pings::take(int64_t now_ms, const wire::Ping& ping, Message& answer) {
  const int64_t bytes = ping.answer_bytes();
  if (bytes < 0 || bytes > kMaxBytes || bytes % static_cast<int64_t>(sizeof(float)) != 0) {
    return refused("ping-bytes",
                   "a request for whole floats, at most " + std::to_string(kMaxBytes) + " bytes",
                   std::to_string(bytes));
  }
  if (!within_limits(now_ms, bytes)) {
    return refused("ping-rate",
                   std::to_string(kMaxPerSecond) + " requests a second, and " +
                       std::to_string(kMaxBytesPerSecond) + " bytes",
                   "more");
  }
  wire::Pong* pong = answer.header.mutable_pong();
  pong->set_number(ping.number());
  if (!ping.host().empty()) offer_memory(ping.host(), *pong);
  if (bytes > 0) answer.payloads.push_back(filler(bytes));
  return {};
}

}  // namespace pushpull
