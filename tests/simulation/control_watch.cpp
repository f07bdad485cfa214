#include "tests/simulation/control_watch.h"

#include <algorithm>

#include "common/net/intervals.h"
#include "tests/simulation/cluster.h"

namespace pushpull::sim {

namespace {

constexpr int64_t kTurnsMs = 40;  // time between two turns of a process, with the time of an event
constexpr int64_t kAnswerMs = 1000;  // time for an answer to arrive

}  // namespace

void ControlWatch::wrong(const Life& life, const std::string& what) {
  cluster_.wrong((life.process.role == wire::ROLE_SERVER ? "server process " : "worker process ") +
                 std::to_string(life.process.number) + " " + what);
}

void ControlWatch::began(uint64_t incarnation, const Process& process) {
  Life& life = lives_[incarnation];
  life.process = process;
  life.began_ms = life.clock.advance(cluster_.clock().now_ms());
}

void ControlWatch::sent(uint64_t incarnation, const Message& message) {
  Life& life = lives_.at(incarnation);
  const int64_t now = life.clock.advance(cluster_.clock().now_ms());
  const wire::Header& header = message.header;
  if (life.left) wrong(life, "says something after its last words");
  if (life.term_id != header.term_id()) {
    life.term_id = header.term_id();
    life.version = -1;
    ++life.versions;  // the member joins anew, with an extra heartbeat
    life.asked_since_ms = -1;
  }
  if (header.has_hello()) return hello(life, header.hello(), now);
  if (header.has_heartbeat()) heartbeat(life, header.heartbeat(), now);
  if (header.has_eval_result()) result(life, header.eval_result());
  if (header.has_leave()) life.left = true;
}

void ControlWatch::hello(Life& life, const wire::Hello& hello, int64_t now_ms) {
  if (life.asked_since_ms < 0 || life.endpoint != hello.data_endpoint()) {
    life.asked_since_ms = now_ms;
    life.hellos = 0;
  }
  life.endpoint = hello.data_endpoint();
  life.hello_ms = now_ms;
  if (++life.hellos > (now_ms - life.asked_since_ms) / kHelloMs + 1)
    wrong(life, "floods its Hello");
}

void ControlWatch::heartbeat(Life& life, const wire::Heartbeat& heartbeat, int64_t now_ms) {
  life.heartbeat_ms = now_ms;
  if (heartbeat.state_version() < life.version) {
    wrong(life, "has gone back from state " + std::to_string(life.version) + " to " +
                    std::to_string(heartbeat.state_version()));
  }
  if (heartbeat.state_version() > life.version) ++life.versions;
  life.version = heartbeat.state_version();
  const int64_t interval_ms = heartbeat_ms(cluster_.scenario().job.heartbeat_timeout_s);
  const int64_t extra = life.versions + life.connections;
  const int64_t most = (now_ms - life.began_ms) / interval_ms + extra + 1;
  if (++life.heartbeats > most) wrong(life, "floods its heartbeats");
}

void ControlWatch::result(Life& life, const wire::EvalResult& result) {
  const std::string number = std::to_string(result.number());
  if (result.number() > life.reports) wrong(life, "repeats a result as number " + number);
  const std::string text = result.SerializeAsString();
  if (life.results.emplace(result.number(), text).first->second != text) {
    wrong(life, "sends another result as number " + number);
  }
}

void ControlWatch::lives(uint64_t incarnation, bool joined) {
  Life& life = lives_.at(incarnation);
  const int64_t now = life.clock.advance(cluster_.clock().now_ms());
  life.joined = joined;
  if (life.left) return;
  if (!joined) {
    // a server sends its second Hello in its next turn
    if (now - life.hello_ms > kHelloMs + kTurnsMs) wrong(life, "does not repeat its Hello");
    return;
  }
  const int64_t interval_ms = heartbeat_ms(cluster_.scenario().job.heartbeat_timeout_s);
  if (now - life.heartbeat_ms > interval_ms + kTurnsMs) wrong(life, "sends no heartbeat any more");
}

// Checks a process that got no answer: it must have asked until its deadline.
void ControlWatch::gave_up(const Life& life) {
  const int64_t now = AwakeClock(life.clock).advance(cluster_.clock().now_ms());
  const auto timeout_ms = static_cast<int64_t>(cluster_.scenario().join_timeout_s * 1000);
  const int64_t asked_ms = now - life.asked_since_ms;
  // an answer may be lost, and counts from its arrival
  const int64_t from_ms = std::max(life.asked_since_ms, life.no_place_ms + kAnswerMs);
  if (asked_ms < timeout_ms || now > from_ms + timeout_ms + kTurnsMs) {
    wrong(life, "gave up after " + std::to_string(asked_ms) + " ms");
  }
  if (now - life.hello_ms > kHelloMs + kTurnsMs / 2) {
    wrong(life,
          "sent its last Hello " + std::to_string(now - life.hello_ms) + " ms before it gave up");
  }
}

void ControlWatch::ended(uint64_t incarnation, const JobEnd& end, wire::Phase phase) {
  const Life& life = lives_.at(incarnation);
  if (end.success && phase != wire::PHASE_FINISHED) wrong(life, "left before the job was finished");
  if (end.success && !life.left) wrong(life, "went without a word");
  if (!life.joined && end.text.starts_with("[join] no server has answered")) gave_up(life);
  const bool silence = end.text.find("has been silent") != std::string::npos;
  if (silence && !cluster_.over() && cluster_.scenario().gentle()) {
    wrong(life, "takes a live coordinator for dead");
  }
}

void ControlWatch::asks(const Coordinator& coordinator, const Message& message) {
  const wire::Header& header = message.header;
  stranger_ = header.has_heartbeat() && header.term_id() == coordinator.term_id() &&
              !coordinator.members().all().contains(header.heartbeat().incarnation());
  asked_term_id_ = coordinator.term_id();
  refused_.clear();
  welcomed_.clear();
  waiting_.clear();
}

void ControlWatch::answered(const PeerId& to, const Message& answer) {
  if (answer.header.has_refused()) refused_.insert(to);
  if (answer.header.has_job_text()) welcomed_.insert(to);
  if (answer.header.has_no_place_yet()) waiting_.insert(to);
}

void ControlWatch::asked(const Coordinator& coordinator, const PeerId& from,
                         const Message& message) {
  if (refused_.contains(from) || cluster_.forged(from)) return;
  if (stranger_) cluster_.wrong("the heartbeat of a process that was given up is not refused");
  if (!message.header.has_hello() || welcomed_.contains(from)) return;
  // in a new term, answers of the old one are void
  if (coordinator.term_id() != asked_term_id_) return;
  if (!waiting_.contains(from)) return cluster_.wrong("a Hello is not answered");
  Life& life = lives_.at(message.header.hello().incarnation());
  life.no_place_ms = AwakeClock(life.clock).advance(cluster_.clock().now_ms());
}

void ControlWatch::members(const Coordinator& coordinator) {
  pids_.clear();
  if (term_id_ != coordinator.term_id()) digest_.clear();
  term_id_ = coordinator.term_id();
  const std::string& digest = coordinator.declaration().data_digest;
  const auto& all = coordinator.members().all();
  const bool bound = coordinator.phase() != wire::PHASE_GATHERING ||
                     std::any_of(all.begin(), all.end(), [this](const auto& entry) {
                       return entry.second.declared && declared_.contains(entry.first);
                     });
  if (bound && !digest_.empty() && digest != digest_) cluster_.wrong("the declaration has changed");
  const std::optional<EarlierDeclaration>& earlier = cluster_.disk.history.declared;
  if (earlier && !digest.empty() && digest != earlier->data_digest) {
    cluster_.wrong("a later term has taken data that differ from those of the earlier ones");
  }
  digest_ = digest;
  declared_.clear();
  for (const auto& [incarnation, member] : all) {
    if (member.declared) declared_.insert(incarnation);
    const auto life = lives_.find(incarnation);
    if (life == lives_.end()) {
      cluster_.wrong(member.name() + " is a member that no process is");
    } else if (std::ranges::find(pids_, member.pid) != pids_.end()) {
      wrong(life->second, "is two members");
    } else if (member.declared && life->second.process.digest != digest) {
      wrong(life->second, "was taken with data that differ");
    }
    pids_.push_back(member.pid);
  }
}

}  // namespace pushpull::sim
