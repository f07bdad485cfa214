// The workers that share memory with this server: answers their Attach, replaces references to
// their segments by payloads before the state machine sees a message, and weights by references
// behind it. When weights lie on a device, workers that cannot read them there get copies in host
// memory. Knows no socket. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "common/job/job.h"
#include "common/shm/references.h"
#include "ps/engine/host_mirror.h"
#include "ps/server/server.h"

namespace pushpull {

class AttachedWorkers {
 public:
  // failed: told why weights lie in the heap, where no shared memory can be had, or cannot be
  // shared on the device, or are copied from there more slowly: each once.
  // device: that weights lie on; null: the host. server: whose they are.
  AttachedWorkers(const Job& job, uint64_t run, const SliceMap& map,
                  const std::function<void(const std::string& why)>& failed,
                  std::shared_ptr<device::Device> device = nullptr, int server = 0);

  // Allocates weights, on the device if there is one. Empty: the engine may use any memory of the
  // device, since nobody shares it.
  FloatAllocator weights();
  // Unmaps the memory of workers that are gone.
  void on_state(const wire::State& state);
  // The answer to Attach; a Status that says not_ready where the worker is not known yet.
  Message on_attach(const PeerId& peer, const wire::Attach& attach);
  // Weights lie on a device.
  bool on_device() const { return device_ != nullptr; }
  // Some worker shares memory.
  bool attached() const { return !peers_.empty(); }
  // Resolves the references of a message that has come. Returns an answer if it is refused: the
  // worker then uses the socket.
  std::optional<Message> on_message(const PeerId& peer, Message& message);
  // Prepares a message that goes out: weights become references where the worker reads them in
  // place, and no payload lies on a device afterwards. Throws Error(kDevice).
  void on_send(Outgoing& out);

 private:
  struct Worker {
    std::optional<PeerMemory> memory;  // empty: not attached
    bool shares_device = false;        // it computes on the server's device
    bool in_place = false;             // its newest pull wants references
    bool on_device = false;            // ... also to the device
    int64_t pull = 0;                  // number of that
  };

  void remember(const PeerId& peer, uint64_t incarnation);
  void attach_device(Worker& worker, const wire::Attach& attach, wire::Attached& attached);
  const Worker* reader_of(const Outgoing& out) const;

  const bool allowed_;
  const uint64_t run_;
  const SliceMap map_;
  SegmentPool pool_;
  // where weights lie on a device; the pool where it can be shared
  const std::shared_ptr<device::Device> device_;
  std::unique_ptr<DevicePool> device_pool_;
  std::unique_ptr<HostMirror> mirror_;
  PagesMapped mapped_;  // workers' pages, which the device copies from
  // for workers to try; made when the first one asks
  std::shared_ptr<float[]> probe_;
  std::shared_ptr<float[]> device_probe_;
  std::map<uint64_t, Worker> workers_;  // by incarnation
  std::map<PeerId, uint64_t> peers_;    // connections of workers that have attached
};

}  // namespace pushpull
