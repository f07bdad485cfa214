// Decides which processes take part in the job: Hello, the declaration, ranks, spares, and refusals
// that tell a newcomer why. Part of the coordinator's state machine; one thread.
#pragma once

#include <cstdint>
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
  uint64_t run = 0;
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
    bool admitted = false;                // it is a worker now, with a rank or as a spare
    std::optional<Error> job_error = {};  // job and data do not fit: nobody can compute it
  };

  // Borrows everything for its own lifetime; adds server 0 to the members.
  Admission(const CoordinatorOptions& options, Membership& members, Actions& out);

  Checked on_hello(int64_t now_ms, const PeerId& peer, const wire::Hello& hello, wire::Phase phase);
  Declared on_declare(int64_t now_ms, const PeerId& peer, const wire::Declare& declare,
                      wire::Phase phase);
  // Gives free ranks to spares that have declared.
  void promote_spares();
  void set_choices(const std::string& choices) { declarations_.set_choices(choices); }

  // Every server and every rank is there, and the first worker has declared.
  bool complete() const;
  // "waiting for members: 1 of 2 servers, ..."
  std::string waiting_for() const;
  const Declarations& declarations() const { return declarations_; }

 private:
  Checked make_room(const wire::Hello& hello);
  bool refuse_hello(const PeerId& peer, const wire::Hello& hello, wire::Phase phase);
  // Refuses a process whose address another one of its role has already.
  bool refuse_taken_endpoint(const PeerId& peer, wire::Role role, uint64_t incarnation,
                             const std::string& endpoint);
  void add_member(const wire::Hello& hello);
  Declared check_declaration(const PeerId& peer, const MemberInfo& member,
                             const wire::Declare& declare);
  void admit(MemberInfo& member, wire::Phase phase);

  const CoordinatorOptions& options_;
  const bool workers_meet_;  // workers exchange data, so each declares an address
  Membership& members_;
  Actions& out_;
  Declarations declarations_;
};

}  // namespace pushpull
