// The data connection of a simulated server: `ServedData` on the simulated network, with memory or
// a device that simulated workers may share.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "ps/engine/host_mirror.h"
#include "ps/server/data_plane.h"
#include "tests/simulation/cluster.h"
#include "tests/simulation/shared_memory.h"

namespace pushpull::sim {

class DataNode : private ServerParts {
 public:
  explicit DataNode(Cluster& cluster);

  int router() const { return router_; }
  ServedData& data() { return data_; }
  const ServedData& data() const { return data_; }
  void send();
  // Call when the process has ended.
  void close() { open_ = false; }
  // Sets a function that runs after each turn of messages.
  void after_work(std::function<void()> then) { then_ = std::move(then); }

 private:
  std::unique_ptr<Server> make_server(const JobView& job, ServerSetup setup,
                                      TrainingObserver* observer) override;
  void on_term_end() override;
  void on_answer(const wire::Header& answer) override;
  void take(const PeerId& peer, const Message& message);
  void refuse(const PeerId& peer, const Refusal& refusal, const std::string& message);
  void work();

  Cluster& cluster_;
  int router_;
  bool open_ = true;
  bool working_ = false;  // work() is queued
  std::function<void()> then_;
  std::unique_ptr<ServerPages> pages_;  // outlives the weights in it
  std::unique_ptr<HostMirror> mirror_;  // set if the weights are on a device
  ServedData data_{*this};
};

}  // namespace pushpull::sim
