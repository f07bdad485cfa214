// Decides which processes take part in the job: handles Hello and declarations, assigns ranks,
// keeps spares, and tells each process that it refuses why. Part of the coordinator's state
// machine. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "common/base/error.h"
#include "common/job/job.h"
#include "common/net/message.h"
#include "common/net/refusals.h"
#include "ps/members/actions.h"
#include "ps/members/declarations.h"
#include "ps/members/membership.h"

namespace pushpull {

// The settings of the coordinator for one term of a job. Plain data.
struct CoordinatorOptions {
  Job job;
  uint64_t term_id = 0;  // a secret of the members
  int64_t term = 1;      // counts from 1; each lost server starts another
  uint64_t run_id = 0;   // id of the first term
  int servers = 1;
  int workers = 1;
  MemberInfo self;             // server 0, in this process
  std::string grant_key;       // servers verify pushes with it (Grants)
  std::string job_token = {};  // members with another one are of another job; "": admits all
  bool launched = false;  // by a program that starts all members with this token, and no other one
  std::string out = {};   // absolute path of the output folder; shown to users
  std::optional<EarlierDeclaration> declared = {};  // in earlier terms, if one has trained
  bool holds_end = false;  // members hear that the job is over after Coordinator::announce_end
};

// The processes that have said Hello and wait, for a place in the job or for its end: remembers them
// so that each hears how the job ends. Part of the coordinator's state machine. Not thread-safe.
class Newcomers {
 public:
  // Borrows out.
  explicit Newcomers(Actions& out) : out_(out) {}

  // Remembers a process that waits, and returns the time since its first Hello, in milliseconds. If
  // too many wait, the one whose newest Hello is the oldest is forgotten.
  int64_t wait(int64_t now_ms, const PeerId& peer, uint64_t incarnation);
  // Asks the process to repeat its Hello. reason: why it waits, for users.
  void answer(const PeerId& peer, const std::string& reason);
  // Drops a process that has a place now.
  void forget(uint64_t incarnation) { all_.erase(incarnation); }
  // Refuses all processes that wait, with the end of the job. Later calls have no effect.
  void end(const Error& end);

  // Returns the end of the job, once the members may hear of it.
  const std::optional<Error>& ended() const { return end_; }

 private:
  struct Newcomer {
    int64_t since_ms = 0;
    int64_t heard_ms = 0;  // its newest Hello
    PeerId peer;
  };

  Actions& out_;
  std::map<uint64_t, Newcomer> all_;  // by incarnation
  std::optional<Error> end_;
};

// Returns what is wrong with a Hello by itself.
Checked check_hello(const wire::Hello& hello);

// Returns the refusal of a process of another job, or "".
//   own: the token of this server's job.
std::string other_job_text(const std::string& own, const wire::Hello& hello);

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

  // Returns true if all servers are members and workers have declared the whole model.
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
  // Returns how many ranks the workers with a stage may have, and how many have one.
  int64_t places_of(int stage) const;
  int64_t taken_of(int stage) const;
  int rank_for(const MemberInfo& worker) const;
  int unclaimed_rank(int wanted) const;

  const CoordinatorOptions& options_;
  Membership& members_;
  Actions& out_;
  Declarations declarations_;
  Newcomers newcomers_;
  int64_t places_;  // places for workers
  bool holds_servers_ = false;
};

}  // namespace pushpull
