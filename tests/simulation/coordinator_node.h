// The program of server 0 without sockets, threads and files: `JobDriver` on the simulated network
// and clock.
#pragma once

#include <string>
#include <vector>

#include "tests/simulation/data_node.h"
#include "tests/simulation/job_results.h"

namespace pushpull::sim {

class CoordinatorNode : private JobResults {
 public:
  // control: the router of an earlier life, or -1 if there is none.
  explicit CoordinatorNode(Cluster& cluster, int control = -1);

  void kill();
  void signal(int number) {
    happen([&] { driver_.on_signal(now(), number); });
  }
  bool killed() const { return killed_; }

  int control_router() const { return control_; }
  const DataNode& data() const { return data_; }
  const JobDriver& driver() const { return driver_; }
  // Returns true if the job has ended here, other than by kill().
  bool over() const { return over_ && !killed_; }

 private:
  Now now() const;
  void happen(const std::function<void()>& event);
  void take(const PeerId& peer, const Message& message);
  void tick();
  void turn();

  bool send(const PeerId& to, const Message& message) override;
  void connect_shards(const std::vector<DataPort>& ports) override;
  void send_to_shard(int server, const Message& message) override;
  void written(int64_t step, const std::exception_ptr& error, CheckpointKind kind) override {
    happen([&] { driver_.on_written(now(), {step, std::to_string(step), error, kind}); });
  }
  void filed(FilesDone done) override {
    happen([&] { driver_.on_files(now(), done); });
  }
  bool alive() const override { return !killed_; }

  Cluster& cluster_;
  DataNode data_;
  JobDriver driver_;
  int control_;
  std::vector<int> shards_;  // dealers
  int64_t shard_lives_ = 0;  // number of times that the servers were connected
  bool over_ = false;
  bool killed_ = false;
};

}  // namespace pushpull::sim
