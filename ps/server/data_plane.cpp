#include "ps/server/data_plane.h"

#include "common/base/error.h"
#include "common/base/log.h"
#include "common/base/process.h"
#include "common/net/address.h"
#include "ps/engine/device_engine.h"
#include "ps/engine/server_device.h"

namespace pushpull {

namespace {

constexpr int kMessagesPerTurn = 64;
// Bytes of weights that wait for their update: enough for all threads, and few enough that workers
// get the first ones while others are still on their way.
constexpr int64_t kDueBytes = int64_t{4} << 20;
// The same where gradients need not travel: fewer, larger batches cost less.
constexpr int64_t kDueSharedBytes = int64_t{16} << 20;

}  // namespace

std::string advertised(const std::string& bound, const std::string& advertise) {
  Address address = parse_address(bound, "listen");
  if (!advertise.empty()) address.host = advertise;
  return address.to_string();
}

DataPlane::DataPlane(const std::string& address, int64_t slice_bytes,
                     std::shared_ptr<device::Device> device, Demand demand)
    : device_(std::move(device)),
      context_(data_io_threads()),
      handler_(context_, std::move(demand)),
      router_(handler_, address, data_limits(slice_bytes)) {}

void DataPlane::listen_locally(const Job& job, uint64_t run, const Log& log) {
  if (job.transport != Transport::kIpc) return;
  try {
    const std::string endpoint = local_endpoint(run, router_.address());
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
  const SliceMap map(setup.table.total, job.slice_bytes, setup.servers);
  log_.rename("server " + std::to_string(setup.rank));
  std::shared_ptr<device::Device> device = device_;
  if (device) {
    const std::string why = why_not_on_device(job);
    log_.info(why.empty() ? "keeps weights on " + device->name()
                          : "keeps weights in host memory, not on " + device->name() + ": " + why);
    if (!why.empty()) device = nullptr;
  }
  const auto warn = [log = log_](const std::string& why) { log.warn(why); };
  memory_ = std::make_unique<AttachedWorkers>(job, view.run, map, warn, device, setup.rank);
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
  memory_.reset();
}

void DataPlane::receive() {
  const int64_t due = memory_ && memory_->attached() ? kDueSharedBytes : kDueBytes;
  for (int i = 0; i < kMessagesPerTurn; ++i) {
    auto received = router_.receive();
    if (!received) break;
    take(received->first, std::move(received->second));
    if (data_.server() != nullptr && data_.server()->due_bytes() >= due) work();
  }
  work();
}

void DataPlane::work() {
  data_.work();
  send();
}

void DataPlane::take(const PeerId& peer, Message message) {
  if (message.header.has_ping()) {
    Message answer;
    if (Checked refusal = pings_.take(now_ms(), message.header.ping(), answer)) {
      return refuse(peer, *refusal);
    }
    router_.send(peer, answer);
    return;
  }
  if (memory_ && message.header.has_attach()) {
    // the answer says that what the worker has sent before is not read in its memory any more
    if (memory_->on_device()) work();
    router_.send(peer, memory_->on_attach(peer, message.header.attach()));
    return;
  }
  if (memory_) {
    if (const auto refusal = memory_->on_message(peer, message)) {
      refuse(peer, *refused("shared-memory", refusal->header.attached().text()));
      router_.send(peer, *refusal);
      return;
    }
  }
  if (Checked refusal = data_.take(peer, std::move(message))) refuse(peer, *refusal);
}

// Its sender is told as often as people are: rarely, so that nobody can make this server talk.
void DataPlane::refuse(const PeerId& peer, const Refusal& refusal) {
  router_.count_rejected();
  if (!refusals_.add(peer, refusal, now_ms())) return;
  log_.warn("dropped a message: " + refusal.line());
  if (!refusal.from_member) return;
  Message answer;
  answer.header.mutable_status()->set_refused(refusal.line());
  router_.send(peer, answer);
}

void DataPlane::send() {
  for (const std::string& line : handler_.take_notices()) log_.warn(line);
  for (Outgoing& out : data_.take_outgoing()) {
    if (memory_) memory_->on_send(out);
    router_.send(out.to, out.message);
  }
}

void DataPlane::add_stats(wire::Stats* stats) const {
  stats->set_peak_rss_kib(peak_rss_kib());
  stats->set_cpu_seconds(cpu_seconds());
  refusals_.report(router_.rejected_frames(), *stats);
  stats->set_refused_peers(handler_.refused_peers());
}

}  // namespace pushpull
