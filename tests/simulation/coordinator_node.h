// The first server's program without sockets, threads and files: `JobDriver` on the simulated
// network and clock.
#pragma once

#include <string>
#include <vector>

#include "tests/simulation/data_node.h"
#include "tests/simulation/job_results.h"

namespace pushpull::sim {

class CoordinatorNode : private JobResults {
 public:
  explicit CoordinatorNode(Cluster& cluster);

  int control_router() const { return control_; }
  const DataNode& data() const { return data_; }
  const JobDriver& driver() const { return driver_; }
  bool over() const { return over_; }

 private:
  Now now() const;
  void happen(const std::function<void()>& event);
  void take(const PeerId& peer, const Message& message);
  void tick();
  void turn();

  bool send(const PeerId& to, const Message& message) override;
  void connect_shards(const std::vector<std::string>& endpoints) override;
  void send_to_shard(int server, const Message& message) override;
  void written(int64_t step) override;

  Cluster& cluster_;
  DataNode data_;
  JobDriver driver_;
  int control_;
  std::vector<int> shards_;  // dealers
  bool over_ = false;
};

}  // namespace pushpull::sim
