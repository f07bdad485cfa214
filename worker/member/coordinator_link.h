// What a trainer tells the coordinator of its job, and hears from it. Control implements it over a
// socket; the simulation drives the same trainer over another one.
#pragma once

#include <optional>

#include "common/net/member.h"
#include "common/net/message.h"
#include "worker/member/time_split.h"

namespace pushpull {

// Used by the trainer's thread.
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
};

}  // namespace pushpull
