// The first words of a process that joins a job, as a state machine: Hello until the coordinator
// answers. Knows no socket and no clock. One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/base/repeat.h"
#include "common/net/intervals.h"
#include "common/net/message.h"

namespace pushpull {

// The process that says Hello.
struct JoinOptions {
  wire::Role role = wire::ROLE_UNSET;
  uint64_t incarnation = 0;
  std::string host;
  int64_t pid = 0;
  std::string coordinator;  // address where the coordinator listens, for messages
  double timeout_s = 60.0;  // --join-timeout
  std::string device = {};  // that it computes on, or keeps weights on; for people
};

class Joining {
 public:
  // data_endpoint: where workers reach this server; empty: a worker, or a server that only asks for
  // the job.
  Joining(const JoinOptions& options, const std::string& data_endpoint);

  // The Hello, where it is time to say it. Throws Error(kUnreachable) naming the address once
  // nobody has answered for the timeout, which begins with the first call.
  std::optional<Message> on_tick(int64_t now_ms);
  // A message of the coordinator. NoPlaceYet begins the timeout anew. Returns whether the process has joined: a JobText answers who
  // asks for the job and a worker; a server with an address is a member once a State comes, since
  // the answer to its first Hello may come twice.
  // Throws Error(code of the coordinator) when refused.
  bool on_message(const Message& message);
  // A line for people who wait, "" in between.
  std::string waiting(int64_t now_ms);

 private:
  const JoinOptions options_;
  Message hello_;
  Repeat repeat_{kHelloMs};
  Repeat line_{kWaitingMs};
  std::optional<int64_t> began_ms_;  // to wait for an answer
  std::string no_place_;             // why the coordinator has no place yet; "": it has not said so
  bool answered_ = false;            // since the last tick
};

// Why a coordinator of another release cannot be joined; names both versions.
std::string foreign_version_text(const std::string& address, int version);

// Version of the programs, as --version prints it.
std::string program_version();

}  // namespace pushpull
