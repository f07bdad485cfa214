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

// stage: that it has declared; -1: the whole model.
const MemberInfo* lowest_worker(const Membership& members, int stage) {
  const MemberInfo* lowest = nullptr;
  for (const auto& [incarnation, member] : members.all()) {
    if (member.role != wire::ROLE_WORKER || !member.declared || member.rank < 0) continue;
    if (member.stage != stage) continue;
    if (lowest == nullptr || member.rank < lowest->rank) lowest = &member;
  }
  return lowest;
}

}  // namespace

OwnWeights::OwnWeights(int64_t slice_bytes)
    : part_(std::min(kMaxPart, slice_bytes / static_cast<int64_t>(sizeof(float)))) {}

void OwnWeights::begin(const TensorTable& table) {
  table_ = table;
  sections_.clear();
  int64_t lo = 0;
  for (const int64_t hi : table.stage_begins()) sections_.push_back({std::exchange(lo, hi), hi});
  sections_.push_back({lo, table.total});
  section_ = 0;
  giver_ = 0;
  hashed_ = 0;
  error_.reset();
}

void OwnWeights::restart() {
  givers_.clear();
  section_ = 0;
  weights_.assign(static_cast<size_t>(table_.total), 0.0F);
  open_.clear();
  next_ = hashed_ = 0;
  hash_.emplace();
  window_ = 1;
  repeat_ms_ = kRequestMs;
}

int64_t OwnWeights::count_at(int64_t offset) const {
  return std::min(part_, section().hi - offset);
}

// Chooses the worker to ask. Returns false if there is none.
bool OwnWeights::ask_from(const Membership& members) {
  const bool goes_on = giver_ != 0 && hashed_ == section().hi && section_ + 1 < sections_.size();
  const MemberInfo* giver = members.find(giver_);
  if (giver != nullptr && giver->declared && !goes_on) return true;
  const size_t next = goes_on ? section_ + 1 : 0;
  giver = lowest_worker(members, sections_.size() == 1 ? -1 : static_cast<int>(next));
  if (giver == nullptr) {
    giver_ = 0;
    return false;
  }
  if (goes_on) {
    givers_.insert(giver_);
    section_ = next;
  } else {
    restart();
  }
  giver_ = giver->incarnation;
  giver_name_ = giver->name();
  return true;
}

std::vector<Outgoing> OwnWeights::ask(int64_t now_ms, const Membership& members) {
  if (!ask_from(members)) return {};
  const PeerId& giver = members.find(giver_)->peer;
  std::vector<Outgoing> out;
  for (auto& [offset, request] : open_) {
    if (now_ms - request.sent_ms < repeat_ms_) continue;
    request.sent_ms = now_ms;
    send(giver, offset, out);
  }
  // Over a slow link the answer is on its way, and each repetition makes it later.
  if (!out.empty()) repeat_ms_ = std::min(2 * repeat_ms_, kMaxRepeatMs);
  while (std::ssize(open_) < window_ && next_ < section().hi) {
    open_[next_] = {now_ms, now_ms};
    send(giver, next_, out);
    next_ += count_at(next_);
  }
  return out;
}

void OwnWeights::send(const PeerId& giver, int64_t offset, std::vector<Outgoing>& out) const {
  Message message;
  message.header.mutable_ask_weights()->set_offset(offset - section().lo);
  message.header.mutable_ask_weights()->set_count(count_at(offset));
  out.push_back({giver, std::move(message)});
}

Checked OwnWeights::take(int64_t now_ms, const MemberInfo* from, const Message& message) {
  const wire::OwnWeights& part = message.header.own_weights();
  if (Checked refusal = check_trainer(from, part.incarnation())) return refusal;
  if (givers_.contains(part.incarnation())) return std::nullopt;  // an answer that was repeated
  if (part.incarnation() != giver_) {
    return refused("not-asked", "weights of the worker that was asked for them", from->name());
  }
  if (part.offset() < 0 || part.offset() >= section().size() || part.offset() % part_ != 0) {
    return refused("bad-weights",
                   "weights from a multiple of " + std::to_string(part_) + " below " +
                       std::to_string(section().size()),
                   std::to_string(part.offset()) + " from " + from->name());
  }
  const int64_t offset = section().lo + part.offset();
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
