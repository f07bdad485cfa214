// What `members.json` and `pushpull status` say, as JSON (docs/status.md). Plain functions; any thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "ps/members/membership.h"
#include "ps/status/job_facts.h"
#include "ps/status/pace.h"
#include "ps/work/training_progress.h"

namespace pushpull {

// The members that are shown, and what is known of them.
struct MembersView {
  int64_t now_ms = 0;
  int64_t began_ms = 0;                                   // of the coordinator
  const std::map<uint64_t, MemberInfo>* shown = nullptr;  // by incarnation
  const Membership* members = nullptr;                    // those that are gone, too
  const TrainingProgress* progress = nullptr;             // null: before the start
  const Pace* pace = nullptr;
};

// {"members": [...], "left": [...]}, a line for each of them.
std::string members_json(const MembersView& view);
// The same in one line, with the job's figures.
std::string status_json(const MembersView& view, const JobFacts& facts);

}  // namespace pushpull
