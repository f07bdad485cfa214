#include "tests/simulation/forger.h"

#include <algorithm>
#include <memory>
#include <span>
#include <utility>

#include "common/net/model_wire.h"
#include "tests/simulation/shared_memory.h"
#include "tests/simulation/toy.h"

namespace pushpull::sim {

namespace {

constexpr size_t kMaxHeard = 200;
constexpr size_t kConnections = 2;  // to each router
constexpr int64_t kPid = 4000;
constexpr int64_t kControlMs = 1500;  // between repeats on control; several heartbeats

}  // namespace

Forger::Forger(Cluster& cluster)
    : cluster_(cluster), dice_(cluster.scenario().seed + 3), incarnation_(dice_.next()) {
  // no worker with its data exists, so that a place for it would be an error
  cluster_.watch().began(incarnation_, {wire::ROLE_WORKER, static_cast<int>(kPid), "forged"});
  cluster_.network().tap(
      [this](int dealer, int router, const Message& message) { hear(dealer, router, message); });
  cluster_.clock().after(dice_.between(0, 100'000), [this] { act(); });
}

// Keeps a sample of all messages, in which new ones replace old ones.
void Forger::hear(int dealer, int router, const Message& message) {
  if (mine_.contains(dealer)) return;
  const wire::Header& header = message.header;
  if (!header.hello().data_endpoint().empty()) {
    servers_.insert(header.hello().incarnation());
    return;
  }
  if (header.exchange().has_push()) {
    const uint64_t worker = header.exchange().sender().incarnation();
    if (std::ranges::find(workers_, worker) == workers_.end()) workers_.push_back(worker);
  }
  if (heard_.size() == kMaxHeard && !dice_.chance(0.2)) return;
  Heard heard{dealer, router, message};
  copy_payloads(heard.message);
  if (heard_.size() < kMaxHeard) return heard_.push_back(std::move(heard));
  heard_[static_cast<size_t>(dice_.between(0, kMaxHeard - 1))] = std::move(heard);
}

const Forger::Heard& Forger::any() {
  return heard_[static_cast<size_t>(dice_.between(0, std::ssize(heard_) - 1))];
}

uint64_t Forger::any_worker() {
  return workers_[static_cast<size_t>(dice_.between(0, std::ssize(workers_) - 1))];
}

void Forger::act() {
  const Forgery& forgery = cluster_.scenario().forgery;
  if (cluster_.over() || cluster_.clock().now_ms() > forgery.until_ms) return;
  if (!heard_.empty()) {
    const int64_t kind = dice_.between(0, 3);
    if (kind == 0) {
      forge_control();
    } else if (kind == 1) {
      forge_data();
    } else {
      repeat(any());
    }
  }
  cluster_.clock().after(dice_.between(1, 2 * forgery.every_us), [this] { act(); });
}

// Returns true if a repeat would be a sign of life of a server that has died.
bool Forger::holds_a_place(const Heard& heard) const {
  if (cluster_.network().is_open(heard.dealer)) return false;
  const wire::Header& header = heard.message.header;
  return header.hello().role() == wire::ROLE_SERVER ||
         servers_.contains(header.heartbeat().incarnation());
}

// A member is known by the incarnation in its messages, so that State goes to the connection of the
// newest one. A repeated message diverts it until the member's next heartbeat.
void Forger::repeat(const Heard& heard) {
  if (heard.router == cluster_.control_router()) {
    const int64_t now_ms = cluster_.clock().now_ms();
    if (now_ms < next_control_ms_ || holds_a_place(heard)) return;
    next_control_ms_ = now_ms + kControlMs;
  }
  send(heard.router, heard.message);
}

void Forger::send(int router, Message message) {
  std::vector<int>& dealers = dealers_[router];
  if (dealers.size() < kConnections) {
    dealers.push_back(cluster_.network().add_dealer(router, [](const Message& /*answer*/) {}));
    mine_.insert(dealers.back());
  }
  const auto which = static_cast<size_t>(dice_.between(0, std::ssize(dealers) - 1));
  cluster_.network().to_router(dealers[which], std::move(message));
}

// ---- control ----

void Forger::forge_control() {
  Message message;
  wire::Header& header = message.header;
  header.set_term_id(dice_.chance(0.8) ? cluster_.coordinator().term_id() : dice_.next());
  const uint64_t name = dice_.chance(0.7) ? incarnation_ : dice_.next();
  // other jobs keep the schedules of their seeds
  const bool own_weights = !cluster_.toy().own_weights().empty();
  switch (dice_.between(0, own_weights ? 7 : 6)) {
    case 0:  // a server that only asks, or no role
      header.mutable_hello()->set_role(static_cast<wire::Role>(dice_.between(0, 1)));
      header.mutable_hello()->set_incarnation(name);
      break;
    case 1:
      return forge_declaration();
    case 2:
      header.mutable_heartbeat()->set_incarnation(name);
      header.mutable_heartbeat()->set_state_version(dice_.between(-1, 1000));
      header.mutable_heartbeat()->set_told_to_end(15);
      break;
    case 3:
      header.mutable_eval_result()->set_incarnation(name);
      header.mutable_eval_result()->set_step(dice_.between(0, 10));
      to_wire(std::vector<HeadSums>(Toy::heads().size(), {1e9, 1, 1.0}),
              header.mutable_eval_result()->add_chunks());
      break;
    case 4:
      header.mutable_norms()->set_incarnation(name);
      header.mutable_norms()->set_step(dice_.between(0, 10));
      header.mutable_norms()->add_nodes()->set_squares(1e9);
      break;
    case 5:
      header.mutable_arrived()->set_incarnation(name);
      header.mutable_arrived()->set_step(dice_.between(0, 10));
      header.mutable_arrived()->add_lo(0);
      break;
    case 7: {
      static const std::vector<float> weights(64, 1e9F);
      header.mutable_own_weights()->set_incarnation(name);
      header.mutable_own_weights()->set_offset(64 * dice_.between(0, 100));
      message.payloads.push_back({nullptr, std::as_bytes(std::span<const float>(weights))});
      break;
    }
    default:
      header.mutable_leave()->set_incarnation(name);
      header.mutable_leave()->set_code(static_cast<int32_t>(dice_.between(0, 300)));
      break;
  }
  send(cluster_.control_router(), std::move(message));
}

// Joins as a worker with other data. The first declaration of a job decides, so this is a later one.
void Forger::forge_declaration() {
  if (cluster_.coordinator().declaration().data_digest.empty()) return;
  Message message;
  wire::Hello* hello = message.header.mutable_hello();
  hello->set_role(wire::ROLE_WORKER);
  hello->set_incarnation(incarnation_);
  hello->set_host("forger");
  hello->set_pid(kPid);
  send(cluster_.control_router(), message);
  // void in the next term, in which it could be the first one
  message.header.set_term_id(cluster_.coordinator().term_id());
  *message.header.mutable_declare() = cluster_.declaration("forged");
  message.header.mutable_declare()->set_incarnation(incarnation_);
  send(cluster_.control_router(), std::move(message));
}

// ---- data ----

void Forger::forge_data() {
  Heard heard = any();
  wire::Header& header = heard.message.header;
  const uint64_t name = workers_.empty() || dice_.chance(0.3) ? incarnation_ : any_worker();
  if (header.exchange().has_push()) return forge_push(std::move(heard));
  if (header.has_exchange()) {
    header.mutable_exchange()->mutable_sender()->set_incarnation(incarnation_);
  } else if (header.has_load()) {
    header.mutable_load()->mutable_sender()->set_incarnation(name);
  } else if (header.has_fetch()) {
    header.mutable_fetch()->mutable_sender()->set_incarnation(name);
  } else if (header.has_received()) {
    header.mutable_received()->mutable_sender()->set_term_id(dice_.next());
  } else {
    return repeat(heard);
  }
  send(heard.router, std::move(heard.message));
}

// Sends a push that its grant does not cover.
void Forger::forge_push(Heard heard) {
  wire::Exchange* exchange = heard.message.header.mutable_exchange();
  exchange->clear_pull();
  wire::Push* push = exchange->mutable_push();
  wire::Grant* grant = push->mutable_grant();
  push->set_number(push->number() + dice_.between(0, 2));
  const uint64_t other = any_worker();
  switch (dice_.between(0, 6)) {
    case 0:  // the rank of another worker
      if (other == exchange->sender().incarnation()) return;
      exchange->mutable_sender()->set_incarnation(other);
      break;
    case 1:
      exchange->mutable_sender()->set_incarnation(incarnation_);
      break;
    case 2:
      grant->set_mac(std::string(16, static_cast<char>(dice_.between(0, 255))));
      break;
    case 3:
      grant->set_to_step(grant->to_step() + 1);
      break;
    case 4:  // marks earlier pushes as complete if it is accepted
      push->clear_grant();
      push->set_first(push->number());
      break;
    case 5:  // replaces the losses of an open push if it is accepted
      push->clear_grant();
      push->clear_parts();
      heard.message.payloads.clear();
      push->mutable_losses()->Resize(push->hi() - push->lo(), 1e9F);
      break;
    default:
      push->set_lo(push->lo() + (push->lo() > 0 && dice_.chance(0.5) ? -1 : 1));
      break;
  }
  for (Payload& payload : heard.message.payloads) {
    auto bytes = std::make_shared<std::vector<std::byte>>(payload.bytes.size(), std::byte{0x40});
    payload.bytes = std::span<const std::byte>(*bytes);
    payload.owner = std::move(bytes);
  }
  // also to other servers
  send(dice_.chance(0.8) ? heard.router : any().router, std::move(heard.message));
}

}  // namespace pushpull::sim
