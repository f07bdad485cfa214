// Describes the state of simulated processes, and what each waits for. The text of a failed
// simulation contains it.
#pragma once

#include <string>

#include "ps/coordinator/job_driver.h"
#include "ps/server/server.h"
#include "worker/member/worker_member.h"

namespace pushpull::sim {

std::string describe(const JobDriver& driver);
// server: null before it serves.
std::string describe(const Server* server);
std::string describe(const WorkerMember& member);

}  // namespace pushpull::sim
