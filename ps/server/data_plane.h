// The data connection of a server process. ServedData is its state machine: it creates the Server
// of a term, passes messages to it, and answers "not ready" while there is none. DataPlane owns the
// socket, and the memory and threads of that Server. Single-threaded, apart from the threads that
// update weights.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/console.h"
#include "common/base/thread_pool.h"
#include "common/device/device.h"
#include "common/net/credentials.h"
#include "common/net/endpoint.h"
#include "common/net/join.h"
#include "common/net/local_socket.h"
#include "common/net/message.h"
#include "common/net/refusals.h"
#include "common/net/zap_handler.h"
#include "ps/server/attached_workers.h"
#include "ps/server/direct_workers.h"
#include "ps/server/pings.h"
#include "ps/server/server.h"

namespace pushpull {

// The process around a ServedData: provides parts for the Server and is told of its events.
class ServerParts {
 public:
  virtual ~ServerParts() = default;
  // Creates the server with memory, engine and threads. Throws Error(kDevice | kIo).
  virtual std::unique_ptr<Server> make_server(const JobView& job, ServerSetup setup,
                                              TrainingObserver* observer) = 0;
  // Called with each State while there is a server, before the server handles it.
  virtual void on_state(const wire::State& /*state*/) {}
  // Frees the server's buffers. Called after the server is destroyed.
  virtual void on_term_end() {}
  // Called with each answer of the coordinator, before the server handles it.
  virtual void on_answer(const wire::Header& /*answer*/) {}
  // Adds the statistics of the process: memory, processor time, rejected frames.
  virtual void add_stats(wire::Stats* /*stats*/) const {}
};

// Does no I/O and starts no thread.
class ServedData {
 public:
  // Borrows `parts`.
  explicit ServedData(ServerParts& parts) : parts_(parts) {}

  // Handles a State of the coordinator; the first one in training creates the server. Ignores one
  // that is older than the newest of the term: the coordinator in this process passes some at once,
  // and others after they have waited among its messages.
  //   observer: null unless the coordinator runs in this process.
  // Throws Error(kProtocol) if the state's tensors cannot be a model, and the errors of
  // make_server.
  void on_state(const JobView& job, TrainingObserver* observer);
  // Ends the term with this id: destroys the server and its weights.
  void end_term(uint64_t term_id);
  // Handles a NormTotal, Chosen or RecordTaken of the coordinator.
  void on_answer(const wire::Header& answer);
  // Handles a message on the data connection. Returns the reason if it is dropped. Ignores messages
  // of the previous term: their senders are about to learn of the new one.
  Checked take(const PeerId& peer, Message message);
  // Applies due updates, then answers pulls.
  void work();
  std::vector<Outgoing> take_outgoing();
  std::vector<Dropped> take_dropped();

  // The server; null before training and between two terms.
  Server* server() const { return server_.get(); }
  // The statistics that this process reports to the coordinator.
  wire::Stats stats() const;

 private:
  ServerParts& parts_;
  std::unique_ptr<Server> server_;
  uint64_t earlier_term_id_ = 0;  // of the previous term
  int64_t state_version_ = -1;    // of the newest State of this term
  std::vector<Outgoing> not_ready_;
};

class DataPlane : private ServerParts {
 public:
  // device: memory of the weights; null for host memory. demand: which connections are accepted.
  DataPlane(const std::string& address, int64_t slice_bytes, std::shared_ptr<device::Device> device,
            Demand demand = {});

  Router& router() { return router_; }
  // With transport = ipc, also listens on a unix socket for workers of this user on this host, and
  // stops listening on an earlier term's. Logs a warning if that fails; workers then use tcp.
  void listen_locally(const Job& job, uint64_t term_id, const Log& log);
  ServedData& data() { return data_; }

  // Waits at most `timeout_ms` for data, or until one of `items`, sockets of the caller, is ready.
  void wait(std::vector<zmq::pollitem_t>& items, int timeout_ms);
  // Returns whether the sockets need not be read after `wait`: there was nothing a moment ago.
  bool sockets_are_idle() const;
  // Handles a limited number of messages, so that control messages are not delayed.
  void receive();
  void send();

 private:
  std::unique_ptr<Server> make_server(const JobView& job, ServerSetup setup,
                                      TrainingObserver* observer) override;
  void on_state(const wire::State& state) override;
  void on_term_end() override;
  void add_stats(wire::Stats* stats) const override;
  std::optional<std::pair<PeerId, Message>> next();
  std::optional<std::pair<PeerId, Message>> beside_socket();
  void take(const PeerId& peer, Message message);
  void refuse(const PeerId& peer, const Refusal& refusal);
  void answer(const PeerId& peer, Message message);
  void work();

  const std::shared_ptr<device::Device> device_;
  const Demand demand_;
  zmq::context_t context_;
  ZapHandler handler_;
  Router router_;
  Refusals refusals_;
  Pings pings_;
  Log log_{"server"};
  std::unique_ptr<LocalSocketName> local_;   // transport = ipc
  std::unique_ptr<AttachedWorkers> memory_;  // of the server; made with it
  std::unique_ptr<DirectWorkers> direct_;    // the same
  std::unique_ptr<ThreadPool> threads_;
  ServedData data_{*this};
  std::optional<std::pair<PeerId, Message>> behind_rings_;  // of the socket
  int of_rings_ = 0;  // messages of rings since the socket was read
};

// Returns the address at which other processes reach this one, "tcp://HOST:PORT".
//   bound: the address of the socket. advertise: the host to name instead; empty for the host of
//   `bound`.
std::string advertised(const std::string& bound, const std::string& advertise);

}  // namespace pushpull
