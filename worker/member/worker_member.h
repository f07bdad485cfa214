// State machine of a worker's membership in a job, from its first Hello to its Leave: joins,
// declares, keeps the newest State, resends results until they are acknowledged, sends heartbeats.
// Does no I/O and starts no thread. Not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/base/end_request.h"
#include "common/net/intervals.h"
#include "common/net/member.h"

namespace pushpull {

class WorkerMember {
 public:
  // Sets options.role itself. stats: returns this process's statistics; called for each heartbeat.
  WorkerMember(JoinOptions options, std::function<wire::Stats()> stats);

  // ---- events; call take_outgoing after each ----
  void on_message(int64_t now_ms, const Message& message);
  void on_tick(int64_t now_ms);
  // Records that the connection to the coordinator was closed.
  void on_closed(int64_t now_ms) { member_.on_closed(now_ms); }
  // Handles a signal. A member keeps its place until the coordinator releases it or the grace
  // period ends. Returns true if the process must exit at once.
  bool on_signal(int64_t now_ms, int signal);
  // Ends the job for this worker, because its connection failed.
  void fail(ErrorCode code, const std::string& text);

  // Sends the declaration, and resends it until the coordinator acknowledges it or the term ends;
  // declare again in each term. Drops it if its term has ended. Sets the incarnation itself.
  //   term: its id.
  void declare(uint64_t term, wire::Declare declare);
  // Answers the coordinator's requests for initial weights from these, from now on; empty: answers
  // no longer. Borrows them.
  void offer_weights(std::span<const float> weights) { own_weights_ = weights; }
  // Sends the result, and resends it until the coordinator acknowledges it or the term ends. Drops
  // it if its term has ended.
  //   term: its id.
  void report(uint64_t term, wire::EvalResult result);
  // Records that computing this push failed. leave() reports it to the coordinator.
  void note_failed(wire::Applied push) { failed_ = std::move(push); }
  // Sends Leave: code 0 if this worker has finished, or else the error. Call once.
  void leave(int code, const std::string& text);

  // ---- actions ----
  std::vector<Message> take_outgoing() { return member_.take_outgoing(); }
  // Returns log lines for users.
  std::vector<std::string> take_notices() { return member_.take_notices(); }
  // Returns true if the owner must open a second connection to the coordinator.
  bool needs_connection(int64_t now_ms) { return member_.needs_connection(now_ms); }

  // ---- queries ----
  bool joined() const { return member_.joined(); }
  // Valid once joined. `term_id` changes with the term.
  const Job& job() const { return member_.job(); }
  uint64_t term_id() const { return member_.term_id(); }
  uint64_t run_id() const { return member_.run_id(); }
  int workers() const { return member_.workers(); }
  int rank() const { return member_.rank(); }
  uint64_t incarnation() const { return member_.incarnation(); }
  // Returns the newest state; its version is -1 before the first.
  const wire::State& state() const { return member_.state(); }
  // Set once the job is over for this worker.
  const std::optional<JobEnd>& end() const { return end_; }
  // Returns true if the computation did not stop in time after the job was over.
  bool stop_is_late(int64_t now_ms) const;
  bool misses_coordinator(int64_t now_ms) const { return member_.misses_coordinator(now_ms); }
  // Returns the number of results that the coordinator has not acknowledged.
  size_t open_results() const { return results_.size(); }

 private:
  void guarded(const std::function<void()>& event);
  void take_term();
  void take_state(const wire::State& state);
  void give_weights(const wire::AskWeights& ask);
  void repeat_requests(int64_t now_ms);
  void finish(JobEnd end);
  void finish_by_signal();

  Member member_;
  const std::function<wire::Stats()> stats_;
  std::optional<wire::Declare> declare_;
  std::span<const float> own_weights_;           // empty if there are none
  bool declared_ = false;                        // acknowledged by the coordinator
  std::map<int64_t, wire::EvalResult> results_;  // not acknowledged yet, by number
  int64_t next_result_ = 1;
  std::optional<wire::Applied> failed_;
  EndRequest end_request_;
  Repeat requests_{kRequestMs};
  std::optional<JobEnd> end_;
  bool left_ = false;   // leave() was called: send nothing more
  int64_t now_ms_ = 0;  // of the newest event
  int64_t end_ms_ = 0;  // when end_ was set
};

}  // namespace pushpull
