// The first message of a process that joins a job, as a state machine: repeats Hello until the
// coordinator answers. Does no I/O and reads no clock. One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/net/intervals.h"
#include "common/net/message.h"

namespace pushpull {

struct Job;

// A process's membership in a job, as one value. Borrowed: its references do not outlive the call
// that it is passed to.
struct JobView {
  const Job& job;
  uint64_t term_id = 0;      // unknown to strangers
  uint64_t incarnation = 0;  // of this process
  const wire::State& state;  // the newest state of the job
};

// The longest job_keys of a Hello.
inline constexpr size_t kMaxJobKeysBytes = 16384;

// The most names of values that a worker's program may log (Stats.logged).
inline constexpr int kMaxLoggedNames = 64;

// Returns true for 1 to 64 letters, digits and _ - . /
bool is_logged_name(const std::string& name);

// Describes the process that sends Hello.
struct JoinOptions {
  wire::Role role = wire::ROLE_UNSET;
  uint64_t incarnation = 0;
  std::string host;
  int64_t pid = 0;
  std::string coordinator;     // address where the coordinator listens, for messages
  double timeout_s = 60.0;     // --join-timeout
  std::string job_token = {};  // of the job that the process means to join; "": any
  std::string device = {};     // that it computes on, or keeps weights on; for users
  int wanted_rank = -1;        // of a worker, if that is free; -1: any
  std::string job_keys = {};   // of a worker: the job that its program means, as INI text; "": any
};

class Joining {
 public:
  // data_endpoint: address at which workers reach this server; "" for a worker, or for a server
  // that only asks for the job.
  Joining(const JoinOptions& options, const std::string& data_endpoint);

  // Returns the Hello if it is due. Throws Error(kUnreachable) naming the address if no answer
  // comes within the timeout, which begins with the first call.
  std::optional<Message> on_tick(int64_t now_ms);
  // Handles a message of the coordinator. Returns whether the process has joined. A JobText
  // completes the joining of a worker, and of a server that only asks for the job. A server with an
  // address joins with a State, since the answer to its first Hello may arrive twice. A NoPlaceYet
  // restarts the timeout. Throws Error with the coordinator's code if the coordinator refuses.
  bool on_message(const Message& message);
  // Returns a line for waiting users when one is due, else "".
  std::string waiting(int64_t now_ms);

 private:
  const JoinOptions options_;
  Message hello_;
  Repeat repeat_{kHelloMs};
  Repeat line_{kWaitingMs};
  std::optional<int64_t> began_ms_;  // start of the wait for an answer
  std::string no_place_;             // why there is no place yet; "" before a NoPlaceYet
  bool answered_ = false;            // since the last tick
};

// Returns why a coordinator of another release cannot be joined; names both versions.
std::string foreign_version_text(const std::string& address, int version);

// Returns the version of the programs, as --version prints it.
std::string program_version();

}  // namespace pushpull
