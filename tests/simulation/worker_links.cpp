#include "tests/simulation/worker_links.h"

#include <algorithm>
#include <string>

#include "tests/simulation/worker_node.h"

namespace pushpull::sim {

WorkerLinks::WorkerLinks(Cluster& cluster, WorkerNode& process, WeightChecks& checks,
                         PushPull& push_pull, const wire::State& state)
    : cluster_(cluster),
      process_(process),
      checks_(checks),
      push_pull_(push_pull),
      state_version_(state.version()),
      servers_(static_cast<size_t>(state.data_endpoints_size())),
      shares_(servers_.size()) {
  for (int server = 0; server < state.data_endpoints_size(); ++server) connect(server, state);
  plan_sharing();
  checks_.follow(&push_pull);
  process_.set_links(this);
  push_pull_.on_state(state, now_ms());
}

void WorkerLinks::close() {
  for (const auto& dealers : servers_) {
    for (const int dealer : dealers) cluster_.network().close(dealer);
  }
}

void WorkerLinks::silence(int server, int64_t until_ms) {
  if (static_cast<size_t>(server) >= servers_.size()) return;
  for (const int dealer : servers_[static_cast<size_t>(server)]) {
    cluster_.network().silence(dealer, until_ms);
  }
}

FloatAllocator WorkerLinks::gradients() {
  return cluster_.scenario().sharing.on ? memory_.allocator() : heap_floats;
}

void WorkerLinks::connect(int server, const wire::State& state) {
  const int router = cluster_.data_router(state.data_endpoints(server));
  std::vector<int>& dealers = servers_[static_cast<size_t>(server)];
  for (const int dealer : dealers) cluster_.network().close(dealer);
  dealers.clear();
  const int64_t life = ++inbox_->lives[server];
  const auto take = [inbox = inbox_, &process = process_, server, life](const Message& m) {
    process.happen([inbox, &process, server, life, m] {
      if (inbox->lives[server] != life) return;  // from a closed connection
      inbox->messages.emplace_back(server, m);
      process.wake_trainer();
    });
  };
  while (std::ssize(dealers) < push_pull_.connections(server)) {
    dealers.push_back(cluster_.network().add_dealer(router, take));
  }
}

void WorkerLinks::plan_sharing() {
  const Sharing& sharing = cluster_.scenario().sharing;
  if (!sharing.on || !cluster_.dice().chance(sharing.workers)) return;
  const auto change = [this](int server, bool shared, int64_t at_ms) {
    process_.later(at_ms * 1000, [inbox = inbox_, &process = process_, server, shared] {
      inbox->share_changes.emplace_back(server, shared);
      process.wake_trainer();
    });
  };
  for (int server = 0; server < std::ssize(servers_); ++server) {
    int64_t at_ms = cluster_.dice().between(0, sharing.late_ms);
    if (sharing.late_ms == 0) {
      inbox_->share_changes.emplace_back(server, true);
    } else {
      change(server, true, at_ms);
    }
    if (!cluster_.dice().chance(sharing.ends)) continue;
    at_ms += cluster_.dice().between(1, cluster_.dice().chance(0.5) ? 50 : 2000);
    change(server, false, at_ms);
    if (sharing.again) change(server, true, at_ms + cluster_.dice().between(1, 500));
  }
}

// Connects to replacements like SocketLinks. Messages of the previous process are dropped with its
// connection.
void WorkerLinks::follow_replaced() {
  for (const int server : push_pull_.take_replaced()) {
    connect(server, process_.member().state());
    std::erase_if(inbox_->messages, [server](const auto& from) { return from.first == server; });
    shares_[static_cast<size_t>(server)] = false;
    std::erase_if(inbox_->share_changes, [server](const auto& c) { return c.first == server; });
  }
}

void WorkerLinks::send() {
  follow_replaced();
  std::vector<ToServer> messages = push_pull_.take_outgoing();
  checks_.sent(messages);
  for (ToServer& out : messages) send(std::move(out));
}

void WorkerLinks::send(ToServer out) {
  if (shares_[static_cast<size_t>(out.server)]) {
    cluster_.referred_gradients += memory_.refer(out.message);
  } else if (cluster_.scenario().sharing.on) {
    copy_payloads(out.message);
  }
  cluster_.network().to_router(
      servers_[static_cast<size_t>(out.server)][static_cast<size_t>(out.connection)],
      std::move(out.message));
}

void WorkerLinks::exchange(const Taken& taken) {
  follow_replaced();
  for (const auto& [server, shared] : std::exchange(inbox_->share_changes, {})) {
    shares_[static_cast<size_t>(server)] = shared;
    push_pull_.share_memory(server, shared);
  }
  while (!inbox_->messages.empty()) {
    const auto [server, message] = std::move(inbox_->messages.front());
    inbox_->messages.pop_front();
    checks_.received(message);
    if (!push_pull_.on_message(server, message, now_ms())) {
      checks_.wrong("refused " + message.header.ShortDebugString());
    }
    taken(server, message);
    send();
  }
  take_news();
  push_pull_.on_tick(now_ms());
  send();
}

void WorkerLinks::wait() {
  checks_.waits();
  if (inbox_->messages.empty() && process_.peer_inbox().empty()) process_.trainer_thread().wait();
  take_news();
}

void WorkerLinks::take_news() {
  const wire::State& state = process_.member().state();
  if (process_.over() || state.version() <= state_version_) return;
  state_version_ = state.version();
  push_pull_.on_state(state, now_ms());
  listener_(state);
}

}  // namespace pushpull::sim
