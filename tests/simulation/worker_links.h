// The connections of a simulated worker to the servers: those of its trainer, on the simulated
// network, with memory that it may share.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "tests/simulation/shared_memory.h"
#include "tests/simulation/trainer_thread.h"
#include "tests/simulation/weight_checks.h"
#include "worker/exchange/links.h"

namespace pushpull::sim {

class WorkerNode;

class WorkerLinks final : public Links {
 public:
  // Passes the state to `push_pull`. Borrows all but it.
  WorkerLinks(Cluster& cluster, WorkerNode& process, WeightChecks& checks, PushPull& push_pull,
              const wire::State& state);

  int64_t now_ms() const override { return cluster_.clock().now_ms(); }
  FloatAllocator gradients() override;
  void send() override;
  void send(ToServer message) override;
  void exchange(const Taken& taken) override;
  void wait() override;
  void set_listener(std::function<void(const wire::State&)> listener) override {
    listener_ = std::move(listener);
  }

  // ---- events ----
  // Delivers nothing on the connections to this server until then.
  void silence(int server, int64_t until_ms);
  // Call when the process has ended.
  void close();

 private:
  // Arrived messages. Those in flight refer to it, and may arrive after the links are gone.
  struct Inbox {
    std::deque<std::pair<int, Message>> messages;     // with their server
    std::map<int, int64_t> lives;                     // connections made so far, by server
    std::vector<std::pair<int, bool>> share_changes;  // by server: it shares memory from now on
  };

  void connect(int server, const wire::State& state);
  void follow_replaced();
  void plan_sharing();
  void take_news();

  Cluster& cluster_;
  WorkerNode& process_;
  WeightChecks& checks_;
  PushPull& push_pull_;
  int64_t state_version_;
  std::function<void(const wire::State&)> listener_ = [](const wire::State&) {};
  std::vector<std::vector<int>> servers_;  // dealers, by server and connection
  const std::shared_ptr<Inbox> inbox_ = std::make_shared<Inbox>();
  SharedMemory memory_;
  std::vector<bool> shares_;  // by server
};

}  // namespace pushpull::sim
