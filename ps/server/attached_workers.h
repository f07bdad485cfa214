// The workers that share memory with this server: answers Attach, replaces references to their
// segments by payloads in incoming messages, and weights by references in outgoing ones. If weights
// are on a device, workers that cannot read it get copies in host memory. Has a pair of rings with
// each of them, beside its socket. Uses no socket. Not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "common/shm/references.h"
#include "common/shm/rings.h"
#include "ps/engine/host_mirror.h"
#include "ps/server/server.h"

namespace pushpull {

struct Job;

class AttachedWorkers {
 public:
  // failed: called once for each reason why memory cannot be shared, on the host or on the device,
  // or why copies from the device are slow.
  // device: memory of the weights; null for host memory. server: rank of this server.
  AttachedWorkers(const Job& job, uint64_t term_id, const SliceMap& map,
                  const std::function<void(const std::string& why)>& failed,
                  std::shared_ptr<device::Device> device = nullptr, int server = 0);

  // Allocates weights, on the device if there is one. Returns an empty function if the memory of
  // the device is not shared: the engine may then use any memory of it.
  FloatAllocator weights();
  // Unmaps the memory of lost workers.
  void on_state(const wire::State& state);
  // Returns the answer to Attach, or a Status with not_ready if the worker is not known yet.
  Message on_attach(const PeerId& peer, const wire::Attach& attach);
  // Returns true if weights are on a device.
  bool on_device() const { return device_ != nullptr; }
  // Returns true if some worker shares memory.
  bool attached() const { return !peers_.empty(); }
  // Replaces the references of an incoming message by payloads. Returns an answer if the message is
  // refused; the worker then uses the socket.
  std::optional<Message> on_message(const PeerId& peer, Message& message);
  // Returns the next message of a worker's ring, or nullopt. Its sender is a name of that ring, to
  // which `send` sends.
  //   marked: only a message that was there when the rings were marked.
  std::optional<std::pair<PeerId, Message>> receive(bool marked);
  // Sends the message if its receiver has a ring and the ring has room. Otherwise names the worker's
  // socket as the receiver and returns false.
  bool send(Outgoing& out);
  // For waiting, also for direct connections; null if the job allows neither.
  Rings* rings() const { return rings_.get(); }
  // Prepares an outgoing message: payloads on a device are copied to the host unless the worker
  // reads them on the device, and weights become references if the worker reads them in place.
  // Throws Error(kDevice).
  void on_send(Outgoing& out);

 private:
  struct Worker {
    std::optional<PeerMemory> memory;  // empty if it is not attached
    bool shares_device = false;        // it computes on the server's device
    bool in_place = false;             // its newest pull wants references
    bool on_device = false;            // such references may be to device memory
    int64_t pull = 0;                  // number of that pull
    std::unique_ptr<RingPair> ring;    // null if the worker has none
    PeerId socket;                     // the connection that it has used last
  };

  void remember(const PeerId& peer, uint64_t incarnation);
  void attach_ring(Worker& worker, const wire::Attach& attach, wire::Attached& attached);
  void attach_device(Worker& worker, const wire::Attach& attach, wire::Attached& attached);
  const Worker* reader_of(const Outgoing& out) const;

  const bool allowed_;
  const uint64_t term_id_;
  const SliceMap map_;
  SegmentPool pool_;
  // set if weights are on a device; device_pool_ only if its memory is shared
  const std::shared_ptr<device::Device> device_;
  std::unique_ptr<DevicePool> device_pool_;
  std::unique_ptr<HostMirror> mirror_;
  PagesMapped mapped_;            // registers workers' pages with the device
  std::unique_ptr<Rings> rings_;  // outlives the workers
  // test segments for workers; made for the first Attach
  std::shared_ptr<float[]> probe_;
  std::shared_ptr<float[]> device_probe_;
  std::map<uint64_t, Worker> workers_;  // by incarnation
  std::map<PeerId, uint64_t> peers_;    // connections of workers that have attached
  uint64_t received_from_ = 0;          // the worker whose ring was read last
};

}  // namespace pushpull
