#include "ps/server/early_pushes.h"

#include <algorithm>
#include <utility>

namespace pushpull {

namespace {

// A message without payloads is no smaller.
constexpr int64_t kLeastBytes = 1024;

int64_t bytes_of(const EarlyPushes::Early& early) {
  int64_t bytes = kLeastBytes;
  for (const Payload& payload : early.payloads) bytes += std::ssize(payload.bytes);
  return bytes;
}

bool same(const wire::Exchange& a, const wire::Exchange& b) {
  const wire::Push& p = a.push();
  const wire::Push& q = b.push();
  if (a.sender().incarnation() != b.sender().incarnation() || p.number() != q.number())
    return false;
  if (p.parts_size() != q.parts_size()) return false;
  return p.parts_size() == 0 ||
         (p.parts(0).slice() == q.parts(0).slice() && p.parts(0).lo() == q.parts(0).lo());
}

}  // namespace

bool EarlyPushes::keep(Early early) {
  const int64_t step = early.exchange.push().step();
  const auto [begin, end] = waiting_.equal_range(step);
  if (std::any_of(begin, end,
                  [&](const auto& e) { return same(e.second.exchange, early.exchange); }))
    return false;
  int64_t& bytes = bytes_[early.exchange.sender().incarnation()];
  if (bytes + bytes_of(early) > most_bytes_) return false;
  bytes += bytes_of(early);
  waiting_.emplace(step, std::move(early));
  return true;
}

std::vector<EarlyPushes::Early> EarlyPushes::take(int64_t step) {
  std::vector<Early> out;
  while (any_of(step)) {
    Early& early = waiting_.begin()->second;
    bytes_[early.exchange.sender().incarnation()] -= bytes_of(early);
    out.push_back(std::move(early));
    waiting_.erase(waiting_.begin());
  }
  return out;
}

}  // namespace pushpull
