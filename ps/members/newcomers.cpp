#include "ps/members/newcomers.h"

#include <algorithm>
#include <utility>

namespace pushpull {

namespace {

constexpr size_t kMost = 64;
constexpr int64_t kForgetMs = 3600'000;

}  // namespace

int64_t Newcomers::wait(int64_t now_ms, const PeerId& peer, uint64_t incarnation) {
  std::erase_if(all_,
                [now_ms](const auto& entry) { return now_ms - entry.second.since_ms > kForgetMs; });
  // A flood of Hellos must not displace a process that repeats its own.
  if (all_.size() >= kMost && !all_.contains(incarnation)) {
    all_.erase(std::min_element(all_.begin(), all_.end(), [](const auto& a, const auto& b) {
      return a.second.heard_ms < b.second.heard_ms;
    }));
  }
  Newcomer& newcomer = all_.try_emplace(incarnation, Newcomer{now_ms, now_ms, peer}).first->second;
  newcomer.heard_ms = now_ms;
  newcomer.peer = peer;
  return now_ms - newcomer.since_ms;
}

void Newcomers::answer(const PeerId& peer, const std::string& reason) {
  Message message;
  message.header.mutable_no_place_yet()->set_text(reason);
  out_.send(peer, std::move(message));
}

void Newcomers::end(const Error& end) {
  if (end_) return;
  end_ = end;
  for (const auto& [incarnation, newcomer] : all_) {
    out_.refuse(newcomer.peer, end.code(), end.what());
  }
  all_.clear();
}

}  // namespace pushpull
