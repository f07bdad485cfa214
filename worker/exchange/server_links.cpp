#include "worker/exchange/server_links.h"

#include "common/base/console.h"
#include "common/base/error.h"
#include "common/job/job.h"
#include "common/net/address.h"
#include "common/net/local_socket.h"

namespace pushpull {

namespace {

std::string tcp_address(const wire::State& state, int server, const std::string& joined) {
  // a first server that listens on all interfaces is reached where the worker joined the job
  Address address = parse_address(state.data_endpoints(server), "advertise");
  if (address.is_everywhere()) address.host = parse_address(joined, "join").host;
  return address.to_string();
}

}  // namespace

std::string data_address(const JobView& run, int server, const std::string& joined) {
  std::string tcp = tcp_address(run.state, server, joined);
  if (run.job.transport != Transport::kIpc) return tcp;
  std::string why = "it has no socket here: is it on this host, with the same TMPDIR?";
  try {
    std::string local = local_endpoint(run.run, tcp);
    if (answers(local)) return local;
  } catch (const Error& e) {
    why = e.what();
  }
  Log("worker").warn("[ipc] no unix socket to server " + std::to_string(server) + " at " + tcp +
                     ", data goes over tcp: " + why);
  return tcp;
}

Credentials data_credentials(const wire::State& state, int server, const Credentials& credentials) {
  return server < state.data_listeners_size() ? credentials.to(state.data_listeners(server))
                                              : credentials;
}

std::vector<std::unique_ptr<Dealer>> connect_to_servers(const JobView& run,
                                                        const std::string& joined,
                                                        zmq::context_t& context,
                                                        const Credentials& credentials) {
  std::vector<std::unique_ptr<Dealer>> out;
  const int servers = run.state.data_endpoints_size();
  out.reserve(static_cast<size_t>(servers));
  for (int server = 0; server < servers; ++server) {
    out.push_back(std::make_unique<Dealer>(context, tcp_address(run.state, server, joined),
                                           data_limits(run.job.slice_bytes),
                                           data_credentials(run.state, server, credentials)));
  }
  return out;
}

}  // namespace pushpull
