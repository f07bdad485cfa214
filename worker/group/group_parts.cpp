#include "worker/group/group_parts.h"

#include <algorithm>
#include <numeric>

#include "common/base/error.h"
#include "common/job/job.h"

namespace pushpull {

namespace {

constexpr int kMinQuestions = 3;  // before silence counts: this process may have been stopped
constexpr int kMaxDoublings = 5;  // of the time until a part is sent once more

std::string text_of(const StageExchange::Part& part) {
  const std::string step = std::to_string(part.step);
  const std::string micro_batch =
      " of micro-batch " + std::to_string(part.index) + " of step " + step;
  switch (part.kind) {
    case wire::StagePart::KIND_START:
      return "the step that it starts from";
    case wire::StagePart::KIND_ACTIVATIONS:
      return "the activations" + micro_batch;
    case wire::StagePart::KIND_GRADIENTS:
      return "the gradients" + micro_batch;
    case wire::StagePart::KIND_RETURNED:
      return "the returned gradients" + micro_batch;
    case wire::StagePart::KIND_EVALUATED:
      return "the activations of chunk " + std::to_string(part.index) +
             " of the evaluation at step " + step;
    case wire::StagePart::KIND_SQUARES:
      return "the squares of the gradient of step " + step;
    case wire::StagePart::KIND_WEIGHTS:
      return "the weights after step " + step;
    case wire::StagePart::KIND_TASK:
      return "its next task";
    default:
      return "a part";
  }
}

int64_t size_of(const Payload& floats) { return std::ssize(floats.bytes); }

}  // namespace

std::vector<GroupMember> members_of(const wire::Group& group) {
  std::vector<GroupMember> members;
  for (const wire::GroupMember& member : group.members()) {
    members.push_back({member.endpoint(), member.incarnation(), member.rank()});
  }
  return members;
}

int64_t group_silence_ms(const Job& job) {
  constexpr int64_t kReasonMs = 5000;  // as in worker/member/control.cpp
  return static_cast<int64_t>(job.heartbeat_timeout_s * 1000) + kReasonMs;
}

GroupParts::GroupParts(GroupSetup setup) : setup_(setup) {}

// ---- what the worker does ----

void GroupParts::begin(int64_t attempt, std::vector<GroupMember> members) {
  PP_ASSERT(attempt > attempt_);
  end();
  attempt_ = attempt;
  stage_ = -1;
  for (GroupMember& member : members) {
    if (member.incarnation == setup_.incarnation) stage_ = stages();
    members_.emplace_back().who = std::move(member);
  }
  PP_ASSERT(stage_ >= 0);
}

// A receiver that is replaced never says that it has begun another attempt: its parts are kept for good.
void GroupParts::keep_lent() {
  for (Member& member : members_) {
    std::vector<Payload>& lent = lent_[member.who.incarnation];
    for (Sent& sent : member.unarrived) lent.push_back(std::move(sent.floats));
  }
}

void GroupParts::end() {
  if (setup_.lends) keep_lent();
  attempt_ = 0;
  start_.reset();
  forgotten_ = 0;
  here_.clear();
  outgoing_.clear();
  members_.clear();
}

void GroupParts::start(int64_t step) {
  PP_ASSERT(!start_ && step >= 0);
  start_ = step;
  for (int to = 0; to < stages(); ++to) {
    if (to == stage_) continue;
    Member& member = at(to);
    member.unarrived.push_back({++member.numbers, {to, wire::StagePart::KIND_START, step, 0}, {}});
    post(to, member.unarrived.back());
  }
}

std::optional<int64_t> GroupParts::agreed() const {
  std::optional<int64_t> lowest = start_;
  for (int stage = 0; stage < stages() && lowest; ++stage) {
    if (stage == stage_) continue;
    if (!at(stage).start) return std::nullopt;
    lowest = std::min(*lowest, *at(stage).start);
  }
  return lowest;
}

void GroupParts::send(const Part& to, Payload floats) {
  PP_ASSERT(to.stage >= 0 && to.stage < stages() && to.stage != stage_ && start_);
  PP_ASSERT(to.kind != wire::StagePart::KIND_START && to.step >= 0 && to.index >= 0);
  PP_ASSERT(size_of(floats) > 0 && size_of(floats) <= setup_.max_part_bytes && !floats.on_device);
  Member& member = at(to.stage);
  member.unarrived_bytes += size_of(floats);
  bytes_sent_ += size_of(floats);
  member.unarrived.push_back({++member.numbers, to, std::move(floats)});
  post(to.stage, member.unarrived.back());
}

std::optional<Payload> GroupParts::take(const Part& from) {
  const auto found = here_.find(from);
  if (found == here_.end()) return std::nullopt;
  Payload floats = found->second;
  release(found);
  return floats;
}

void GroupParts::release(std::map<Part, Payload>::iterator kept) {
  Member& member = at(kept->first.stage);
  --member.kept;
  member.kept_bytes -= size_of(kept->second);
  here_.erase(kept);
}

void GroupParts::forget_before(int64_t step) {
  forgotten_ = std::max(forgotten_, step);
  for (auto part = here_.begin(); part != here_.end();) {
    const auto next = std::next(part);
    if (part->first.step < forgotten_) release(part);
    part = next;
  }
}

// ---- messages to members ----

wire::PeerSender GroupParts::sender() const {
  wire::PeerSender out;
  out.set_term_id(setup_.term_id);
  out.set_incarnation(setup_.incarnation);
  out.set_rank(at(stage_).who.rank);
  return out;
}

// Returns the `arrived` of a message to the member.
int64_t GroupParts::report(Member& member) {
  member.unreported_bytes = 0;
  return member.reported = member.arrived;
}

void GroupParts::post(int to, const Sent& sent) {
  ToMember& out = outgoing_.emplace_back();
  out.stage = to;
  wire::StagePart* part = out.message.header.mutable_stage_part();
  *part->mutable_sender() = sender();
  part->set_attempt(attempt_);
  part->set_number(sent.number);
  part->set_arrived(report(at(to)));
  part->set_kind(sent.part.kind);
  part->set_step(sent.part.step);
  part->set_index(sent.part.index);
  if (size_of(sent.floats) > 0) out.message.payloads.push_back(sent.floats);
}

void GroupParts::report_arrived(int to) {
  ToMember& out = outgoing_.emplace_back();
  out.stage = to;
  wire::StageArrived* arrived = out.message.header.mutable_stage_arrived();
  *arrived->mutable_sender() = sender();
  arrived->set_attempt(attempt_);
  arrived->set_arrived(report(at(to)));
}

// Sends again what has not arrived, unless it was sent so lately that it may be on its way. A large part
// may take seconds, so the time doubles with each repetition.
void GroupParts::answer(int to, int64_t now_ms) {
  bool answered = false;
  for (Sent& sent : at(to).unarrived) {
    if (now_ms - sent.sent_ms < kAskMs << std::min(sent.repeats, kMaxDoublings)) continue;
    sent.sent_ms = now_ms;
    ++sent.repeats;
    ++repeated_;
    post(to, sent);
    answered = true;
  }
  if (!answered) report_arrived(to);
}

// ---- messages of members ----

void GroupParts::on_message(Message& message) {
  if (!take_message(message)) ++rejected_;
}

bool GroupParts::take_message(Message& message) {
  const wire::Header& header = message.header;
  const auto take = [&](const auto& body, auto with) {
    const wire::PeerSender& sender = body.sender();
    if (sender.term_id() != setup_.term_id || body.attempt() <= 0) return false;
    const auto found = std::find_if(members_.begin(), members_.end(), [&](const Member& member) {
      return member.who.incarnation == sender.incarnation() && member.who.rank == sender.rank();
    });
    const auto from = static_cast<int>(found - members_.begin());
    const bool known = found != members_.end() && from != stage_;
    if (known) found->questions = 0;
    // of an attempt that is over, or that this worker has not begun: the sender repeats it
    if (body.attempt() != attempt_) return true;
    return known && take_arrived(*found, body.arrived()) && with(from);
  };
  switch (header.body_case()) {
    case wire::Header::kStagePart:
      return take(header.stage_part(), [&](int from) { return take_part(from, message); });
    case wire::Header::kStageAsk:
      return take(header.stage_ask(), [&](int from) { return at(from).asks = true; });
    case wire::Header::kStageArrived:
      return take(header.stage_arrived(), [](int) { return true; });
    default:
      return false;
  }
}

bool GroupParts::take_arrived(Member& member, int64_t arrived) {
  if (arrived < 0 || arrived > member.numbers) return false;
  while (!member.unarrived.empty() && member.unarrived.front().number <= arrived) {
    member.unarrived_bytes -= size_of(member.unarrived.front().floats);
    member.unarrived.pop_front();
  }
  return true;
}

bool GroupParts::is_sane(const Member& member, const wire::StagePart& part,
                         const Message& message) const {
  if (part.number() < 1 || part.number() - member.arrived > static_cast<int64_t>(kMaxKept))
    return false;
  if (part.step() < 0 || part.index() < 0 || !wire::StagePart::Kind_IsValid(part.kind()))
    return false;
  if (part.kind() == wire::StagePart::KIND_START)
    return message.payloads.empty() && part.number() == 1;
  if (message.payloads.size() != 1 || part.number() == 1) return false;
  const int64_t bytes = size_of(message.payloads.front());
  return bytes > 0 && bytes <= setup_.max_part_bytes;
}

bool GroupParts::take_part(int from, Message& message) {
  Member& member = at(from);
  const wire::StagePart& part = message.header.stage_part();
  if (!is_sane(member, part, message)) return false;
  if (part.number() <= member.arrived || member.beyond.contains(part.number()))
    return true;  // again
  if (part.kind() == wire::StagePart::KIND_START) {
    member.start = part.step();
    lent_.erase(member.who.incarnation);
    count_arrived(member, part.number());
    // the member may have begun later than this worker, and dropped its START
    if (!member.unarrived.empty() && member.unarrived.front().number == 1) {
      post(from, member.unarrived.front());
    }
    return true;
  }
  const Part key{from, part.kind(), part.step(), part.index()};
  const int64_t bytes = size_of(message.payloads.front());
  if (key.step >= forgotten_) {
    if (member.kept >= kMaxKept || !here_.try_emplace(key, message.payloads.front()).second)
      return false;
    ++member.kept;
    member.kept_bytes += bytes;
  }
  bytes_received_ += bytes;
  member.unreported_bytes += bytes;
  count_arrived(member, part.number());
  return true;
}

void GroupParts::count_arrived(Member& member, int64_t number) {
  member.beyond.insert(number);
  while (!member.beyond.empty() && *member.beyond.begin() == member.arrived + 1) {
    ++member.arrived;
    member.beyond.erase(member.beyond.begin());
  }
}

// ---- time ----

std::optional<GroupParts::Wait> GroupParts::wait_of(int stage,
                                                    const std::optional<Wait>& wait) const {
  if (start_ && !at(stage).start) return Wait{{stage, wire::StagePart::KIND_START, 0, 0}};
  if (wait && wait->part.stage == stage) return wait;
  return std::nullopt;
}

void GroupParts::on_tick(int64_t now_ms, const std::optional<Wait>& wait) {
  for (int stage = 0; stage < stages(); ++stage) {
    if (stage == stage_) continue;
    Member& member = at(stage);
    for (auto sent = member.unarrived.rbegin();
         sent != member.unarrived.rend() && sent->sent_ms < 0; ++sent) {
      sent->sent_ms = now_ms;
    }
    ask(stage, wait_of(stage, wait), now_ms);
    if (std::exchange(member.asks, false)) answer(stage, now_ms);
    const bool many =
        member.arrived - member.reported >= kReportParts || member.unreported_bytes >= kReportBytes;
    if (many) report_arrived(stage);
  }
}

// Asks a member for what this worker waits for, when that is due.
void GroupParts::ask(int to, const std::optional<Wait>& wait, int64_t now_ms) {
  Member& member = at(to);
  const bool goes_on = member.wait && now_ms - member.waited_ms <= kAskMs;
  if (!wait) {
    if (!goes_on) member.wait.reset();
    return;
  }
  if (!goes_on || member.wait != wait) {
    member.wait = wait;
    member.asked_ms = now_ms;
    member.questions = 0;
  }
  member.waited_ms = now_ms;
  const int64_t silent_ms = now_ms - member.silent_since_ms;
  if (member.questions >= kMinQuestions && silent_ms > setup_.timeout_ms) {
    throw Error(ErrorCode::kUnreachable, "[stages] " + name(to) + " has not answered for " +
                                             std::to_string(silent_ms / 1000) + " s, waiting for " +
                                             text_of(wait->part));
  }
  // several questions fit into a timeout
  if (now_ms - member.asked_ms < std::min(kAskMs, setup_.timeout_ms / 5)) return;
  member.asked_ms = now_ms;
  if (member.questions++ == 0) member.silent_since_ms = now_ms;
  ToMember& out = outgoing_.emplace_back();
  out.stage = to;
  wire::StageAsk* ask = out.message.header.mutable_stage_ask();
  *ask->mutable_sender() = sender();
  ask->set_attempt(attempt_);
  ask->set_arrived(report(member));
}

// ---- queries ----

std::string GroupParts::name(int stage) const {
  const GroupMember& who = at(stage).who;
  return "worker " + std::to_string(who.rank) + " (stage " + std::to_string(stage) + ") at " +
         who.endpoint;
}

std::string GroupParts::waiting_for(const std::optional<Wait>& wait) const {
  const auto short_name = [&](int stage) {
    return "worker " + std::to_string(at(stage).who.rank) + " (stage " + std::to_string(stage) +
           ")";
  };
  if (wait) {
    return text_of(wait->part) + " from " + short_name(wait->part.stage);
  }
  std::string missing;
  for (int stage = 0; stage < stages(); ++stage) {
    if (stage == stage_ || at(stage).start) continue;
    missing += (missing.empty() ? "the first step of " : ", ") + short_name(stage);
  }
  return missing;
}

int64_t GroupParts::kept_bytes() const {
  return std::accumulate(members_.begin(), members_.end(), int64_t{0},
                         [](int64_t sum, const Member& member) {
                           return sum + member.kept_bytes + member.unarrived_bytes;
                         });
}

}  // namespace pushpull
