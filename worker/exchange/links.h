// Moves messages between PushPull and the servers: a worker's data connections and the news of its
// coordinator as one thing to wait on. The trainer's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "common/base/log.h"
#include "common/net/endpoint.h"
#include "common/net/job_view.h"
#include "worker/exchange/push_pull.h"
#include "worker/exchange/server_attachment.h"
#include "worker/member/control.h"

namespace pushpull {

// The setup of PushPull for this run. elements: of the flat vector; chunks: of an evaluation.
PushPullSetup push_pull_setup(const JobView& run, int64_t elements, int64_t chunks);

class Links {
 public:
  // run: PushPull hears its state; its job is borrowed. mapped and device: as ServerAttachment takes them. References are
  // borrowed.
  Links(const JobView& run, PushPull& push_pull, Control& control, zmq::context_t& context,
        PagesMapped mapped = {}, std::shared_ptr<device::Device> device = nullptr);

  // Asks the servers whether they share memory. Ends when all have answered, or after some seconds
  // of silence, or when the job is over.
  void attach();
  // Before this worker ends although the job goes on: servers may be reading what it has pushed in
  // memory of its device. Waits, at most a second, until they have taken that in.
  void let_go();
  // Memory for gradients that are pushed.
  FloatAllocator gradients() { return memory_.gradients(); }
  // The same on the device, once attached; null: not all servers read them there.
  FloatAllocator device_gradients() { return memory_.device_gradients(); }

  // Sends what PushPull wants sent.
  void send();
  // Takes in what has come, repeats what is overdue, sends. taken: called after each message that
  // was taken in. What the coordinator has said before a server sent something is taken in with it,
  // or before: weights of a step come after the news of who computes what in it.
  void exchange(const std::function<void(const Message&)>& taken);
  // Until something comes, at most 20 ms.
  void wait();
  // Each newer state goes to PushPull, and then to this.
  void set_listener(std::function<void(const wire::State&)> listener) {
    listener_ = std::move(listener);
  }

 private:
  void take_news();
  void connect(int server);
  bool poll();
  void follow_replaced();

  PushPull& push_pull_;
  Control& control_;
  zmq::context_t& context_;
  const Job& job_;
  const uint64_t run_;
  const uint64_t incarnation_;
  wire::State state_;  // the newest that PushPull knows
  std::function<void(const wire::State&)> listener_ = [](const wire::State&) {};
  int connected_ = 0;  // so far
  Log log_;
  ServerAttachment memory_;
  std::vector<std::vector<std::unique_ptr<Dealer>>> servers_;  // by server and connection
  std::vector<zmq::pollitem_t> poll_items_;                    // kept for its memory
};

}  // namespace pushpull
