#include "tests/simulation/data_node.h"

#include "ps/engine/device_engine.h"
#include "tests/device/fake_device.h"

namespace pushpull::sim {

namespace {

constexpr size_t kDeviceBytes = size_t{8} << 20;
constexpr size_t kStagingBytes = size_t{64} << 10;  // smaller than the parts of several steps

}  // namespace

DataNode::DataNode(Cluster& cluster)
    : cluster_(cluster),
      router_(cluster.network().add_router(
          [this](const PeerId& peer, const Message& message) { take(peer, message); })),
      pages_(std::make_unique<ServerPages>()) {}

std::unique_ptr<Server> DataNode::make_server(const JobView& job, ServerSetup setup,
                                              TrainingObserver* observer) {
  if (job.state.tensors().empty()) cluster_.wrong("a server serves before it has its map");
  const Scenario& scenario = cluster_.scenario();
  const FloatAllocator pages = scenario.sharing.on ? pages_->allocator() : heap_floats;
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
  return std::make_unique<Server>(std::move(setup), observer);
}

void DataNode::on_term_end() {
  mirror_.reset();
  pages_ = std::make_unique<ServerPages>();
}

void DataNode::on_answer(const wire::Header& answer) {
  if (answer.has_chosen()) cluster_.note_chosen(answer.chosen());
}

void DataNode::take(const PeerId& peer, const Message& message) {
  if (!open_) return;
  cluster_.guarded("server", [&] {
    if (data_.server() != nullptr) pages_->on_message(peer, message);
    const Checked refusal = data_.take(peer, message);
    if (refusal) refuse(peer, *refusal, message.header.ShortDebugString());
    if (data_.server() == nullptr) return send();
    if (working_) return;
    working_ = true;
    // the messages of a turn are applied together
    cluster_.clock().after(cluster_.dice().between(0, 300), [this] { work(); });
  });
}

void DataNode::refuse(const PeerId& peer, const Refusal& refusal, const std::string& message) {
  if (cluster_.forged(peer)) {
    ++cluster_.refused_forgeries;
    return;
  }
  // after a restart a server may receive messages of a term that it does not know
  const bool stale = std::string_view(refusal.reason) == "run" && cluster_.recoveries > 0;
  if (!stale) cluster_.wrong(refusal.line() + " in " + message);
}

void DataNode::work() {
  working_ = false;
  if (!open_) return;
  cluster_.guarded("server", [&] {
    data_.work();
    for (const Dropped& dropped : data_.take_dropped()) {
      refuse(dropped.from, dropped.refusal, "a message that waited for its step");
    }
    send();
    if (then_) then_();
  });
}

void DataNode::send() {
  for (Outgoing& out : data_.take_outgoing()) {
    if (mirror_) mirror_->bring(out.message.payloads);
    if (cluster_.scenario().sharing.on) cluster_.referred_weights += pages_->on_send(out);
    cluster_.network().to_dealer(out.to, std::move(out.message));
  }
}

}  // namespace pushpull::sim
