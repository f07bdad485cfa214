// Asks the coordinator of a job for its status, for `pushpull status` and `pushpull doctor`. The
// asker is not a member of the job. One thread.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <zmq.hpp>

#include "common/keys/keys.h"

namespace pushpull {

struct StatusAnswer {
  nlohmann::ordered_json document;
  int64_t utc_ms = 0;          // the coordinator's time of day when it answered
  int64_t heard_utc_ms = 0;    // this host's time of day when the answer arrived
  double round_trip_ms = 0.0;  // of that request
  uint64_t first_run = 0;      // identifies the job's data connections (Keys::data_credentials)
  bool encrypt_data = false;
};

// Asks until an answer arrives, for at most `timeout_s`. Throws Error(kUnreachable) with the
// address, Error(kRefused) if the coordinator rejects `keys`, Error(kProtocol) if a program of
// another release answers, or the coordinator's own error.
StatusAnswer ask_status(zmq::context_t& context, const std::string& address, const Keys& keys,
                        double timeout_s);

}  // namespace pushpull
