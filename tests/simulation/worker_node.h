// The program of a worker without sockets and threads: `WorkerMember` on the simulated network and
// clock. Heartbeats continue while the trainer computes.
#pragma once

#include <optional>
#include <string>

#include "tests/simulation/worker_terms.h"

namespace pushpull::sim {

class WorkerNode : public WorkerTerms {
 public:
  WorkerNode(Cluster& cluster, int number, const Newcomer& newcomer);

  void kill();
  void request_end();
  // Empty while the worker runs, or if it was killed.
  const std::optional<int>& exit_code() const { return exit_code_; }
  int control() const { return control_; }
  std::string describe() const;

  // ---- for the trainer ----
  void report(wire::EvalResult result);

 private:
  void take(const Message& message);
  void step();
  void tick();
  void send() override;
  void end(const JobEnd& end) override;
  bool ends_with(const Error& error) override;

  Cluster& cluster_;
  int control_;
  std::optional<int> exit_code_;
};

}  // namespace pushpull::sim
