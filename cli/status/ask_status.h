// Asks the coordinator of a job for its status, for `pushpull status`, `pushpull top` and
// `pushpull doctor`. The
// asker is not a member of the job. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <zmq.hpp>

#include "common/job/command_line.h"
#include "common/net/endpoint.h"
#include "common/net/intervals.h"
#include "common/net/keys.h"

namespace pushpull {

// Returns the address of the job that a command asks: --join, or its only word, HOST:PORT with or without tcp://, or the
// output folder of a job that runs, whose term.json has the address. Throws Error(kUsage) with `tag` if there is none.
std::string asked_address(const CommandLine& line, const std::string& tag);

struct StatusAnswer {
  nlohmann::ordered_json document;
  int64_t utc_ms = 0;          // the coordinator's time of day when it answered
  int64_t heard_utc_ms = 0;    // this host's time of day when the answer arrived
  double round_trip_ms = 0.0;  // of that request
  uint64_t run_id = 0;         // identifies the job's data connections (Keys::data_credentials)
  bool encrypt_data = false;
};

// One question to a coordinator, repeated until it is answered, for programs with a poll loop.
class StatusQuestion {
 public:
  StatusQuestion(zmq::context_t& context, const std::string& address, const Keys& keys);

  // Returns what to poll. Call `turn` when it is ready, and at least twice a second.
  zmq::pollitem_t item();
  // Sends and receives. Returns the answer once it has arrived. Throws as ask_status does, except for the deadline.
  std::optional<StatusAnswer> turn();
  // Returns why the coordinator's name cannot be resolved, or "".
  const std::string& unresolved() const { return dealer_.unresolved(); }

 private:
  std::string address_;
  Dealer dealer_;
  Repeat question_;
  std::map<int64_t, double> asked_s_;  // by number
};

// Asks until an answer arrives, for at most `timeout_s`. Throws Error(kUnreachable) with the
// address, Error(kRefused) if the coordinator rejects `keys`, Error(kProtocol) if a program of
// another release answers, or the coordinator's own error.
StatusAnswer ask_status(zmq::context_t& context, const std::string& address, const Keys& keys,
                        double timeout_s);

}  // namespace pushpull
