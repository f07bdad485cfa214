// Attaches servers' shared memory to this worker: asks each server with Attach, turns gradients
// into references on their way out and references to a server's weights into payloads on their way
// in, in host memory and in memory of the device that both compute on. Where memory cannot be
// shared, it says why, and host memory, or the socket, is used. Knows no socket. The trainer's
// thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/log.h"
#include "common/shm/references.h"
#include "worker/exchange/push_pull.h"

namespace pushpull {

class ServerAttachment {
 public:
  // push_pull: learns which servers share memory; borrowed. rank: of this worker, for messages.
  // mapped: called for servers' memory.
  // device: whose memory is to be shared too; null: none.
  ServerAttachment(PushPull& push_pull, int rank, PagesMapped mapped = {},
                   std::shared_ptr<device::Device> device = nullptr);

  // Questions that are due. Call until `settled`, and now and then after that: a server that was
  // silent may answer yet.
  std::vector<ToServer> due(int64_t now_ms);
  // Every server has answered, or has been silent for so long that its socket is used meanwhile.
  bool settled() const;

  // Another process is in this server's place: it is asked anew, and its socket used meanwhile.
  void start_over(int server);

  // Before this worker ends, and its device memory with it, although the job goes on: a question to
  // each server that reads there, on every connection. Its answer says that it no longer reads
  // there what was sent before.
  std::vector<ToServer> questions_before_leaving();
  // Answers to them that are still to come.
  int unanswered() const { return unanswered_; }

  // Takes in a server's message. False: it is not for PushPull.
  bool on_message(int server, Message& message, int64_t now_ms);
  void on_send(ToServer& out) const;
  // Messages that were refused.
  int64_t rejected() const { return rejected_; }

  // Memory for gradients.
  FloatAllocator gradients();
  // Once it is settled: the device's memory, where all servers read it; null: some do not.
  FloatAllocator device_gradients();

 private:
  enum class Path { kAsked, kShared, kSocket };
  struct Server {
    Path path = Path::kAsked;
    std::string why;        // kSocket: the reason
    int64_t asked_ms = -1;  // last; -1: not yet
    int64_t heard_ms = -1;
    bool silent = false;            // kAsked, and not waited for any more
    bool on_device = false;         // kShared: the device's memory too
    std::string why_not_on_device;  // kShared: the reason, where it was asked for
    std::optional<PeerMemory> memory;
  };

  bool may_share() const;
  Message question() const;
  void on_attached(int server, const wire::Attached& attached);
  void attach_device(Server& server, const wire::Attached& attached);
  void on_refusal(int server, const std::string& why);
  void use_socket(int server, const std::string& why);
  void say_if_settled();
  void say(const std::string& text) const;

  PushPull& push_pull_;
  const bool allowed_;
  const bool wanted_;  // transport = shm: a warning where memory is not shared
  const Log log_;
  const PagesMapped mapped_;
  SegmentPool pool_;
  std::unique_ptr<DevicePool> device_pool_;  // null: no device
  std::shared_ptr<float[]> probe_;
  std::shared_ptr<float[]> device_probe_;
  std::vector<Server> servers_;
  bool said_ = false;
  int unanswered_ = 0;
  int64_t rejected_ = 0;
};

}  // namespace pushpull
