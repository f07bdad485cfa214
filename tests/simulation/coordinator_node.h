// The first server's program without sockets, threads and files: `JobDriver` on the simulated
// network and clock.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "ps/coordinator/job_driver.h"
#include "tests/simulation/cluster.h"
#include "tests/simulation/data_node.h"

namespace pushpull::sim {

class CoordinatorNode : private JobEffects {
 public:
  explicit CoordinatorNode(Cluster& cluster);

  int control_router() const { return control_; }
  const DataNode& data() const { return data_; }
  const JobDriver& driver() const { return driver_; }
  bool over() const { return over_; }
  std::string describe() const;

 private:
  Now now() const;
  void take(const PeerId& peer, const Message& message);
  void tick();
  void turn();
  void keep(const FlatState& snapshot);

  bool send(const PeerId& to, const Message& message) override;
  void connect_shards(const std::vector<std::string>& endpoints) override;
  void send_to_shard(int server, const Message& message) override;
  StartPoint load_start(const Declaration& declaration) override;
  void started(const Coordinator& /*coordinator*/, const StartPoint& /*start*/) override {}
  void hash_weights(GatheredState snapshot) override;
  void write_checkpoint(GatheredState snapshot, CheckpointState state, bool hash) override;
  void show_line(const std::string& line) override;
  void show_moment(const Moment& moment) override;
  void write_summary(const Coordinator& coordinator, Summary summary) override;

  Cluster& cluster_;
  DataNode data_;
  JobDriver driver_;
  int control_;
  std::vector<int> shards_;  // dealers
  // in this turn
  std::set<PeerId> refused_;
  std::set<PeerId> answered_;  // their Hello, by the job's text
  bool over_ = false;
};

}  // namespace pushpull::sim
