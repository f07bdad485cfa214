#include "worker/exchange/socket_links.h"

#include <chrono>
#include <string>
#include <thread>
#include <utility>

#include "common/base/console.h"
#include "common/base/error.h"
#include "common/base/process.h"
#include "common/job/job.h"
#include "common/job/job_keys.h"
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

std::string data_address(const JobView& view, int server, const std::string& joined) {
  std::string tcp = tcp_address(view.state, server, joined);
  if (view.job.transport != Transport::kIpc) return tcp;
  std::string why = "it has no socket here: is it on this host, with the same TMPDIR?";
  try {
    std::string local = local_endpoint(view.term_id, tcp);
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

namespace {

constexpr int kLinksPollMs = 20;
constexpr int64_t kLetGoMs = 1000;
// libzmq gives a new connection to the I/O thread with the fewest ones, but counts a connection
// only after a moment: two simultaneous connections could share one thread for the whole job.
// Workers therefore connect one after another.
constexpr auto kConnectApart = std::chrono::milliseconds(10);
constexpr int kConnectTurns = 16;

}  // namespace

SocketLinks::SocketLinks(const JobView& view, PushPull& push_pull, Control& control,
                         zmq::context_t& context, PagesMapped mapped,
                         std::shared_ptr<device::Device> device)
    : push_pull_(push_pull),
      control_(control),
      context_(context),
      job_(view.job),
      term_id_(view.term_id),
      incarnation_(view.incarnation),
      state_(view.state),
      log_("worker " + std::to_string(view.state.rank())),
      memory_(push_pull, view.state.rank(), std::move(mapped), std::move(device)),
      direct_(push_pull.setup(), memory_.rings(), view.state.rank()),
      servers_(static_cast<size_t>(view.state.data_endpoints_size())) {
  std::this_thread::sleep_for(kConnectApart * (view.state.rank() % kConnectTurns));
  for (size_t server = 0; server < servers_.size(); ++server) connect(static_cast<int>(server));
  push_pull_.on_state(view.state, now_ms());
}

SocketLinks::~SocketLinks() {
  const Rings* const rings = memory_.rings();
  if (rings == nullptr || rings->spinning().waits() == 0) return;
  const auto percent = 100 * rings->spinning().in_time() / rings->spinning().waits();
  log_.info(
      std::to_string(percent) + " % of its " + std::to_string(rings->spinning().waits()) +
      " waits for messages ended before it slept, with wait = " + find_job_key("wait")->get(job_));
}

void SocketLinks::connect(int server) {
  EndpointLimits limits = data_limits(job_.slice_bytes);
  const Credentials credentials = data_credentials(state_, server, control_.data_credentials());
  const std::string address =
      data_address({job_, term_id_, incarnation_, state_}, server, control_.address());
  auto& connections = servers_[static_cast<size_t>(server)];
  connections.clear();
  while (std::ssize(connections) < push_pull_.connections(server)) {
    limits.io_thread = connected_++ % data_io_threads();
    connections.push_back(std::make_unique<Dealer>(context_, address, limits, credentials));
  }
  direct_.connect(server, address, credentials);
}

// Returns whether there is news of the coordinator. A connection that has ended is another socket
// the next time.
bool SocketLinks::poll() {
  poll_items_.clear();
  for (size_t server = 0; server < servers_.size(); ++server) {
    for (const auto& connection : servers_[server]) {
      poll_items_.push_back({connection->socket().handle(), 0, ZMQ_POLLIN, 0});
      const std::string line = connection->take_warning();
      if (!line.empty()) log_.warn("server " + std::to_string(server) + ": " + line);
    }
  }
  others_(poll_items_);
  poll_items_.push_back({nullptr, control_.news().fd(), ZMQ_POLLIN, 0});
  if (memory_.rings() != nullptr) {
    memory_.rings()->wait(poll_items_, kLinksPollMs);
  } else {
    poll_sockets(poll_items_, kLinksPollMs);
  }
  return (poll_items_.back().revents & ZMQ_POLLIN) != 0;
}

// Connects to replacement servers before anything is sent: messages for the lost server must not
// reach them.
void SocketLinks::follow_replaced() {
  for (const int server : push_pull_.take_replaced()) {
    log_.info("server " + std::to_string(server) + " is another process now, at " +
              state_.data_endpoints(server));
    memory_.start_over(server);
    connect(server);
  }
}

void SocketLinks::attach() {
  while (!control_.over()) {
    exchange([](int, const Message&) {});
    if (memory_.settled()) return;
    poll();
  }
}

void SocketLinks::wait_for_readers() {
  const int64_t until_ms = now_ms() + kLetGoMs;
  for (const ToServer& ask : memory_.questions_before_leaving()) {
    send_over_socket(ask);
  }
  while (memory_.unanswered() > 0) {
    if (now_ms() >= until_ms) {
      Log("worker").warn("ends without " + std::to_string(memory_.unanswered()) +
                         " answers of servers that read its gradients on the GPU");
      return;
    }
    poll();
    control_.news().clear();
    for (size_t server = 0; server < servers_.size(); ++server) {
      for (const auto& connection : servers_[server]) {
        while (auto message = receive(static_cast<int>(server), *connection)) {
          memory_.on_message(static_cast<int>(server), *message, now_ms());
        }
      }
    }
  }
}

void SocketLinks::send() {
  follow_replaced();
  for (ToServer& out : push_pull_.take_outgoing()) send(std::move(out));
}

void SocketLinks::send(ToServer message) {
  memory_.on_send(message);
  if (!memory_.send(message) && !direct_.send(message)) send_over_socket(message);
}

// For what is sent again after a time without an answer: should nobody read the ring, this still arrives.
void SocketLinks::send_by_socket(ToServer message) {
  memory_.on_send(message);
  send_over_socket(message);
}

void SocketLinks::send_over_socket(const ToServer& message) {
  connection_of(message).send(message.message);
  if (memory_.rings() != nullptr) memory_.rings()->socket_used();
}

Dealer& SocketLinks::connection_of(const ToServer& message) {
  auto& connections = servers_[static_cast<size_t>(message.server)];
  return *connections[static_cast<size_t>(message.connection)];
}

std::optional<Message> SocketLinks::receive(int server, Dealer& connection) {
  if (auto message = memory_.receive(server)) return message;
  if (auto message = direct_.receive(server, now_ms())) return message;
  const Rings* const rings = memory_.rings();
  return rings != nullptr && rings->sockets_are_idle() ? std::nullopt : connection.receive();
}

void SocketLinks::exchange(const Taken& taken) {
  const int64_t now = now_ms();
  follow_replaced();  // not while messages are received
  for (size_t server = 0; server < servers_.size(); ++server) {
    for (const auto& connection : servers_[server]) {
      while (auto message = receive(static_cast<int>(server), *connection)) {
        if (!memory_.on_message(static_cast<int>(server), *message, now)) continue;
        if (!direct_.on_message(static_cast<int>(server), *message, now)) continue;
        push_pull_.on_message(static_cast<int>(server), *message, now);
        for (const std::string& warning : push_pull_.take_warnings()) log_.warn(warning);
        taken(static_cast<int>(server), *message);
        send();  // the server may wait for a report of received bytes
      }
    }
  }
  take_news();
  for (const ToServer& ask : memory_.due(now)) {
    send_over_socket(ask);
  }
  for (const ToServer& ask : direct_.due(now)) {
    if (memory_.uses_socket(ask.server)) send_over_socket(ask);
  }
  send();
  push_pull_.on_tick(now);
  for (ToServer& out : push_pull_.take_outgoing()) send_by_socket(std::move(out));
}

void SocketLinks::wait() {
  if (!poll()) return;
  control_.news().clear();
  take_news();
}

void SocketLinks::take_news() {
  if (control_.state_version() <= state_.version()) return;
  const auto state = control_.state();
  if (!state) return;  // a new term begins
  state_ = *state;
  push_pull_.on_state(*state, now_ms());
  listener_(*state);
}

}  // namespace pushpull
