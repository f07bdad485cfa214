// The servers' programs without sockets: what coordinator_loop.cpp, joined_server_loop.cpp and
// data_plane.cpp do around the state machines.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/net/shard_client.h"
#include "ps/coordinator/coordinator.h"
#include "ps/engine/host_mirror.h"
#include "ps/server/server.h"
#include "tests/simulation/cluster.h"
#include "tests/simulation/shared_memory.h"

namespace pushpull::sim {

// The data connection of a server's process.
class DataNode {
 public:
  explicit DataNode(Cluster& cluster);

  int router() const { return router_; }
  Server* server() const { return server_.get(); }
  void on_state(const wire::State& state, uint64_t run, uint64_t incarnation,
                TrainingObserver* observer);
  void send();
  // The process has ended.
  void close() { open_ = false; }
  wire::Stats stats() const { return server_ ? server_->stats() : wire::Stats(); }
  std::string describe() const;

 private:
  void make_server(ServerSetup setup, TrainingObserver* observer);
  void take(const PeerId& peer, const Message& message);
  void work();

  Cluster& cluster_;
  int router_;
  bool open_ = true;
  bool working_ = false;                // soon
  ServerPages pages_;                   // outlive the weights in them
  std::unique_ptr<HostMirror> mirror_;  // where these lie on a device
  std::unique_ptr<Server> server_;
};

class CoordinatorNode {
 public:
  explicit CoordinatorNode(Cluster& cluster);

  int control_router() const { return control_; }
  const DataNode& data() const { return data_; }
  const Coordinator& coordinator() const { return coordinator_; }
  bool over() const { return over_; }
  std::string describe() const;

 private:
  void take(const PeerId& peer, const Message& message);
  void take_from_shard(const Message& message);
  void tick();
  void start();
  void snapshots();
  void shard_messages();
  void write(const FlatState& snapshot);
  void pass_record();
  void repeat_waiting();
  void note_chosen(const wire::Chosen& chosen);
  void deliver();
  void note_evaluation();

  Cluster& cluster_;
  DataNode data_;
  Coordinator coordinator_;
  int control_;
  std::vector<int> shards_;  // dealers
  std::unique_ptr<ShardClient> client_;
  bool writing_ = false;
  std::optional<int64_t> written_;
  bool over_ = false;
};

// A server that has joined.
class ServerNode {
 public:
  ServerNode(Cluster& cluster, int number);

  void kill();
  const DataNode& data() const { return data_; }
  int data_router() const { return data_.router(); }
  std::string describe() const;

 private:
  void take(const Message& message);
  void tick();
  void heartbeat();
  void norms();
  void send_part(wire::RecordPart part);
  void arrived();
  void leave();

  Cluster& cluster_;
  int number_;
  uint64_t incarnation_;
  DataNode data_;
  int control_;
  std::optional<wire::JobText> text_;
  wire::State state_;
  int64_t hello_ms_ = -1000;
  int64_t heartbeat_ms_ = 0;
  int64_t norms_ms_ = 0;
  int64_t norms_step_ = -1;
  int64_t arrived_ms_ = 0;
  std::pair<int64_t, int> arrived_{-1, 0};  // step, pushes
  bool heartbeat_now_ = true;
  bool over_ = false;
};

}  // namespace pushpull::sim
