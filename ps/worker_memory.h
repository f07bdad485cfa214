// Which workers share memory with this server: answers their Attach, turns references to their
// segments into payloads before the state machine sees a message, and weights into references
// behind it. Knows no socket. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "common/job.h"
#include "common/shm/references.h"
#include "ps/server.h"

namespace pushpull {

class WorkerMemory {
 public:
  // failed: told once why weights lie in the heap, where no shared memory can be had.
  WorkerMemory(const Job& job, uint64_t run, const SliceMap& map,
               std::function<void(const std::string& why)> failed);

  // Where weights are to lie.
  FloatAllocator weights();
  // Who is gone has nothing mapped here any more.
  void on_state(const wire::State& state);
  // The answer to Attach; a Status that says not_ready where the worker is not known yet.
  Message on_attach(const PeerId& peer, const wire::Attach& attach);
  // Some worker shares memory.
  bool attached() const { return !peers_.empty(); }
  // What has come. With an answer it is refused, and the worker is told to use the socket.
  std::optional<Message> on_message(const PeerId& peer, Message& message);
  // What goes out. Weights become references where the worker reads them in place.
  void on_send(Outgoing& out) const;

 private:
  struct Worker {
    std::optional<PeerMemory> memory;  // empty: not attached
    bool in_place = false;             // its newest pull wants references
    int64_t pull = 0;                  // number of that
  };

  void remember(const PeerId& peer, uint64_t incarnation);

  const bool allowed_;
  const uint64_t run_;
  const SliceMap map_;
  SegmentPool pool_;
  std::shared_ptr<float[]> probe_;      // for workers to try; made when the first one asks
  std::map<uint64_t, Worker> workers_;  // by incarnation
  std::map<PeerId, uint64_t> peers_;    // connections of workers that have attached
};

}  // namespace pushpull
