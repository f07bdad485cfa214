// The connections of a worker to the servers' data ports, over ZeroMQ. Waits for the servers and for
// the coordinator's news at once. Used by the trainer's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/console.h"
#include "common/base/process.h"
#include "common/net/endpoint.h"
#include "common/net/join.h"
#include "worker/exchange/direct_links.h"
#include "worker/exchange/links.h"
#include "worker/exchange/push_pull.h"
#include "worker/exchange/server_attachment.h"
#include "worker/member/control.h"

namespace pushpull {

// Connects a worker to the servers' data ports. Plain functions; used by the trainer's thread.

// Returns the address of a server's data port: tcp, or a unix socket if the job asks for it and the
// server runs on this host.
//   joined: the coordinator's address.
std::string data_address(const JobView& view, int server, const std::string& joined);

// Returns the credentials for the data port of `server`.
Credentials data_credentials(const wire::State& state, int server, const Credentials& credentials);

class SocketLinks final : public Links {
 public:
  // view: its state is passed to PushPull. mapped, device: see ServerAttachment. Borrows the job of
  // `view` and all references.
  SocketLinks(const JobView& view, PushPull& push_pull, Control& control, zmq::context_t& context,
              PagesMapped mapped = {}, std::shared_ptr<device::Device> device = nullptr);
  // Logs how the waits of this connection went.
  ~SocketLinks() override;
  SocketLinks(const SocketLinks&) = delete;
  SocketLinks& operator=(const SocketLinks&) = delete;

  int64_t now_ms() const override { return pushpull::now_ms(); }
  void attach() override;
  void wait_for_readers() override;
  FloatAllocator gradients() override { return memory_.gradients(); }
  FloatAllocator device_gradients() override { return memory_.device_gradients(); }
  void send() override;
  void send(ToServer message) override;
  void exchange(const Taken& taken) override;
  void wait() override;
  void set_listener(std::function<void(const wire::State&)> listener) override {
    listener_ = std::move(listener);
  }
  // Adds other sockets that `wait` waits for.
  using AddPollItems = std::function<void(std::vector<zmq::pollitem_t>&)>;
  void also_wait_for(AddPollItems others) { others_ = std::move(others); }

 private:
  void take_news();
  void connect(int server);
  bool poll();
  void follow_replaced();
  std::optional<Message> receive(int server, Dealer& connection);
  void send_by_socket(ToServer message);
  void send_over_socket(const ToServer& message);
  Dealer& connection_of(const ToServer& message);

  PushPull& push_pull_;
  Control& control_;
  zmq::context_t& context_;
  const Job& job_;
  const uint64_t term_id_;
  const uint64_t incarnation_;
  wire::State state_;  // last one passed to PushPull
  std::function<void(const wire::State&)> listener_ = [](const wire::State&) {};
  AddPollItems others_ = [](std::vector<zmq::pollitem_t>&) {};
  int connected_ = 0;  // connections so far
  Log log_;
  ServerAttachment memory_;
  DirectLinks direct_;
  std::vector<std::vector<std::unique_ptr<Dealer>>> servers_;  // by server and connection
  std::vector<zmq::pollitem_t> poll_items_;                    // kept for its memory
};

}  // namespace pushpull
