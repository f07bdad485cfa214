// The data connection of a simulated server's process: `ServedData` on the simulated network, with
// memory or a device that simulated workers may share.
#pragma once

#include <functional>
#include <memory>

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
  // The process has ended.
  void close() { open_ = false; }
  // Called after each turn of messages.
  void after_work(std::function<void()> then) { then_ = std::move(then); }

 private:
  std::unique_ptr<Server> make_server(const JobView& job, ServerSetup setup,
                                      TrainingObserver* observer) override;
  void on_term_end() override;
  void on_answer(const wire::Header& answer) override;
  void take(const PeerId& peer, const Message& message);
  void work();

  Cluster& cluster_;
  int router_;
  bool open_ = true;
  bool working_ = false;  // soon
  std::function<void()> then_;
  std::unique_ptr<ServerPages> pages_;  // outlive the weights in them
  std::unique_ptr<HostMirror> mirror_;  // where these lie on a device
  ServedData data_{*this};
};

}  // namespace pushpull::sim
