// Message checks that several parts of the coordinator share. Plain functions; any thread.
#pragma once

#include <cstdint>
#include <span>

#include "common/job/barriers.h"
#include "common/layout/metric.h"
#include "common/net/message.h"
#include "common/net/refusals.h"
#include "ps/members/membership.h"

namespace pushpull {

// Checks that the sender is a member and has this role. `member` is null if no member has the
// incarnation that the message names.
Checked check_member(const MemberInfo* member, wire::Role role, uint64_t incarnation);
// Like check_member, for a worker, which must also have declared.
Checked check_trainer(const MemberInfo* member, uint64_t incarnation);

// Checks that `step` belongs to this run.
Checked check_step(const Barriers& barriers, int64_t step, const MemberInfo& from);

// Checks that results of an evaluation are possible in this run.
//   heads: of the model, as declared.
Checked check_results(const Barriers& barriers, int64_t micro_batch,
                      std::span<const HeadInfo> heads, const wire::EvalResult& result,
                      const MemberInfo& from);

}  // namespace pushpull
