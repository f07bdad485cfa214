// A worker's data connections, one to each server. Plain functions; the trainer's thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/job/job.h"
#include "common/net/endpoint.h"

namespace pushpull {

// Where to reach a server's data: over tcp, or over a unix socket where the job says so and the
// server is on this host. state: of a job that trains. joined: where the coordinator was reached.
std::string data_address(const Job& job, uint64_t run, const wire::State& state, int server,
                         const std::string& joined);

// Over tcp, one to each.
std::vector<std::unique_ptr<Dealer>> connect_to_servers(const Job& job, const wire::State& state,
                                                        const std::string& joined,
                                                        zmq::context_t& context);

}  // namespace pushpull
