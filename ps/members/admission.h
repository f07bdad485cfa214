// Decides which processes take part in the job: handles Hello and declarations, assigns ranks,
// keeps spares, and tells each process that it refuses why. Part of the coordinator's state
// machine. Not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/base/error.h"
#include "common/net/message.h"
#include "common/net/refusals.h"
#include "ps/members/actions.h"
#include "ps/members/coordinator_options.h"
#include "ps/members/declarations.h"
#include "ps/members/membership.h"
#include "ps/members/newcomers.h"

namespace pushpull {

class Admission {
 public:
  // The outcome of a declaration. A refusal here is only for messages that no correct worker sends;
  // a worker that merely does not match gets Refused.
  struct Declared {
    Checked refusal = {};
    bool admitted = false;  // it is a worker now, with a rank or as a spare
    // Set if job and data do not fit together and all workers have the same data.
    std::optional<Error> job_error = {};
  };

  // Adds server 0 to the members. Borrows all arguments for its own lifetime.
  Admission(const CoordinatorOptions& options, Membership& members, Actions& out);

  Checked on_hello(int64_t now_ms, const PeerId& peer, const wire::Hello& hello, wire::Phase phase);
  Declared on_declare(int64_t now_ms, const PeerId& peer, const wire::Declare& declare,
                      wire::Phase phase);
  // Gives the place of a worker that is gone before the start to a spare, and drops the first
  // declaration if no worker is left that has declared.
  void forget(const MemberInfo& member);
  // Call when training begins. With on-worker-loss = continue, up to max-workers members compute
  // from then on.
  void begin_training();
  // Lets no further server join. Call when a lost server ends the term: servers join the next one.
  void hold_servers() { holds_servers_ = true; }
  // Gives the free ranks to spares that have declared.
  void promote_spares();
  // Refuses the processes that wait for a place, and all later ones, with the end of the job. Call
  // once the members may hear of it. Later calls have no effect.
  void end_waiting(const Error& end) { newcomers_.end(end); }
  void set_choices(const std::string& choices) { declarations_.set_choices(choices); }

  // Returns the job, for a process that joins.
  Message job_text() const;

  // Returns true if all servers and at least one worker are members and a worker has declared.
  bool has_quorum() const;
  // Returns true if all servers are members and each rank has a worker that has declared.
  bool complete() const;
  // Returns "waiting for members: 1 of 2 servers, ...".
  std::string waiting_for() const;
  const Declarations& declarations() const { return declarations_; }

 private:
  Checked make_room(const wire::Hello& hello);
  bool refuse_other_job(const PeerId& peer, const wire::Hello& hello);
  bool refuse_hello(int64_t now_ms, const PeerId& peer, const wire::Hello& hello,
                    wire::Phase phase);
  bool may_replace(int64_t now_ms, const PeerId& peer, const wire::Hello& hello);
  // Refuses a process if another member of its role has its address already.
  bool refuse_taken_endpoint(const PeerId& peer, wire::Role role, uint64_t incarnation,
                             const std::string& endpoint);
  void add_member(const wire::Hello& hello);
  Declared check_declaration(const PeerId& peer, const MemberInfo& member,
                             const wire::Declare& declare);
  void admit(MemberInfo& member, wire::Phase phase);
  bool any_declared() const;
  int free_rank() const;

  const CoordinatorOptions& options_;
  const bool workers_meet_;  // workers exchange data, so each declares an address
  Membership& members_;
  Actions& out_;
  Declarations declarations_;
  Newcomers newcomers_;
  int64_t places_;  // places for workers
  bool holds_servers_ = false;
};

}  // namespace pushpull
