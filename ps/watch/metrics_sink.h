// A destination of the figures of a running job: a file, or another program. Used by the
// coordinator's thread.
#pragma once

#include <cstdint>
#include <string>

#include "ps/watch/moment.h"

namespace pushpull {

class MetricsSink {
 public:
  virtual ~MetricsSink() = default;

  // Notes that training starts at this step, for the first time or once more after a lost server.
  // Does not block.
  virtual void begin(int64_t step) = 0;
  // Passes on a moment. Does not block. If it cannot be passed on, it is lost.
  virtual void moment(const Moment& moment) = 0;
  // Waits at most this long until all moments are passed on. Any thread.
  virtual void flush(int64_t max_ms) = 0;
  // Returns a line, once, if moments are lost; "" otherwise.
  virtual std::string take_warning() = 0;
};

}  // namespace pushpull
