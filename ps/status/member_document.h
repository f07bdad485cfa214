// The JSON texts of `members.json` and `pushpull status` (docs/status.md). Plain functions; any
// thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "ps/members/membership.h"
#include "ps/status/job_facts.h"
#include "ps/status/pace.h"
#include "ps/work/committed_work.h"

namespace pushpull {

// The members to show, and the data about them.
struct MembersView {
  int64_t now_ms = 0;
  int64_t began_ms = 0;                                   // start of the coordinator
  const std::map<uint64_t, MemberInfo>* shown = nullptr;  // by incarnation
  const Membership* members = nullptr;                    // source of the former members
  const CommittedWork* committed = nullptr;               // null before the start
  const Pace* pace = nullptr;
};

// Returns {"members": [...], "left": [...]}, with one line for each member.
std::string members_json(const MembersView& view);
// Returns the same on one line, with the job's figures.
std::string status_json(const MembersView& view, const JobFacts& facts);

}  // namespace pushpull
