// The pool that async workers draw from: every (step, share) once, in order, evaluation at
// barriers, and what a lost worker left undone. State machine of the coordinator; one thread.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "common/job/barriers.h"
#include "common/layout/fixed_tree.h"
#include "common/net/message.h"
#include "ps/server/grants.h"

namespace pushpull {

class LeasePool {
 public:
  // shares: leases that a step is cut into, and groups that the chunks of an evaluation are cut
  // into. grants: makes those of the leases; borrowed.
  LeasePool(const Barriers& barriers, int shares, int64_t micro_batches, int64_t chunks,
            const Grants& grants);

  // All leases that the worker holds.
  std::vector<wire::Lease> held(uint64_t incarnation) const;
  // The same, topped up to kHeld from the pool.
  std::vector<wire::Lease> grant(uint64_t incarnation);
  // The servers have passed barrier `step`: its evaluation and the leases behind it may be drawn.
  void open_barrier(int64_t step);
  // The first step of which nothing has been drawn, and whose barrier no server can have opened without a
  // checkpoint; none is drawn from there on.
  int64_t nearest_cut() const;
  void stop_at(int64_t step) { barriers_.stop_step = step; }
  // A barrier will be at `step`, too. held: no lease behind it is drawn, though it be open.
  void choose(int64_t step, bool held) {
    barriers_.choose(step);
    held_step_ = held ? step : 0;
  }
  // The first step of which no lease has been drawn.
  int64_t undrawn() const { return share_ == 0 ? step_ : step_ + 1; }
  // A push was taken in by server 0.
  void finish_training(uint64_t incarnation, int64_t step, Range range);
  void finish_evaluation(uint64_t incarnation, int64_t step, int64_t chunk);
  // The worker holds this chunk of an evaluation; has been given any lease.
  bool holds_evaluation(uint64_t incarnation, int64_t step, int64_t chunk) const;
  bool has_drawn(uint64_t incarnation) const;
  // Workers that hold leases of steps up to `step`, or of an evaluation.
  std::vector<uint64_t> holders(int64_t step) const;
  // Puts back what the worker may not have finished everywhere: all that it holds, and the lease it
  // finished last, which may not have reached every server (those that have it drop it by their
  // ledgers).
  void lose(uint64_t incarnation);

 private:
  static constexpr size_t kHeld = 2;  // one to compute, one so that data can be read ahead

  struct Holder {
    int64_t next_number = 1;
    std::vector<wire::Lease> held;
    std::optional<wire::Lease> last_finished;
  };
  std::optional<wire::Lease> draw();
  bool evaluating() const;
  const Holder* find(uint64_t incarnation) const;

  Barriers barriers_;
  int shares_;
  int64_t micro_batches_;
  int64_t chunks_;
  const Grants& grants_;
  int64_t step_;
  int share_ = 0;
  int64_t open_barrier_;
  int64_t held_step_ = 0;          // 0: none
  std::deque<wire::Lease> first_;  // drawn before the pool: returned leases, evaluations
  std::map<uint64_t, Holder> holders_;
};

}  // namespace pushpull
