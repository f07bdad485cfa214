// Decides which processes take part in the job: Hello, the declaration, ranks, spares, and refusals
// that tell a newcomer why. Part of the coordinator's state machine; one thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "common/base/error.h"
#include "common/job/job.h"
#include "common/net/message.h"
#include "common/net/refusal.h"
#include "ps/members/actions.h"
#include "ps/members/declarations.h"
#include "ps/members/membership.h"

namespace pushpull {

struct CoordinatorOptions {
  Job job;
  uint64_t run = 0;        // of the term
  int64_t term = 1;        // from 1; one more after each server that was lost
  uint64_t first_run = 0;  // of the first term
  int servers = 1;
  int workers = 1;
  MemberInfo self;        // server 0, in this process
  std::string grant_key;  // what servers check pushes with (Grants)
  std::string out = {};   // folder of the run's output, absolute; for people
};

class Admission {
 public:
  // A process has declared. A Refusal is only for what no honest worker says: one that merely does
  // not fit is told so by Refused.
  struct Declared {
    Checked refusal = {};
    bool admitted = false;  // it is a worker now, with a rank or as a spare
    // Job and data do not fit, and everybody has these data: nobody can compute it.
    std::optional<Error> job_error = {};
  };

  // Borrows everything for its own lifetime; adds server 0 to the members.
  Admission(const CoordinatorOptions& options, Membership& members, Actions& out);

  Checked on_hello(int64_t now_ms, const PeerId& peer, const wire::Hello& hello, wire::Phase phase);
  Declared on_declare(int64_t now_ms, const PeerId& peer, const wire::Declare& declare,
                      wire::Phase phase);
  // Before the start: a member is gone. Its place is free, and what it has declared holds only while
  // somebody is there who has declared the same.
  void forget(const MemberInfo& member);
  // Training begins: as many workers take part from here on as the job says.
  void begin_training();
  // Gives free ranks to spares that have declared.
  void promote_spares();
  // The job is over: no place becomes free any more.
  void refuse_waiting();
  void set_choices(const std::string& choices) { declarations_.set_choices(choices); }

  // What a process that joins is told of the job.
  Message job_text() const;

  // Every server is there, and a worker that has declared.
  bool has_quorum() const;
  // Every server and every rank is there, and the first worker has declared.
  bool complete() const;
  // "waiting for members: 1 of 2 servers, ..."
  std::string waiting_for() const;
  const Declarations& declarations() const { return declarations_; }

 private:
  // A server that no place is free for yet.
  struct Newcomer {
    int64_t since_ms = 0;
    PeerId peer;
  };

  Checked make_room(const wire::Hello& hello);
  bool refuse_hello(int64_t now_ms, const PeerId& peer, const wire::Hello& hello,
                    wire::Phase phase);
  bool may_replace(int64_t now_ms, const PeerId& peer, const wire::Hello& hello);
  // Refuses a process whose address another one of its role has already.
  bool refuse_taken_endpoint(const PeerId& peer, wire::Role role, uint64_t incarnation,
                             const std::string& endpoint);
  void add_member(const wire::Hello& hello);
  Declared check_declaration(const PeerId& peer, const MemberInfo& member,
                             const wire::Declare& declare);
  void admit(MemberInfo& member, wire::Phase phase);
  bool anybody_has_declared() const;
  int free_rank() const;

  const CoordinatorOptions& options_;
  const bool workers_meet_;  // workers exchange data, so each declares an address
  Membership& members_;
  Actions& out_;
  Declarations declarations_;
  int64_t places_;                             // of workers
  std::map<uint64_t, Newcomer> replacements_;  // by incarnation
};

}  // namespace pushpull
