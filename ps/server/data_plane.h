// The data connection of a server process: takes messages of workers to the `Server` state machine
// and its answers back. One thread, which threads of its own help to update weights.
#pragma once

#include <memory>
#include <string>

#include "common/base/log.h"
#include "common/base/thread_pool.h"
#include "common/device/device.h"
#include "common/net/endpoint.h"
#include "common/net/local_socket.h"
#include "ps/server/attached_workers.h"
#include "ps/server/refusals.h"
#include "ps/server/server.h"

namespace pushpull {

class DataPlane {
 public:
  // device: where weights are to lie; null: the host.
  DataPlane(const std::string& address, int64_t slice_bytes,
            std::shared_ptr<device::Device> device);

  Router& router() { return router_; }
  // Listens also for workers of this user on this host, where the job says so.
  void listen_locally(const Job& job, uint64_t run, const Log& log);
  Server* server() { return server_.get(); }

  // Makes the server once the job trains; takes in newer states afterwards.
  void on_state(const wire::State& state, uint64_t run, uint64_t incarnation, int servers,
                const Job& job, TrainingObserver* observer);
  // Takes in at most a fixed number of messages, so that control is not kept waiting.
  void receive();
  void send();
  // All that this process reports to the coordinator.
  wire::Stats stats() const;

 private:
  void take(const PeerId& peer, Message message);
  void refuse(const PeerId& peer, const Verdict& verdict);
  void work();
  void make_server(const wire::State& state, uint64_t run, uint64_t incarnation, int servers,
                   const Job& job, TrainingObserver* observer);

  const std::shared_ptr<device::Device> device_;
  zmq::context_t context_;
  Router router_;
  Refusals refusals_;
  Log log_{"server"};
  std::unique_ptr<LocalSocketName> local_;   // transport = ipc
  std::unique_ptr<AttachedWorkers> memory_;  // made with the server, which lies in it
  std::unique_ptr<ThreadPool> threads_;
  std::unique_ptr<Server> server_;
};

// The address at which others reach `advertise` or, without it, `bound`: "tcp://HOST:PORT".
std::string advertised(const std::string& bound, const std::string& advertise);

}  // namespace pushpull
