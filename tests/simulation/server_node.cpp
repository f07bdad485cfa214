#include "tests/simulation/server_node.h"

#include <algorithm>

#include "ps/aggregation/make_aggregation.h"
#include "ps/engine/device_engine.h"
#include "ps/engine/server_device.h"
#include "tests/device/fake_device.h"

namespace pushpull::sim {

namespace {

constexpr int64_t kTickUs = 10'000;
constexpr int64_t kHelloMs = 500;
constexpr int64_t kNormsMs = 200;
constexpr size_t kDeviceBytes = size_t{8} << 20;
constexpr size_t kStagingBytes = size_t{64} << 10;  // of several steps' parts not all

CoordinatorOptions options_of(Cluster& cluster) {
  CoordinatorOptions options;
  options.job = cluster.scenario().job;
  options.run = cluster.dice().next();
  options.servers = cluster.scenario().servers;
  options.workers = cluster.scenario().workers;
  options.self.incarnation = cluster.dice().next();
  options.self.host = "host";
  options.self.pid = 1000;
  options.self.data_endpoint = endpoint_of(0);
  return options;
}

}  // namespace

// ---- data ----

DataNode::DataNode(Cluster& cluster)
    : cluster_(cluster),
      router_(cluster.network().add_router(
          [this](const PeerId& peer, const Message& message) { take(peer, message); })) {}

void DataNode::on_state(const wire::State& state, uint64_t run, uint64_t incarnation,
                        TrainingObserver* observer) {
  if (state.phase() < wire::PHASE_TRAINING || state.phase() > wire::PHASE_FINISHED) return;
  if (!server_) {
    const Scenario& scenario = cluster_.scenario();
    make_server(setup_of(state, run, incarnation, scenario.servers, scenario.job), observer);
  }
  server_->on_state(state);
}

void DataNode::make_server(ServerSetup setup, TrainingObserver* observer) {
  const Scenario& scenario = cluster_.scenario();
  const FloatAllocator pages = scenario.sharing.on ? pages_.allocator() : heap_floats;
  if (scenario.on_device && why_not_on_device(scenario.job).empty()) {
    device::FakeOptions options;
    options.seed = scenario.seed;
    options.memory_bytes = kDeviceBytes;
    const auto device = std::make_shared<device::FakeDevice>(options);
    setup.engine = std::make_shared<DeviceEngine>(
        DeviceEngineSetup{device, {}, device::registered(device, heap_floats, {}), kStagingBytes});
    mirror_ = std::make_unique<HostMirror>(device, device::registered(device, pages, {}),
                                           static_cast<size_t>(scenario.elements));
    ++cluster_.servers_on_devices;
  }
  setup.memory = pages;
  server_ = std::make_unique<Server>(std::move(setup), observer);
}

void DataNode::take(const PeerId& peer, const Message& message) {
  if (!open_) return;
  cluster_.guarded("server", [&] {
    if (!server_) {
      Message answer;
      answer.header.mutable_status()->set_not_ready(true);
      cluster_.network().to_dealer(peer, answer);
      return;
    }
    pages_.on_message(peer, message);
    if (!server_->take(peer, message)) {
      cluster_.wrong("a server refused " + message.header.ShortDebugString());
    }
    if (working_) return;
    working_ = true;
    // a turn of messages is applied together, whatever comes in it
    cluster_.clock().after(cluster_.dice().between(0, 300), [this] { work(); });
  });
}

void DataNode::work() {
  working_ = false;
  if (!open_) return;
  cluster_.guarded("server", [&] {
    server_->work();
    send();
  });
}

void DataNode::send() {
  if (!server_) return;
  for (Outgoing& out : server_->take_outgoing()) {
    if (mirror_) mirror_->bring(out.message.payloads);
    if (cluster_.scenario().sharing.on) cluster_.referred_weights += pages_.on_send(out);
    cluster_.network().to_dealer(out.to, std::move(out.message));
  }
}

std::string DataNode::describe() const {
  if (!server_) return "no server yet";
  return "floor " + std::to_string(server_->floor()) + ", barrier " +
         std::to_string(server_->open_barrier()) + (server_->ready() ? "" : ", not loaded") +
         (server_->waiting_norms() ? ", waits for the norm" : "") +
         (server_->waiting_arrived() ? ", waits for the set" : "");
}

// ---- coordinator ----

CoordinatorNode::CoordinatorNode(Cluster& cluster)
    : cluster_(cluster),
      data_(cluster),
      coordinator_(options_of(cluster)),
      control_(cluster.network().add_router(
          [this](const PeerId& peer, const Message& message) { take(peer, message); })) {
  cluster_.clock().after(kTickUs, [this] { tick(); });
}

void CoordinatorNode::take(const PeerId& peer, const Message& message) {
  if (over_) return;
  cluster_.guarded("coordinator", [&] {
    coordinator_.on_message(cluster_.clock().now_ms(), peer, message);
    note_evaluation();
    repeat_waiting();
    deliver();
  });
}

void CoordinatorNode::note_evaluation() {
  if (coordinator_.barriers().end_step == 0) return;  // not started
  const auto& newest = coordinator_.evaluations().newest();
  if (newest) cluster_.evaluations.emplace(newest->step, *newest);
}

void CoordinatorNode::tick() {
  if (over_) return;
  cluster_.guarded("coordinator", [&] {
    const int64_t now = cluster_.clock().now_ms();
    shard_messages();
    if (written_) {
      writing_ = false;
      coordinator_.checkpoint_done(now, *written_);
      written_.reset();
    }
    repeat_waiting();
    pass_record();
    coordinator_.on_tick(now);
    if (coordinator_.wants_start()) start();
    snapshots();
    if (data_.server() != nullptr) data_.server()->offer_leases();
    if (coordinator_.wants_summary()) coordinator_.finish();
    deliver();
    if (coordinator_.over()) {
      over_ = true;
      data_.close();
    }
  });
  cluster_.clock().after(kTickUs, [this] { tick(); });
}

void CoordinatorNode::start() {
  const int64_t now = cluster_.clock().now_ms();
  const Job& job = cluster_.scenario().job;
  const auto initial = cluster_.start_state();
  Start start;
  if (initial) start = {initial->step, initial->updates, true};
  coordinator_.start(now, start);
  const SliceMap map(coordinator_.declaration().table.total, job.slice_bytes,
                     cluster_.scenario().servers);
  client_ = std::make_unique<ShardClient>(coordinator_.run(), coordinator_.self_incarnation(), map,
                                          state_names(server_optimizer(job).kind).size());
  const wire::State state = coordinator_.state_for_self();
  for (const std::string& endpoint : state.data_endpoints()) {
    shards_.push_back(cluster_.network().add_dealer(
        cluster_.data_router(endpoint), [this](const Message& m) { take_from_shard(m); }));
  }
  if (initial) client_->load(initial, now);
}

void CoordinatorNode::take_from_shard(const Message& message) {
  if (over_) return;
  cluster_.guarded("shard client", [&] {
    if (!client_->on_message(message, cluster_.clock().now_ms())) {
      cluster_.wrong("the shard client refused " + message.header.ShortDebugString());
    }
    shard_messages();
  });
}

void CoordinatorNode::shard_messages() {
  if (!client_) return;
  client_->on_tick(cluster_.clock().now_ms());
  for (ToShard& out : client_->take_outgoing()) {
    cluster_.network().to_router(shards_[static_cast<size_t>(out.server)], std::move(out.message));
  }
  if (auto fetched = client_->take_fetched()) write(flatten(std::move(*fetched)));
}

void CoordinatorNode::write(const FlatState& snapshot) {
  coordinator_.checkpoint_gathered(cluster_.clock().now_ms(), snapshot.step);
  if (snapshot.step == coordinator_.barriers().start_step) {
    cluster_.start_weights = snapshot.weights;  // hashed, not written
  } else if (!cluster_.checkpoints.emplace(snapshot.step, snapshot).second) {
    cluster_.wrong("barrier " + std::to_string(snapshot.step) + " was written twice");
  }
  const int64_t duration = cluster_.dice().between(0, cluster_.scenario().write_us);
  cluster_.clock().after(duration, [this, step = snapshot.step] { written_ = step; });
}

void CoordinatorNode::snapshots() {
  if (!client_ || client_->busy() || writing_) return;
  const std::optional<int64_t> step = coordinator_.take_snapshot_request();
  if (!step) return;
  writing_ = true;
  client_->fetch(*step, *step != coordinator_.barriers().start_step, cluster_.clock().now_ms());
}

void CoordinatorNode::repeat_waiting() {
  const Server* server = data_.server();
  if (server == nullptr) return;
  if (server->waiting_arrived()) {
    Message message;
    *message.header.mutable_arrived() = *server->waiting_arrived();
    coordinator_.on_message(cluster_.clock().now_ms(), "", message);
  }
  if (server->waiting_norms()) {
    Message message;
    *message.header.mutable_norms() = *server->waiting_norms();
    coordinator_.on_message(cluster_.clock().now_ms(), "", message);
  }
}

void CoordinatorNode::note_chosen(const wire::Chosen& chosen) {
  const std::vector<int64_t> lo(chosen.lo().begin(), chosen.lo().end());
  if (cluster_.chosen.emplace(chosen.step(), lo).first->second == lo) return;
  cluster_.wrong("step " + std::to_string(chosen.step()) + " has two sets of pushes");
}

void CoordinatorNode::pass_record() {
  if (data_.server() == nullptr) return;
  for (wire::RecordPart& part : data_.server()->log().take_rest()) {
    part.set_incarnation(coordinator_.self_incarnation());
    Message message;
    *message.header.mutable_record_part() = std::move(part);
    coordinator_.on_message(cluster_.clock().now_ms(), "", message);
  }
}

void CoordinatorNode::deliver() {
  for (Outgoing& out : coordinator_.take_outgoing()) {
    const wire::Header& header = out.message.header;
    if (header.has_chosen()) note_chosen(header.chosen());
    if (!out.to.empty()) {
      const PeerId to = out.to;
      if (!cluster_.network().to_dealer(to, std::move(out.message))) {
        coordinator_.on_gone(cluster_.clock().now_ms(), to);
      }
    } else if (header.has_state()) {
      data_.on_state(header.state(), coordinator_.run(), coordinator_.self_incarnation(),
                     &coordinator_);
    } else if (header.has_norm_total() && data_.server() != nullptr) {
      data_.server()->on_norm_total(header.norm_total());
    } else if (header.has_chosen() && data_.server() != nullptr) {
      data_.server()->on_chosen(header.chosen());
    }
  }
  data_.send();
  for (const std::string& notice : coordinator_.take_notices()) {
    if (notice.find("until an earlier checkpoint is written") == std::string::npos) continue;
    ++cluster_.checkpoint_waits;
  }
}

std::string CoordinatorNode::describe() const {
  std::string out = "coordinator: " + wire::Phase_Name(coordinator_.phase());
  if (coordinator_.phase() == wire::PHASE_FAILED) out += " " + coordinator_.failure_text();
  if (over_) return out + ", over";
  out += " " + coordinator_.waiting_for();
  if (coordinator_.barriers().end_step > 0) {
    const auto& evaluation = coordinator_.evaluations().newest();
    out += ", floor " + std::to_string(coordinator_.training().floor()) + ", evaluated " +
           std::to_string(evaluation ? evaluation->step : -1) + ", end " +
           std::to_string(coordinator_.barriers().end_step);
  }
  if (writing_) out += ", writing";
  if (client_ && client_->busy()) {
    out += ", shard client waits for server " + std::to_string(client_->waiting_for());
  }
  for (const auto& [incarnation, member] : coordinator_.members().all()) {
    out += "\n    member " + member.name() + (member.declared ? " declared" : "");
  }
  return out + "\n  server 0: " + data_.describe();
}

// ---- joined server ----

ServerNode::ServerNode(Cluster& cluster, int number)
    : cluster_(cluster),
      number_(number),
      incarnation_(cluster.dice().next()),
      data_(cluster),
      // a server whose heartbeats stay away ends the job: that is another test's
      control_(cluster.network().add_dealer(
          cluster.control_router(), [this](const Message& message) { take(message); }, true)) {
  const int64_t late_us = cluster_.scenario().servers_late_ms * 1000;
  cluster_.clock().after(late_us + cluster_.dice().between(0, 20'000), [this] { tick(); });
}

void ServerNode::take(const Message& message) {
  if (over_) return;
  const wire::Header& header = message.header;
  cluster_.guarded("server " + std::to_string(number_), [&] {
    if (!text_) {
      if (header.has_job_text()) text_ = header.job_text();
      return;
    }
    if (header.has_norm_total()) {
      if (data_.server() != nullptr) data_.server()->on_norm_total(header.norm_total());
    } else if (header.has_record_taken()) {
      if (data_.server() != nullptr) {
        data_.server()->log().confirm(header.record_taken().through());
      }
    } else if (header.has_chosen()) {
      if (data_.server() != nullptr) data_.server()->on_chosen(header.chosen());
    } else if (header.has_refused()) {
      cluster_.wrong("server " + std::to_string(number_) +
                     " was refused: " + header.refused().text());
    } else if (header.has_state() && header.state().version() > state_.version()) {
      state_ = header.state();
      heartbeat_now_ = true;
      data_.on_state(state_, text_->run(), incarnation_, nullptr);
      if (state_.phase() >= wire::PHASE_FINISHED) leave();
    }
    data_.send();
  });
}

void ServerNode::send_part(wire::RecordPart part) {
  part.set_incarnation(incarnation_);
  Message message;
  *message.header.mutable_record_part() = std::move(part);
  cluster_.network().to_router(control_, std::move(message));
}

void ServerNode::leave() {
  if (data_.server() != nullptr) {
    for (wire::RecordPart& part : data_.server()->log().take_rest()) send_part(std::move(part));
  }
  Message message;
  message.header.mutable_leave()->set_incarnation(incarnation_);
  cluster_.network().to_router(control_, std::move(message));
  over_ = true;
  data_.close();
}

void ServerNode::kill() {
  over_ = true;
  data_.close();
  cluster_.network().close(control_);
}

void ServerNode::heartbeat() {
  const int64_t now = cluster_.clock().now_ms();
  const double timeout_s = cluster_.scenario().job.heartbeat_timeout_s;
  const auto interval_ms = std::min<int64_t>(1000, static_cast<int64_t>(timeout_s * 200));
  if (!heartbeat_now_ && now - heartbeat_ms_ < interval_ms) return;
  heartbeat_now_ = false;
  heartbeat_ms_ = now;
  Message message;
  wire::Heartbeat* beat = message.header.mutable_heartbeat();
  beat->set_incarnation(incarnation_);
  beat->set_state_version(state_.version());
  *beat->mutable_stats() = data_.stats();
  cluster_.network().to_router(control_, std::move(message));
}

void ServerNode::norms() {
  const Server* server = data_.server();
  if (server == nullptr || !server->waiting_norms()) return;
  const int64_t now = cluster_.clock().now_ms();
  const int64_t step = server->waiting_norms()->step();
  if (step == norms_step_ && now - norms_ms_ < kNormsMs) return;
  norms_step_ = step;
  norms_ms_ = now;
  Message message;
  *message.header.mutable_norms() = *server->waiting_norms();
  cluster_.network().to_router(control_, std::move(message));
}

void ServerNode::arrived() {
  const Server* server = data_.server();
  if (server == nullptr || !server->waiting_arrived()) return;
  const int64_t now = cluster_.clock().now_ms();
  const std::pair<int64_t, int> here{server->waiting_arrived()->step(),
                                     server->waiting_arrived()->lo_size()};
  if (here == arrived_ && now - arrived_ms_ < kNormsMs) return;
  arrived_ = here;
  arrived_ms_ = now;
  Message message;
  *message.header.mutable_arrived() = *server->waiting_arrived();
  cluster_.network().to_router(control_, std::move(message));
}

void ServerNode::tick() {
  if (over_) return;
  const int64_t now = cluster_.clock().now_ms();
  if (text_) {
    arrived();
    norms();
    if (data_.server() != nullptr) {
      if (auto part = data_.server()->log().due(now)) send_part(std::move(*part));
    }
    heartbeat();
  } else if (now - hello_ms_ >= kHelloMs) {
    hello_ms_ = now;
    Message message;
    wire::Hello* hello = message.header.mutable_hello();
    hello->set_role(wire::ROLE_SERVER);
    hello->set_host("host");
    hello->set_pid(1000 + number_);
    hello->set_incarnation(incarnation_);
    hello->set_data_endpoint(endpoint_of(number_));
    cluster_.network().to_router(control_, std::move(message));
  }
  cluster_.clock().after(kTickUs, [this] { tick(); });
}

std::string ServerNode::describe() const {
  return "server process " + std::to_string(number_) + " (rank " + std::to_string(state_.rank()) +
         "): " + (over_ ? "gone" : data_.describe());
}

}  // namespace pushpull::sim
