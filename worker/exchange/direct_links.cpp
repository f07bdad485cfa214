#include "worker/exchange/direct_links.h"

#include <algorithm>
#include <utility>

#include "common/base/error.h"
#include "common/base/text.h"
#include "common/net/address.h"

namespace pushpull {

namespace {

// Between two questions. The wait doubles from the first to the second value.
constexpr int64_t kMinWaitMs = 50;
constexpr int64_t kMaxWaitMs = 10'000;

// Larger exchanges are ZeroMQ's: its threads receive from one worker while the server adds what others have sent.
bool is_small(const PushPullSetup& setup) {
  const int64_t elements = setup.total_elements / setup.servers * setup.shares;
  return elements * static_cast<int64_t>(sizeof(float)) <= DirectLinks::kMaxBytes;
}

int32_t port_of(const std::string& address) {
  return static_cast<int32_t>(parse_int64(parse_address(address, "advertise").port).value_or(0));
}

}  // namespace

DirectLinks::DirectLinks(const PushPullSetup& setup, Rings* rings, int rank)
    : term_id_(setup.term_id),
      incarnation_(setup.incarnation),
      rings_(allows_direct(setup.job) && is_small(setup) ? rings : nullptr),
      log_("worker " + std::to_string(rank)),
      servers_(static_cast<size_t>(setup.servers)) {}

void DirectLinks::connect(int server, const std::string& address, const Credentials& credentials) {
  at(server) = {};
  if (rings_ == nullptr || !address.starts_with("tcp://")) return;
  at(server).wants = true;
  at(server).address = address;
  at(server).credentials = credentials;
}

void DirectLinks::ask_later(Server& server, int64_t now_ms) {
  server.wait_ms = std::clamp(2 * server.wait_ms, kMinWaitMs, kMaxWaitMs);
  server.ask_ms = now_ms + server.wait_ms;
}

std::vector<ToServer> DirectLinks::due(int64_t now_ms) {
  std::vector<ToServer> out;
  for (int i = 0; i < std::ssize(servers_); ++i) {
    Server& server = at(i);
    if (server.opening) open(i, now_ms);
    if (!server.wants || server.opening || server.connection || now_ms < server.ask_ms) continue;
    ask_later(server, now_ms);
    Message message;
    wire::AskDirect* ask = message.header.mutable_ask_direct();
    ask->mutable_sender()->set_term_id(term_id_);
    ask->mutable_sender()->set_incarnation(incarnation_);
    ask->set_port(port_of(server.address));
    out.push_back({i, std::move(message)});
  }
  return out;
}

bool DirectLinks::on_message(int server, const Message& message, int64_t now_ms) {
  if (!message.header.has_direct_offer()) return true;
  Server& s = at(server);
  const wire::DirectOffer& offer = message.header.direct_offer();
  if (!s.wants || s.opening || s.connection) return false;  // an answer to an earlier question
  if (offer.port() == 0) {
    s.wants = false;
    log_.info("server " + std::to_string(server) +
              " is reached over ZeroMQ alone: " + offer.text().substr(0, offer.text().find('\n')));
    return false;
  }
  try {
    s.opening = std::make_unique<DirectOpening>(s.address, offer.port(), offer.nonce(),
                                                s.credentials, now_ms);
  } catch (const Error& e) {
    fail(server, e.what(), now_ms);
  }
  return false;
}

void DirectLinks::open(int server, int64_t now_ms) {
  Server& s = at(server);
  try {
    std::optional<UniqueFd> socket = s.opening->turn(now_ms);
    if (!socket) return;
    s.opening.reset();
    s.connection = std::make_unique<DirectConnection>(*rings_, std::move(*socket));
    s.wait_ms = 0;
  } catch (const Error& e) {
    fail(server, e.what(), now_ms);
  }
}

// Messages go over ZeroMQ until the next attempt.
void DirectLinks::fail(int server, const std::string& why, int64_t now_ms) {
  Server& s = at(server);
  s.opening.reset();
  s.connection.reset();
  ask_later(s, now_ms);
  if (std::exchange(s.logged, true)) return;
  log_.info("server " + std::to_string(server) + " is reached over ZeroMQ for now: " + why);
}

bool DirectLinks::send(const ToServer& message) {
  const Server& server = at(message.server);
  return server.connection && server.connection->send(message.connection, message.message);
}

std::optional<Message> DirectLinks::receive(int server, int64_t now_ms) {
  Server& s = at(server);
  if (!s.connection) return std::nullopt;
  try {
    if (auto received = s.connection->receive()) return std::move(received->message);
    if (!s.connection->is_over()) return std::nullopt;
    s.wants = s.connection->is_lost();  // else messages were too large
    s.connection.reset();               // no line: servers that end close theirs
    ask_later(s, now_ms);
  } catch (const Error& e) {
    fail(server, e.what(), now_ms);
  }
  return std::nullopt;
}

}  // namespace pushpull
