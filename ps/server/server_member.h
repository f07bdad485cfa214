// State machine of a server that joins a job: asks for the job, declares its address, serves from
// the State that starts training, reports its norms, complete pushes and updates to the
// coordinator, and leaves. Does no I/O, starts no thread and reads no clock. Not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/end_request.h"
#include "common/net/intervals.h"
#include "common/net/member.h"

namespace pushpull {

class ServedData;
class Server;

// The process around the member.
class ServerHost {
 public:
  virtual ~ServerHost() = default;
  // Opens the data connection; called when the job is known. Returns its address for workers.
  // Throws Error.
  //   term_id: in the names of unix sockets. run_id: the keys of data connections derive from it.
  virtual std::string listen(const Job& job, uint64_t term_id, uint64_t run_id) = 0;
  // Called when a new term begins: renames unix sockets, since their names contain the term.
  virtual void rename(const Job& job, uint64_t term_id) = 0;
  // Valid after `listen`.
  virtual ServedData& data() = 0;
};

class ServerMember {
 public:
  // Sets options.role. Borrows `host`.
  ServerMember(JoinOptions options, ServerHost& host);

  // ---- events; call take_outgoing after each ----
  void on_message(int64_t now_ms, const Message& message);
  void on_tick(int64_t now_ms);
  // Records that the connection to the coordinator was closed.
  void on_closed(int64_t now_ms) { member_.on_closed(now_ms); }
  // Handles a signal. A member stays until the coordinator releases it or the grace period ends.
  // Returns true if the process must end at once.
  bool on_signal(int64_t now_ms, int signal);
  // Leaves the job because this process has failed, and reports the reason.
  void fail(ErrorCode code, const std::string& text);

  // ---- actions ----
  std::vector<Message> take_outgoing() { return member_.take_outgoing(); }
  // Lines for the log.
  std::vector<std::string> take_notices() { return member_.take_notices(); }
  // Returns true if another connection to the coordinator must be opened beside this one.
  bool needs_connection(int64_t now_ms) { return member_.needs_connection(now_ms); }

  // ---- queries ----
  // Set once the job is over for this server; only its outgoing messages remain.
  const std::optional<JobEnd>& end() const { return end_; }
  uint64_t incarnation() const { return member_.incarnation(); }
  // Returns true if this server is a member of the job.
  bool joined() const { return listening_ && member_.joined(); }
  const wire::State& state() const { return member_.state(); }

 private:
  void guarded(const std::function<void()>& event);
  void take_news(Member::News news, const Message& message);
  void take_job();
  void take_term();
  void take_state();
  void report_waiting(int64_t now_ms);
  void send_part(wire::RecordPart part);
  void leave(int code, const std::string& text, JobEnd end);
  void leave_by_signal();
  Server* server() const;

  ServerHost& host_;
  Member member_;
  bool listening_ = false;
  std::string endpoint_;
  RepeatOf<std::pair<int64_t, bool>> norms_{kStepRequestMs};   // by step, of tensors
  RepeatOf<std::pair<int64_t, int>> arrived_{kStepRequestMs};  // by step and pushes
  EndRequest end_request_;
  std::optional<JobEnd> end_;
};

}  // namespace pushpull
