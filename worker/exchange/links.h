// A worker's connections to the servers, as its trainer uses them: moves messages between PushPull
// and the servers, and the coordinator's news to PushPull. SocketLinks implements it over ZeroMQ;
// the simulation has another one.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "common/base/buffer_pool.h"
#include "common/net/message.h"
#include "worker/exchange/push_pull.h"

namespace pushpull {

// Used by the trainer's thread.
class Links {
 public:
  virtual ~Links() = default;

  // Returns the time that all deadlines of PushPull refer to.
  virtual int64_t now_ms() const = 0;

  // Asks the servers to share memory. Returns when all have answered, after some seconds of
  // silence, or when the job is over.
  virtual void attach() {}
  // Waits until the servers no longer read pushes in the memory of this worker's device, at most a
  // second. Call before the worker ends while the job continues.
  virtual void wait_for_readers() {}
  // Allocates gradients that are pushed.
  virtual FloatAllocator gradients() = 0;
  // Allocates them on the device, once attached. Null unless all servers read them there.
  virtual FloatAllocator device_gradients() { return nullptr; }

  // Sends PushPull's outgoing messages.
  virtual void send() = 0;
  // Sends another message.
  virtual void send(ToServer message) = 0;
  // Receives messages, resends overdue ones, and sends new ones. A State that the coordinator sent
  // before a server's message is handled no later than that message: a step's shares are known
  // before its weights.
  //   taken: called after each message of a server, also if PushPull does not know it.
  using Taken = std::function<void(int server, const Message& message)>;
  virtual void exchange(const Taken& taken) = 0;
  // Waits for a message, at most 20 ms.
  virtual void wait() = 0;
  // Sets a function that is called with each new state, after PushPull.
  virtual void set_listener(std::function<void(const wire::State&)> listener) = 0;
};

// Makes the connections of a term. They borrow the argument.
using MakeLinks = std::function<std::unique_ptr<Links>(PushPull&)>;

}  // namespace pushpull
