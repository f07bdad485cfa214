// Moves messages between PushPull and the servers, and the coordinator's news to PushPull. Waits
// for both at once. Used by the trainer's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/base/console.h"
#include "common/net/endpoint.h"
#include "common/net/join.h"
#include "worker/exchange/push_pull.h"
#include "worker/exchange/server_attachment.h"
#include "worker/member/control.h"

namespace pushpull {

// Connects a worker to the servers' data ports. Plain functions; used by the trainer's thread.

// Returns the address of a server's data port: tcp, or a unix socket if the job asks for it and the
// server runs on this host.
//   joined: the coordinator's address.
std::string data_address(const JobView& run, int server, const std::string& joined);

// Returns the credentials for the data port of `server`.
Credentials data_credentials(const wire::State& state, int server, const Credentials& credentials);

// Returns one connection to each server, over tcp. credentials: Control::data_credentials.
std::vector<std::unique_ptr<Dealer>> connect_to_servers(const JobView& run,
                                                        const std::string& joined,
                                                        zmq::context_t& context,
                                                        const Credentials& credentials);

// Returns the setup of PushPull for this run.
//   elements: of the flat vector. chunks: of an evaluation.
PushPullSetup push_pull_setup(const JobView& run, int64_t elements, int64_t chunks);

class Links {
 public:
  // run: its state is passed to PushPull. mapped, device: see ServerAttachment. Borrows the job of
  // `run` and all references.
  Links(const JobView& run, PushPull& push_pull, Control& control, zmq::context_t& context,
        PagesMapped mapped = {}, std::shared_ptr<device::Device> device = nullptr);

  // Asks the servers to share memory. Returns when all have answered, after some seconds of
  // silence, or when the job is over.
  void attach();
  // Waits until the servers no longer read pushes in the memory of this worker's device, at most a
  // second. Call before the worker ends while the job continues.
  void wait_for_readers();
  // Allocates gradients that are pushed.
  FloatAllocator gradients() { return memory_.gradients(); }
  // Allocates them on the device, once attached. Null unless all servers read them there.
  FloatAllocator device_gradients() { return memory_.device_gradients(); }

  // Sends PushPull's outgoing messages.
  void send();
  // Receives messages, resends overdue ones, and sends new ones. A State that the coordinator sent
  // before a server's message is handled no later than that message: a step's shares are known
  // before its weights.
  //   taken: called after each message of a server.
  void exchange(const std::function<void(const Message&)>& taken);
  // Waits for a message, at most 20 ms.
  void wait();
  // Sets a function that is called with each new state, after PushPull.
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
  wire::State state_;  // last one passed to PushPull
  std::function<void(const wire::State&)> listener_ = [](const wire::State&) {};
  int connected_ = 0;  // connections so far
  Log log_;
  ServerAttachment memory_;
  std::vector<std::vector<std::unique_ptr<Dealer>>> servers_;  // by server and connection
  std::vector<zmq::pollitem_t> poll_items_;                    // kept for its memory
};

}  // namespace pushpull
