// The address of this host that other nodes of a job can reach. Any thread.
#pragma once

#include <string>
#include <vector>

namespace pushpull {

// Returns the local IP address on the route to the first of `nodes` that has one and is another host;
// if there is none, that of the default route, else of the first interface that is up, else 127.0.0.1.
// Sends nothing, but asks the resolver for the names.
std::string reachable_host(const std::vector<std::string>& nodes);

}  // namespace pushpull
