// Attaches servers' shared memory to this worker: asks each server with Attach, replaces gradients
// in outgoing messages by references, and references to a server's weights by payloads. Shares host
// memory and the memory of a common device, and has a pair of rings with each server that shares
// memory, beside its sockets. Logs the reason if memory cannot be shared; messages then carry the
// data. Uses no socket. Used by the trainer's thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/console.h"
#include "common/shm/references.h"
#include "common/shm/rings.h"
#include "worker/exchange/push_pull.h"

namespace pushpull {

class ServerAttachment {
 public:
  // push_pull: is told which servers share memory; borrowed.
  // rank: of this worker, for messages.
  // mapped: called when a server's memory is mapped.
  // device: its memory is shared too; null if there is none.
  ServerAttachment(PushPull& push_pull, int rank, PagesMapped mapped = {},
                   std::shared_ptr<device::Device> device = nullptr);

  // Returns the Attach messages that are due. Call until `settled` and occasionally after that: a
  // silent server may answer later.
  std::vector<ToServer> due(int64_t now_ms);
  // Returns true if each server has answered, or has been silent for 2 s and is reached over its
  // socket.
  bool settled() const;

  // Uses the socket of the process that has taken this server's place until it answers Attach. Does
  // not ask it if the lost server was reached over its socket, too.
  void start_over(int server);

  // Returns a question to each server that reads this worker's device memory, on every connection.
  // After the answer the server no longer reads earlier pushes. Call before the worker ends while
  // the job continues.
  std::vector<ToServer> questions_before_leaving();
  // The number of those answers that are missing.
  int unanswered() const { return unanswered_; }

  // Handles a server's message. Returns false if it is not for PushPull.
  bool on_message(int server, Message& message, int64_t now_ms);
  // Replaces gradients by references where the server reads them in place.
  void on_send(ToServer& out) const;
  // Sends the message on the server's ring. Returns false if there is none, or it has no room.
  bool send(const ToServer& message);
  // Returns the next message on the server's ring.
  std::optional<Message> receive(int server);
  // Returns whether the server's messages carry their data.
  bool uses_socket(int server) const {
    return servers_[static_cast<size_t>(server)].path == Path::kSocket;
  }
  // For waiting, also for direct connections; null if the job allows neither.
  Rings* rings() const { return rings_.get(); }
  // The number of messages that were refused.
  int64_t rejected() const { return rejected_; }

  // Allocates gradients. Any thread may call the allocator: stages of a pipeline do.
  FloatAllocator gradients();
  // Allocates gradients on the device, once settled. Null unless all servers read them there.
  FloatAllocator device_gradients();

 private:
  enum class Path { kAsked, kShared, kSocket };
  struct Server {
    Path path = Path::kAsked;
    std::string why;        // kSocket: the reason
    int64_t asked_ms = -1;  // of the last question; -1 if there is none
    int64_t heard_ms = -1;
    bool silent = false;            // kAsked: no longer waited for
    bool on_device = false;         // kShared: also the device's memory
    std::string why_not_on_device;  // kShared: the reason, if it was asked for
    std::optional<PeerMemory> memory;
    std::unique_ptr<RingPair> ring;  // not open until the server has answered
  };

  Message question(int server);
  void on_attached(int server, const wire::Attached& attached);
  static void attach_ring(Server& server, const wire::Attached& attached);
  void attach_device(Server& server, const wire::Attached& attached);
  void on_refusal(int server, const std::string& why);
  void use_socket(int server, const std::string& why);
  void log_if_settled();
  void say(const std::string& text) const;

  PushPull& push_pull_;
  const bool allowed_;
  const bool wanted_;  // transport = shm: warn if memory is not shared
  const Log log_;
  const PagesMapped mapped_;
  SegmentPool pool_;
  std::unique_ptr<DevicePool> device_pool_;  // null without a device
  std::shared_ptr<float[]> probe_;
  std::shared_ptr<float[]> device_probe_;
  std::unique_ptr<Rings> rings_;  // outlives the servers
  std::vector<Server> servers_;
  std::atomic<bool> may_share_ = true;  // a server shares memory, or may do so later
  bool logged_ = false;
  int unanswered_ = 0;
  int64_t rejected_ = 0;
};

}  // namespace pushpull
