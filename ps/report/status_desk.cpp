#include "ps/report/status_desk.h"

#include <algorithm>
#include <functional>

namespace pushpull {

bool AnswerLimits::take(int64_t now_ms, const PeerId& peer) {
  if (now_ms - second_ms_ >= 1000) {
    second_ms_ = now_ms;
    in_second_ = 0;
  }
  if (in_second_ >= kMaxPerSecond) return false;
  const auto found = clients_.find(peer);
  if (found == clients_.end()) {
    if (clients_.size() >= kMaxConnections) {
      clients_.erase(std::min_element(
          clients_.begin(), clients_.end(),
          [](const auto& a, const auto& b) { return a.second.newest_ms < b.second.newest_ms; }));
    }
    clients_[peer] = {now_ms, 1};
  } else {
    Client& client = found->second;
    if (now_ms - client.newest_ms < kBetweenMs || client.answers >= kMaxOfConnection) return false;
    client = {now_ms, client.answers + 1};
  }
  ++in_second_;
  return true;
}

namespace {

constexpr int64_t kLookMs = 50;
constexpr int64_t kWriteMs = 1000;
constexpr int64_t kAnswerMs = 200;  // an answer is reused for this long

void mix(size_t& hash, uint64_t value) {
  hash ^= std::hash<uint64_t>()(value) + 0x9e3779b97f4a7c15ULL + (hash << 6U) + (hash >> 2U);
}

}  // namespace

Checked StatusDesk::ask(int64_t now_ms, const PeerId& peer, const wire::StatusRequest& request) {
  if (!limits_.take(now_ms, peer)) {
    return refused("status-rate",
                   "one request every " + std::to_string(AnswerLimits::kBetweenMs) + " ms, " +
                       std::to_string(AnswerLimits::kMaxOfConnection) + " on a connection",
                   "one more");
  }
  questions_.push_back({peer, request.number()});
  return {};
}

bool StatusDesk::fresh(int64_t now_ms) const {
  return made_ms_ >= 0 && now_ms - made_ms_ < kAnswerMs;
}

// Changes when a member joins, gets a rank or leaves. Once the job is over, all leave.
size_t StatusDesk::fingerprint() const {
  size_t hash = 0;
  if (over_) return hash;
  mix(hash, members_.former().size() + static_cast<uint64_t>(members_.forgotten()));
  for (const auto& [incarnation, member] : members_.all()) {
    mix(hash, incarnation);
    mix(hash, static_cast<uint64_t>(member.rank + 1) * 2 + (member.declared ? 1 : 0));
  }
  return hash;
}

bool StatusDesk::due(int64_t now_ms, wire::Phase phase) {
  if (!questions_.empty() && !fresh(now_ms)) return true;
  // The last phase may be over before the next check.
  if (phase != phase_ || now_ms - written_ms_ >= kWriteMs) return true;
  if (now_ms - looked_ms_ < kLookMs) return false;
  looked_ms_ = now_ms;
  return fingerprint() != fingerprint_;
}

// Members that leave because the job is over stay in view; the last reports of others still count.
void StatusDesk::choose_shown(const wire::Stats& own, wire::Phase phase) {
  if (!over_) {
    shown_ = members_.all();
  } else {
    for (auto& [incarnation, member] : shown_) {
      const MemberInfo* now = members_.find(incarnation);
      if (now == nullptr) continue;
      member.stats = now->stats;
      member.last_heard_ms = now->last_heard_ms;
    }
  }
  over_ = over_ || phase >= wire::PHASE_FINISHING;
  const auto self = shown_.find(self_);
  if (self != shown_.end()) self->second.stats = own;
}

RunFigures StatusDesk::update(int64_t now_ms, const CommittedWork* committed,
                              const WorkGroups* groups, const wire::Stats& own,
                              RunFigures figures) {
  if (began_ms_ < 0) began_ms_ = now_ms;
  // members that leave at the end break up no group
  const bool trains = figures.phase < wire::PHASE_FINISHING;
  if (groups != nullptr && (trains || groups_.empty())) groups_ = groups->places();
  figures.up_ms = now_ms - began_ms_;
  if (committed != nullptr && !over_) stragglers_.on_tick(now_ms, members_, *committed);
  choose_shown(own, figures.phase);
  usage_.on_tick(now_ms, shown_);
  const size_t newest = fingerprint();
  if (newest != fingerprint_ || figures.phase != phase_ || now_ms - written_ms_ >= kWriteMs) {
    file_ = members_json(view(now_ms, committed), figures);
    phase_ = figures.phase;
    written_ms_ = now_ms;
    fingerprint_ = newest;
  }
  if (questions_.empty() || fresh(now_ms)) return figures;
  answer_ = status_json(view(now_ms, committed), figures);
  made_ms_ = now_ms;
  return figures;
}

std::vector<Outgoing> StatusDesk::take_answers(int64_t now_ms, int64_t utc_ms) {
  std::vector<Outgoing> out;
  if (!fresh(now_ms)) return out;
  for (const Question& question : std::exchange(questions_, {})) {
    Message message;
    wire::StatusReply* reply = message.header.mutable_status_reply();
    reply->set_number(question.number);
    reply->set_json(answer_);
    reply->set_utc_ms(utc_ms);
    out.push_back({question.peer, std::move(message)});
  }
  return out;
}

}  // namespace pushpull
