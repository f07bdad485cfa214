#include "ps/server/data_plane.h"

#include <algorithm>

#include "common/base/error.h"
#include "common/base/process.h"
#include "common/device/device.h"
#include "common/host/cores.h"
#include "common/host/resources.h"
#include "common/net/address.h"
#include "common/net/frames.h"
#include "ps/engine/device_engine.h"

namespace pushpull {

namespace {

constexpr int kMessagesPerTurn = 64;
constexpr int kOfRings = 16;  // messages of rings before the socket is read again
// Bytes of due weights that are updated at once: enough for all threads, and few enough that
// workers get the first slices while gradients of others arrive.
constexpr int64_t kDueBytes = int64_t{4} << 20;
// The same with shared memory, where no gradients are in transit: fewer, larger batches cost less.
constexpr int64_t kDueSharedBytes = int64_t{16} << 20;

// Returns the term of the message's sender, or 0 if it names none.
uint64_t term_id_of(const wire::Header& header) {
  if (header.has_exchange()) return header.exchange().sender().term_id();
  if (header.has_load()) return header.load().sender().term_id();
  if (header.has_fetch()) return header.fetch().sender().term_id();
  if (header.has_store()) return header.store().sender().term_id();
  if (header.has_received()) return header.received().sender().term_id();
  return 0;
}

}  // namespace

// ---- ServedData ----

void ServedData::on_state(const JobView& job, TrainingObserver* observer) {
  const wire::State& state = job.state;
  if (state.phase() < wire::PHASE_TRAINING || state.phase() > wire::PHASE_FINISHED) return;
  if (state.version() < state_version_) return;
  state_version_ = state.version();
  if (!server_) {
    const int servers = std::max(1, state.data_endpoints_size());
    server_ = parts_.make_server(
        job, setup_of(state, job.term_id, job.incarnation, servers, job.job), observer);
  }
  parts_.on_state(state);
  server_->on_state(state);
}

void ServedData::end_term(uint64_t term_id) {
  earlier_term_id_ = term_id;
  state_version_ = -1;
  if (!server_) return;
  server_.reset();
  parts_.on_term_end();
}

void ServedData::on_answer(const wire::Header& answer) {
  if (!server_) return;
  parts_.on_answer(answer);
  if (answer.has_norm_total()) server_->on_norm_total(answer.norm_total());
  if (answer.has_chosen()) server_->on_chosen(answer.chosen());
  if (answer.has_record_taken()) server_->log().confirm(answer.record_taken().through());
}

Checked ServedData::take(const PeerId& peer, Message message) {
  if (earlier_term_id_ != 0 && term_id_of(message.header) == earlier_term_id_) return {};
  if (server_) return server_->take(peer, std::move(message));
  Message answer;
  answer.header.mutable_status()->set_not_ready(true);
  not_ready_.push_back({peer, std::move(answer)});
  return {};
}

void ServedData::work() {
  if (server_) server_->work();
}

std::vector<Outgoing> ServedData::take_outgoing() {
  return server_ ? server_->take_outgoing() : std::exchange(not_ready_, {});
}

std::vector<Dropped> ServedData::take_dropped() {
  return server_ ? server_->take_dropped() : std::vector<Dropped>{};
}

wire::Stats ServedData::stats() const {
  wire::Stats stats = server_ ? server_->stats() : wire::Stats();
  parts_.add_stats(&stats);
  return stats;
}

// ---- DataPlane ----

std::string advertised(const std::string& bound, const std::string& advertise) {
  Address address = parse_address(bound, "listen");
  if (!advertise.empty()) address.host = advertise;
  return address.to_string();
}

DataPlane::DataPlane(const std::string& address, int64_t slice_bytes,
                     std::shared_ptr<device::Device> device, Demand demand)
    : device_(std::move(device)),
      demand_(std::move(demand)),
      context_(data_io_threads()),
      handler_(context_, demand_),
      router_(handler_, address, data_limits(slice_bytes)) {}

void DataPlane::listen_locally(const Job& job, uint64_t term_id, const Log& log) {
  if (job.transport != Transport::kIpc) return;
  try {
    const std::string endpoint = local_endpoint(term_id, router_.address());
    remove_stale(endpoint);
    router_.listen_also(endpoint);
    if (local_) router_.stop_listening(local_->endpoint());
    local_ = std::make_unique<LocalSocketName>(endpoint);
  } catch (const Error& e) {
    log.warn(std::string(e.what()) + "; data goes over tcp");
  }
}

std::unique_ptr<Server> DataPlane::make_server(const JobView& view, ServerSetup setup,
                                               TrainingObserver* observer) {
  const Job& job = view.job;
  const SliceMap map(setup.table, job.slice_bytes, setup.servers);
  log_.rename("server " + std::to_string(setup.rank));
  std::shared_ptr<device::Device> device = device_;
  if (device) {
    const std::string why = why_not_on_device(job);
    log_.info(why.empty() ? "keeps weights on " + device->name()
                          : "keeps weights in host memory, not on " + device->name() + ": " + why);
    if (!why.empty()) device = nullptr;
  }
  const auto warn = [log = log_](const std::string& why) { log.warn(why); };
  memory_ = std::make_unique<AttachedWorkers>(job, view.term_id, map, warn, device, setup.rank);
  direct_ = std::make_unique<DirectWorkers>(
      job, view.term_id, router_.address(), demand_, memory_->rings(),
      [this](const PeerId& from, const Refusal& refusal) { refuse(from, refusal); },
      [this](const std::string& address, const Refusal& refusal) {
        handler_.count_refused(address, refusal);
      });
  if (device) {
    DeviceEngineSetup engine;
    engine.device = device;
    engine.weights = memory_->weights();
    engine.pinned = device::registered(device, heap_floats, [log = log_](const std::string& why) {
      log.warn("copies to the device take longer: " + why);
    });
    setup.engine = std::make_shared<DeviceEngine>(std::move(engine));
  } else {
    setup.memory = memory_->weights();
  }
  threads_ = std::make_unique<ThreadPool>(useful_threads(job.server_threads));
  return std::make_unique<Server>(std::move(setup), observer, threads_.get());
}

void DataPlane::on_term_end() {
  threads_.reset();
  direct_.reset();  // before the rings
  memory_.reset();
}

void DataPlane::on_state(const wire::State& state) {
  memory_->on_state(state);
  direct_->on_state(state);
}

void DataPlane::wait(std::vector<zmq::pollitem_t>& items, int timeout_ms) {
  items.push_back({router_.socket().handle(), 0, ZMQ_POLLIN, 0});
  if (behind_rings_) timeout_ms = 0;
  if (memory_ && memory_->rings() != nullptr) {
    memory_->rings()->wait(items, timeout_ms);
  } else {
    poll_sockets(items, timeout_ms);
  }
}

bool DataPlane::sockets_are_idle() const {
  return memory_ && memory_->rings() != nullptr && memory_->rings()->sockets_are_idle();
}

// Returns the next message of a ring or of a direct connection.
std::optional<std::pair<PeerId, Message>> DataPlane::beside_socket() {
  if (auto received = memory_->receive(false)) return received;
  return direct_->receive();
}

// A message of a socket follows those that its sender has written to its ring before: those that are in
// the rings once it is here. Rings that are never empty do not hold up the socket.
std::optional<std::pair<PeerId, Message>> DataPlane::next() {
  if (!memory_)
    return behind_rings_ ? std::exchange(behind_rings_, std::nullopt) : router_.receive();
  if (!behind_rings_ && of_rings_ < kOfRings) {
    if (auto received = beside_socket()) {
      ++of_rings_;
      return received;
    }
  }
  if (!behind_rings_) {
    of_rings_ = 0;
    if (!sockets_are_idle()) behind_rings_ = router_.receive();
    if (!behind_rings_) return beside_socket();
    if (memory_->rings() != nullptr) memory_->rings()->mark();
  }
  if (auto received = memory_->receive(true)) return received;
  return std::exchange(behind_rings_, std::nullopt);
}

void DataPlane::receive() {
  if (direct_) direct_->turn(now_ms());
  const int64_t due = memory_ && memory_->attached() ? kDueSharedBytes : kDueBytes;
  for (int i = 0; i < kMessagesPerTurn; ++i) {
    auto received = next();
    if (!received) break;
    take(received->first, std::move(received->second));
    if (data_.server() != nullptr && data_.server()->due_bytes() >= due) work();
  }
  work();
}

void DataPlane::work() {
  data_.work();
  for (const Dropped& dropped : data_.take_dropped()) refuse(dropped.from, dropped.refusal);
  send();
}

void DataPlane::take(const PeerId& peer, Message message) {
  if (message.header.has_ping()) {
    Message answer;
    if (Checked refusal = pings_.take(now_ms(), message.header.ping(), answer)) {
      return refuse(peer, *refusal);
    }
    return this->answer(peer, std::move(answer));
  }
  if (direct_ && message.header.has_ask_direct()) {
    return answer(peer, direct_->on_ask(peer, message.header.ask_direct(), now_ms()));
  }
  if (memory_ && message.header.has_attach()) {
    // after the answer, the worker's memory must no longer be read for its earlier messages
    if (memory_->on_device()) work();
    return answer(peer, memory_->on_attach(peer, message.header.attach()));
  }
  if (memory_) {
    if (const auto refusal = memory_->on_message(peer, message)) {
      refuse(peer, *refused("shared-memory", refusal->header.attached().text()));
      return answer(peer, *refusal);
    }
  }
  if (Checked refusal = data_.take(peer, std::move(message))) refuse(peer, *refusal);
}

// Answers only the refusals that are also logged, so that a flood of messages causes few answers.
void DataPlane::refuse(const PeerId& peer, const Refusal& refusal) {
  router_.count_rejected();
  if (!refusals_.add(peer, refusal, now_ms())) return;
  log_.warn("dropped a message: " + refusal.line());
  if (!refusal.from_member) return;
  Message answer;
  answer.header.mutable_status()->set_refused(refusal.line());
  this->answer(peer, std::move(answer));
}

void DataPlane::answer(const PeerId& peer, Message message) {
  Outgoing out{peer, std::move(message)};
  if (memory_ && (memory_->send(out) || direct_->send(out))) return;
  router_.send(out.to, out.message);
  if (memory_ && memory_->rings() != nullptr) memory_->rings()->socket_used();
}

void DataPlane::send() {
  for (const std::string& line : handler_.take_notices()) log_.warn(line);
  for (Outgoing& out : data_.take_outgoing()) {
    if (memory_) memory_->on_send(out);
    answer(out.to, std::move(out.message));
  }
}

void DataPlane::add_stats(wire::Stats* stats) const {
  put_usage(process_usage(), *stats);
  put_traffic(*stats);
  device::put_memory_use(device::memory_use(), *stats);
  refusals_.report(router_.rejected_frames(), *stats);
  stats->set_refused_peers(handler_.refused_peers());
}

}  // namespace pushpull
