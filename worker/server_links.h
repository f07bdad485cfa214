// A worker's data connections, one to each server. Plain functions; the trainer's thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/job.h"
#include "common/net/endpoint.h"

namespace pushpull {

// state: of a job that trains. joined: where the coordinator was reached.
std::unique_ptr<Dealer> connect_to_server(const Job& job, const wire::State& state, int server,
                                          const std::string& joined, zmq::context_t& context);
// One to each.
std::vector<std::unique_ptr<Dealer>> connect_to_servers(const Job& job, const wire::State& state,
                                                        const std::string& joined,
                                                        zmq::context_t& context);

}  // namespace pushpull
