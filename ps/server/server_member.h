// A server that joins a job, from its first Hello to its Leave, as a state machine: asks for the
// job, says where it listens, serves once it has its map, reports what the coordinator must put
// together over all servers, and says the last of it before it leaves. Knows no socket, thread,
// clock or file. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/end_request.h"
#include "common/base/repeat.h"
#include "common/net/intervals.h"
#include "common/net/member.h"
#include "ps/server/served_data.h"

namespace pushpull {

// The process around the member.
class ServerHost {
 public:
  virtual ~ServerHost() = default;
  // The job is known: opens the data connection. Returns where workers reach it. Throws Error.
  // first_run: of the first term, by which data connections are told apart.
  virtual std::string listen(const Job& job, uint64_t run, uint64_t first_run) = 0;
  // A new term: what is named after the run gets a new name.
  virtual void rename(const Job& job, uint64_t run) = 0;
  // Valid once it listens.
  virtual ServedData& data() = 0;
};

class ServerMember {
 public:
  // options.role is set here. Borrowed: host.
  ServerMember(JoinOptions options, ServerHost& host);

  // ---- events; after any of them, take what is to be sent ----
  void on_message(int64_t now_ms, const Message& message);
  void on_tick(int64_t now_ms);
  // A server of a run keeps its place until the coordinator lets it go, or the grace is over. True: the
  // process must end at once.
  bool on_signal(int64_t now_ms, int signal);
  // Something in this process has failed: leaves with the reason.
  void fail(ErrorCode code, const std::string& text);

  // ---- actions ----
  std::vector<Message> take_outgoing() { return member_.take_outgoing(); }
  // Lines for people.
  std::vector<std::string> take_notices() { return member_.take_notices(); }
  // Another connection to the coordinator is to be opened beside this one.
  bool needs_connection(int64_t now_ms) { return member_.needs_connection(now_ms); }

  // ---- queries ----
  // Set once the job is over for this server: nothing is left but to send.
  const std::optional<JobEnd>& end() const { return end_; }
  uint64_t incarnation() const { return member_.incarnation(); }
  // Is a member of the job.
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
  Server* server() const { return listening_ ? host_.data().server() : nullptr; }

  ServerHost& host_;
  Member member_;
  bool listening_ = false;
  std::string endpoint_;
  RepeatOf<int64_t> norms_{kStepRequestMs};                    // by step
  RepeatOf<std::pair<int64_t, int>> arrived_{kStepRequestMs};  // by step and pushes
  EndRequest told_;
  std::optional<JobEnd> end_;
};

}  // namespace pushpull
