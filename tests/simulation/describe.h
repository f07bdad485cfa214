// Describes the state of simulated processes and their waits, for the text of a failed simulation.
#pragma once

#include <string>

#include "ps/run/job_driver.h"
#include "ps/server/server.h"
#include "worker/member/worker_member.h"

namespace pushpull::sim {

std::string describe(const JobDriver& driver);
// server: null until it serves.
std::string describe(const Server* server);
std::string describe(const WorkerMember& member);

}  // namespace pushpull::sim
