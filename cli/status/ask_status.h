// Asks the coordinator of a job how it goes, as `pushpull status` and `pushpull doctor` do. The asker
// is no member of the job. One thread.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <zmq.hpp>

namespace pushpull {

struct StatusAnswer {
  nlohmann::ordered_json document;
  int64_t utc_ms = 0;          // the coordinator's time of day when it answered
  int64_t heard_utc_ms = 0;    // ours when we heard it
  double round_trip_ms = 0.0;  // of that question
};

// Asks until an answer comes, at most this long. Throws Error(kUnreachable) naming the address,
// Error(kProtocol) where a program of another release answers, and what the coordinator refuses with.
StatusAnswer ask_status(zmq::context_t& context, const std::string& address, double timeout_s);

}  // namespace pushpull
