// The data connection of a server process: brings what comes on its socket to `ServedData` and its
// answers back, and owns the memory and the threads of the `Server`. One thread, which threads of
// its own help to update weights.
#pragma once

#include <memory>
#include <string>

#include "common/base/log.h"
#include "common/base/thread_pool.h"
#include "common/device/device.h"
#include "common/keys/credentials.h"
#include "common/net/endpoint.h"
#include "common/net/local_socket.h"
#include "common/net/refusals.h"
#include "common/net/zap_handler.h"
#include "ps/ping/pings.h"
#include "ps/server/attached_workers.h"
#include "ps/server/served_data.h"

namespace pushpull {

class DataPlane : private ServerParts {
 public:
  // device: where weights are to lie; null: the host. demand: who may connect.
  DataPlane(const std::string& address, int64_t slice_bytes, std::shared_ptr<device::Device> device,
            Demand demand = {});

  Router& router() { return router_; }
  // Listens also for workers of this user on this host, where the job says so; no longer under the
  // name that belongs to an earlier run.
  void listen_locally(const Job& job, uint64_t run, const Log& log);
  ServedData& data() { return data_; }

  // Takes in at most a fixed number of messages, so that control is not kept waiting.
  void receive();
  void send();

 private:
  std::unique_ptr<Server> make_server(const JobView& job, ServerSetup setup,
                                      TrainingObserver* observer) override;
  void on_state(const wire::State& state) override { memory_->on_state(state); }
  void on_term_end() override;
  void add_stats(wire::Stats* stats) const override;
  void take(const PeerId& peer, Message message);
  void refuse(const PeerId& peer, const Refusal& refusal);
  void work();

  const std::shared_ptr<device::Device> device_;
  zmq::context_t context_;
  ZapHandler handler_;
  Router router_;
  Refusals refusals_;
  Pings pings_;
  Log log_{"server"};
  std::unique_ptr<LocalSocketName> local_;   // transport = ipc
  std::unique_ptr<AttachedWorkers> memory_;  // made with the server, which lies in it
  std::unique_ptr<ThreadPool> threads_;
  ServedData data_{*this};
};

// The address at which others reach `advertise` or, without it, `bound`: "tcp://HOST:PORT".
std::string advertised(const std::string& bound, const std::string& advertise);

}  // namespace pushpull
