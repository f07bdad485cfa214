// A worker's program without sockets and threads: `WorkerMember` on the simulated network and
// clock. Heartbeats go on while the trainer computes.
#pragma once

#include <optional>
#include <string>

#include "common/base/process.h"
#include "tests/simulation/process.h"
#include "tests/simulation/worker_trainer.h"
#include "worker/member/worker_member.h"

namespace pushpull::sim {

class WorkerNode : public Process {
 public:
  WorkerNode(Cluster& cluster, int number, const Newcomer& newcomer);

  void kill();
  void stop_trainer() { trainer_.stop(); }
  // Empty while it runs, and when it was killed.
  const std::optional<int>& exit_code() const { return exit_code_; }
  int control() const { return control_; }
  std::string describe() const;

  // ---- for the trainer ----
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
  void end(const JobEnd& end);
  bool ends_with(const Error& error) override;

  Cluster& cluster_;
  const Newcomer newcomer_;
  AwakeClock clock_;
  WorkerMember member_;
  int control_;
  WorkerTrainer trainer_;
  bool prepared_ = false;
  bool preparing_ = false;
  std::optional<int> exit_code_;
};

}  // namespace pushpull::sim
