// Connects a worker to the servers' data ports. Plain functions; used by the trainer's thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/net/endpoint.h"
#include "common/net/join.h"

namespace pushpull {

// Returns the address of a server's data port: tcp, or a unix socket if the job asks for it and the
// server runs on this host.
//   joined: the coordinator's address.
std::string data_address(const JobView& run, int server, const std::string& joined);

// Returns the credentials for the data port of `server`.
Credentials data_credentials(const wire::State& state, int server, const Credentials& credentials);

// Returns one connection to each server, over tcp. credentials: Control::data_credentials.
std::vector<std::unique_ptr<Dealer>> connect_to_servers(const JobView& run,
                                                        const std::string& joined,
                                                        zmq::context_t& context,
                                                        const Credentials& credentials);

}  // namespace pushpull
