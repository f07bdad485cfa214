#include "ps/members/own_weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>

#include "common/base/text.h"
#include "common/net/intervals.h"
#include "ps/members/message_checks.h"

namespace pushpull {

namespace {

constexpr int64_t kMaxPart = 16'384;  // elements; 64 KiB: a second over 0.5 Mbit/s
constexpr int64_t kMaxWindow = 64;    // parts; 4 MiB
constexpr int64_t kMaxRepeatMs = 30'000;
constexpr int64_t kFastMs = 200;

const MemberInfo* lowest_worker(const Membership& members) {
  const MemberInfo* lowest = nullptr;
  for (const auto& [incarnation, member] : members.all()) {
    if (member.role != wire::ROLE_WORKER || !member.declared || member.rank < 0) continue;
    if (lowest == nullptr || member.rank < lowest->rank) lowest = &member;
  }
  return lowest;
}

}  // namespace

OwnWeights::OwnWeights(int64_t slice_bytes)
    : part_(std::min(kMaxPart, slice_bytes / static_cast<int64_t>(sizeof(float)))) {}

void OwnWeights::begin(const TensorTable& table) {
  table_ = table;
  giver_ = 0;
  error_.reset();
}

void OwnWeights::restart(const MemberInfo& giver) {
  giver_ = giver.incarnation;
  giver_name_ = giver.name();
  weights_.assign(static_cast<size_t>(table_.total), 0.0F);
  open_.clear();
  next_ = hashed_ = 0;
  hash_.emplace();
  window_ = 1;
  repeat_ms_ = kRequestMs;
}

int64_t OwnWeights::count_at(int64_t offset) const {
  return std::min(part_, table_.total - offset);
}

std::vector<Outgoing> OwnWeights::ask(int64_t now_ms, const Membership& members) {
  const MemberInfo* giver = members.find(giver_);
  if (giver == nullptr || !giver->declared) {
    giver = lowest_worker(members);
    if (giver == nullptr) return {};
    restart(*giver);
  }
  std::vector<Outgoing> out;
  for (auto& [offset, request] : open_) {
    if (now_ms - request.sent_ms < repeat_ms_) continue;
    request.sent_ms = now_ms;
    send(*giver, offset, out);
  }
  // Over a slow link the answer is on its way, and each repetition makes it later.
  if (!out.empty()) repeat_ms_ = std::min(2 * repeat_ms_, kMaxRepeatMs);
  while (std::ssize(open_) < window_ && next_ < table_.total) {
    open_[next_] = {now_ms, now_ms};
    send(*giver, next_, out);
    next_ += count_at(next_);
  }
  return out;
}

void OwnWeights::send(const MemberInfo& giver, int64_t offset, std::vector<Outgoing>& out) const {
  Message message;
  message.header.mutable_ask_weights()->set_offset(offset);
  message.header.mutable_ask_weights()->set_count(count_at(offset));
  out.push_back({giver.peer, std::move(message)});
}

Checked OwnWeights::take(int64_t now_ms, const MemberInfo* from, const Message& message) {
  const wire::OwnWeights& part = message.header.own_weights();
  if (Checked refusal = check_trainer(from, part.incarnation())) return refusal;
  if (part.incarnation() != giver_) {
    return refused("not-asked", "weights of the worker that was asked for them", from->name());
  }
  const int64_t offset = part.offset();
  if (offset < 0 || offset >= table_.total || offset % part_ != 0) {
    return refused("bad-weights",
                   "weights from a multiple of " + std::to_string(part_) + " below " +
                       std::to_string(table_.total),
                   std::to_string(offset) + " from " + from->name());
  }
  const int64_t count = count_at(offset);
  const int64_t got =
      message.payloads.empty() ? 0 : static_cast<int64_t>(message.payloads[0].float_count());
  if (got != count) {
    return refused("bad-weights", plural(count, "weight") + " from " + std::to_string(offset),
                   std::to_string(got) + " from " + from->name());
  }
  const auto found = open_.find(offset);
  if (found == open_.end()) return std::nullopt;
  pace(now_ms - found->second.first_ms);
  open_.erase(found);
  std::memcpy(weights_.data() + offset, message.payloads[0].floats(),
              static_cast<size_t>(count) * sizeof(float));
  check_finite(offset, count);
  hash_arrived();
  return std::nullopt;
}

// Heartbeats share the connection with the parts, so that few may be under way over a slow link.
void OwnWeights::pace(int64_t answered_after_ms) {
  repeat_ms_ = std::clamp(2 * answered_after_ms, kRequestMs, kMaxRepeatMs);
  if (answered_after_ms <= kFastMs) window_ = std::min(2 * window_, kMaxWindow);
  if (answered_after_ms > kRequestMs) window_ = 1;
}

void OwnWeights::check_finite(int64_t offset, int64_t count) {
  const std::span<const float> part(weights_.data() + offset, static_cast<size_t>(count));
  const auto bad = std::ranges::find_if_not(part, [](float x) { return std::isfinite(x); });
  if (bad == part.end() || error_) return;
  const int64_t at = offset + (bad - part.begin());
  const auto tensor = std::ranges::find_if(
      table_.tensors, [&](const TensorInfo& t) { return at < t.offset + t.size; });
  PP_ASSERT(tensor != table_.tensors.end());
  error_.emplace(ErrorCode::kNotFinite,
                 "[weights] the initial weights of " + giver_name_ + " are not finite: element " +
                     std::to_string(at - tensor->offset) + " of " + printable(tensor->name) +
                     " is " + std::to_string(*bad) + "; give the model finite ones");
}

// Hashes in the order of the elements while the others are under way: of a large model all at once
// would take seconds.
void OwnWeights::hash_arrived() {
  const int64_t end = open_.empty() ? next_ : open_.begin()->first;
  const std::span<const float> all(weights_);
  hash_->update(
      std::as_bytes(all.subspan(static_cast<size_t>(hashed_), static_cast<size_t>(end - hashed_))));
  hashed_ = end;
}

}  // namespace pushpull
