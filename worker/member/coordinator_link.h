// What a trainer tells the coordinator of its job, and hears from it. Control implements it over a
// socket; the simulation drives the same trainer over another one.
#pragma once

#include <cstdint>
#include <optional>

#include "common/net/member.h"
#include "common/net/message.h"
#include "worker/member/time_split.h"

namespace pushpull {

// Thrown out of waits when the job is over, for any reason.
struct JobOver {};

// Used by the trainer's thread, but for `wake`.
class CoordinatorLink {
 public:
  virtual ~CoordinatorLink() = default;

  // Returns true once the job, or the trainer's term of it, is over; end() then says why.
  virtual bool over() const = 0;
  virtual std::optional<JobEnd> end() const = 0;

  // Reports the result of an evaluation. It is resent until the coordinator acknowledges it.
  virtual void report(wire::EvalResult result) = 0;
  // Records that computing this push failed: the worker's Leave names it.
  virtual void note_failed(wire::Applied push) = 0;
  // Activity and times go out with the next heartbeat.
  virtual Activity& activity() = 0;
  virtual void set_times(const TimeTotals& times) = 0;
  // Sets payload bytes sent to and received from other workers, and the number of rejected
  // messages. They go out in the same way.
  virtual void set_traffic(int64_t /*sent*/, int64_t /*received*/, int64_t /*rejected*/) {}
  // Ends a wait of Links, or the next one, as news of the coordinator do. Any thread.
  virtual void wake() {}
};

}  // namespace pushpull
