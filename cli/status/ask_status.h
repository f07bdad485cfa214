// Asks the coordinator of a job how it goes, as `pushpull status` and `pushpull doctor` do. The asker
// is no member of the job. One thread.
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
  int64_t heard_utc_ms = 0;    // ours when we heard it
  double round_trip_ms = 0.0;  // of that question
  uint64_t first_run = 0;      // what the job's data connections go by (Keys::data_credentials)
  bool encrypt_data = false;
};

// Asks until an answer comes, at most this long. Throws Error(kUnreachable) naming the address,
// Error(kRefused) where `keys` do not open it,
// Error(kProtocol) where a program of another release answers, and what the coordinator refuses with.
StatusAnswer ask_status(zmq::context_t& context, const std::string& address, const Keys& keys,
                        double timeout_s);

}  // namespace pushpull
