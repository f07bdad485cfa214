// The settings of the coordinator for one term of a job. Plain data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/job/job.h"
#include "ps/members/earlier_declaration.h"
#include "ps/members/membership.h"

namespace pushpull {

struct CoordinatorOptions {
  Job job;
  uint64_t run = 0;        // id of the term
  int64_t term = 1;        // counts from 1; each lost server starts another
  uint64_t first_run = 0;  // id of the first term
  int servers = 1;
  int workers = 1;
  MemberInfo self;             // server 0, in this process
  std::string grant_key;       // servers verify pushes with it (Grants)
  std::string job_token = {};  // members with another one are of another job; "": admits all
  std::string out = {};        // absolute path of the output folder; shown to users
  std::optional<EarlierDeclaration> declared = {};  // in earlier terms, if one has trained
  bool holds_end = false;  // members hear that the job is over after Coordinator::announce_end
};

}  // namespace pushpull
