// Checks that several parts of the coordinator make before they use a message. Plain functions; any
// thread.
#pragma once

#include <cstdint>

#include "common/job/barriers.h"
#include "common/net/message.h"
#include "common/net/refusal.h"
#include "ps/members/membership.h"

namespace pushpull {

// Whether a message may come from this member, which must have this role. member: null where nobody
// has the incarnation that the message names.
Checked check_member(const MemberInfo* member, wire::Role role, uint64_t incarnation);
// The same for a worker, which must have declared.
Checked check_trainer(const MemberInfo* member, uint64_t incarnation);

// Whether this run computes step `step`.
Checked check_step(const Barriers& barriers, int64_t step, const MemberInfo& from);

// Whether results of an evaluation can be those of this run.
Checked check_results(const Barriers& barriers, int64_t micro_batch, const wire::EvalResult& result,
                      const MemberInfo& from);

}  // namespace pushpull
