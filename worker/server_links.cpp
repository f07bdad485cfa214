#include "worker/server_links.h"

#include "common/net/address.h"

namespace pushpull {

std::unique_ptr<Dealer> connect_to_server(const Job& job, const wire::State& state, int server,
                                          const std::string& joined, zmq::context_t& context) {
  // a first server that listens everywhere is where the job was joined
  Address address = parse_address(state.data_endpoints(server), "advertise");
  if (address.is_everywhere()) address.host = parse_address(joined, "join").host;
  return std::make_unique<Dealer>(context, address.to_string(), data_limits(job.slice_bytes));
}

std::vector<std::unique_ptr<Dealer>> connect_to_servers(const Job& job, const wire::State& state,
                                                        const std::string& joined,
                                                        zmq::context_t& context) {
  std::vector<std::unique_ptr<Dealer>> out;
  for (int server = 0; server < state.data_endpoints_size(); ++server) {
    out.push_back(connect_to_server(job, state, server, joined, context));
  }
  return out;
}

}  // namespace pushpull
