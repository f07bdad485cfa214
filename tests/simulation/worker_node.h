// A worker's program without sockets and threads: `WorkerMember` on the simulated network and
// clock, and the life of its process. Heartbeats go on while the trainer computes.
#pragma once

#include <deque>
#include <functional>
#include <optional>
#include <string>

#include "common/base/process.h"
#include "tests/simulation/cluster.h"
#include "tests/simulation/worker_trainer.h"
#include "worker/member/worker_member.h"

namespace pushpull::sim {

class WorkerNode {
 public:
  WorkerNode(Cluster& cluster, int number, const Newcomer& newcomer);

  void kill();
  // Nothing of this process happens for so long; messages wait.
  void freeze(int64_t ms);
  // Killed, or over.
  bool gone() const { return gone_; }
  // Empty while it runs, and when it was killed.
  const std::optional<int>& exit_code() const { return exit_code_; }
  int control() const { return control_; }
  std::string describe() const;

  // ---- for the trainer ----
  // Runs the event unless this process is gone, later when it is frozen.
  void happen(std::function<void()> event);
  void later(int64_t delay_us, std::function<void()> event);
  const WorkerMember& member() const { return member_; }
  bool prepared() const { return prepared_; }
  void report(wire::EvalResult result);

 private:
  int64_t now_ms() { return clock_.advance(cluster_.clock().now_ms()); }
  void take(const Message& message);
  void step();
  void tick();
  void prepare();
  void send();
  void end(const JobEnd& end, int leave_code, const std::string& leave_text);

  Cluster& cluster_;
  const int number_;
  const Newcomer newcomer_;
  AwakeClock clock_;
  WorkerMember member_;
  int control_;
  WorkerTrainer trainer_;
  bool prepared_ = false;
  bool preparing_ = false;
  bool gone_ = false;
  std::optional<int> exit_code_;
  int64_t frozen_until_us_ = 0;
  std::deque<std::function<void()>> frozen_;
};

}  // namespace pushpull::sim
