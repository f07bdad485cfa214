#include "worker/server_links.h"

#include "common/net/address.h"

namespace pushpull {

std::vector<std::unique_ptr<Dealer>> connect_to_servers(const Job& job, const wire::State& state,
                                                        const std::string& joined,
                                                        zmq::context_t& context) {
  const EndpointLimits limits = data_limits(job.slice_bytes);
  std::vector<std::unique_ptr<Dealer>> out;
  for (const std::string& endpoint : state.data_endpoints()) {
    // a first server that listens everywhere is where the job was joined
    Address address = parse_address(endpoint, "advertise");
    if (address.is_everywhere()) address.host = parse_address(joined, "join").host;
    out.push_back(std::make_unique<Dealer>(context, address.to_string(), limits));
  }
  return out;
}

}  // namespace pushpull
