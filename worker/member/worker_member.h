// A worker's part in a job, from its first Hello to its Leave, as a state machine: joins, declares,
// takes the newest State, repeats results until they are taken, says that it lives. Knows no
// socket, thread or clock; whoever owns it sees to it that one thread at a time uses it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/base/end_request.h"
#include "common/base/repeat.h"
#include "common/net/intervals.h"
#include "common/net/member.h"

namespace pushpull {

class WorkerMember {
 public:
  // options.role is set here. stats: of this process, asked for each heartbeat.
  WorkerMember(JoinOptions options, std::function<wire::Stats()> stats);

  // ---- events; after any of them, take what is to be sent ----
  void on_message(int64_t now_ms, const Message& message);
  void on_tick(int64_t now_ms);
  // A worker of a run keeps its place until the coordinator lets it go, or the grace is over. True: the
  // process must end at once.
  bool on_signal(int64_t now_ms, int signal);
  // Something on the connection has failed: the job is over for this worker.
  void fail(ErrorCode code, const std::string& text);

  // Repeated until the coordinator has taken it in, or the term ends: for the next one the worker
  // declares again. incarnation is set here.
  void declare(wire::Declare declare);
  void report(wire::EvalResult result);
  // The push that is being computed cannot be: said in the last words.
  void note_failed(wire::Applied push) { failed_ = std::move(push); }
  // The last words: finished (code 0) or why not. Once.
  void leave(int code, const std::string& text);

  // ---- actions ----
  std::vector<Message> take_outgoing() { return member_.take_outgoing(); }
  // Lines for people.
  std::vector<std::string> take_notices() { return member_.take_notices(); }
  // Another connection to the coordinator is to be opened beside this one.
  bool needs_connection(int64_t now_ms) { return member_.needs_connection(now_ms); }

  // ---- queries ----
  bool joined() const { return member_.joined(); }
  // Valid once joined; the run changes with the term.
  const Job& job() const { return member_.job(); }
  uint64_t run() const { return member_.run(); }
  uint64_t first_run() const { return member_.first_run(); }
  uint64_t incarnation() const { return member_.incarnation(); }
  // The newest one; its version is -1 before the first.
  const wire::State& state() const { return member_.state(); }
  // Set once the job is over for this worker.
  const std::optional<JobEnd>& end() const { return end_; }
  // The job is over, and the computation has had the time to notice.
  bool stop_is_late(int64_t now_ms) const;
  bool misses_coordinator(int64_t now_ms) const { return member_.misses_coordinator(now_ms); }
  // Results that the coordinator has not taken.
  size_t open_results() const { return results_.size(); }

 private:
  void guarded(const std::function<void()>& event);
  void take_term();
  void take_state(const wire::State& state);
  void repeat_requests(int64_t now_ms);
  void finish(JobEnd end);
  void finish_by_signal();

  Member member_;
  const std::function<wire::Stats()> stats_;
  std::optional<wire::Declare> declare_;
  bool declared_ = false;                        // the coordinator has it
  std::map<int64_t, wire::EvalResult> results_;  // not taken yet, by number
  int64_t next_result_ = 1;
  std::optional<wire::Applied> failed_;
  EndRequest told_;
  Repeat requests_{kRequestMs};
  std::optional<JobEnd> end_;
  bool left_ = false;   // nothing is said after the last words
  int64_t now_ms_ = 0;  // of the newest event
  int64_t end_ms_ = 0;  // when end_ was set
};

}  // namespace pushpull
