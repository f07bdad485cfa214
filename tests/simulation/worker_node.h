// The program of a worker without sockets and threads: `WorkerMember` and `Trainer` on the simulated
// network and clock. Heartbeats continue while the trainer computes.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/process.h"
#include "tests/simulation/process.h"
#include "tests/simulation/trainer_thread.h"
#include "tests/simulation/weight_checks.h"
#include "tests/simulation/worker_group.h"
#include "tests/simulation/worker_model.h"
#include "worker/member/coordinator_link.h"
#include "worker/member/trace.h"
#include "worker/member/worker_member.h"

namespace pushpull {

class Trainer;

namespace sim {

class WorkerLinks;

class WorkerNode : public Process, private CoordinatorLink {
 public:
  WorkerNode(Cluster& cluster, int number, const Newcomer& newcomer);
  ~WorkerNode() override;

  void kill();
  void request_end();
  // Empty while the worker runs, or if it was killed.
  const std::optional<int>& exit_code() const { return exit_code_; }
  int control() const { return control_; }
  const WorkerMember& member() const { return member_; }
  std::string describe() const;
  // Returns the stage that it declares; -1: the whole model.
  int own_stage() const;
  // Stalls the trainer for good, as soon as it trains. The process lives.
  void stop_trainer();
  // Delivers nothing on the data connections to this server until then.
  void silence_links(int server, int64_t until_ms);
  // Sends nothing to the others of its group until then.
  void silence_group(int64_t until_ms);
  // Others of its group connect to it.
  int peer_router() const { return peer_router_; }

  // ---- for the trainer's links ----
  bool over() const override;
  void wake_trainer() { thread_.wake(); }
  TrainerThread& trainer_thread() { return thread_; }
  void set_links(WorkerLinks* links);
  void set_group(WorkerGroup* group);
  const PeerInbox& peer_inbox() const { return peer_inbox_; }

 private:
  // ---- CoordinatorLink ----
  std::optional<JobEnd> end() const override;
  void report(wire::EvalResult result) override;
  void note_failed(wire::Applied push) override { member_.note_failed(std::move(push)); }
  Activity& activity() override { return activity_; }
  void set_times(const TimeTotals& /*times*/) override {}  // of the real clock

  // A trainer lives as long as the process is simulated: servers may read the memory of a process
  // that has ended, and a pool spoils the buffers that it frees.
  struct Term {
    wire::State state;  // with which training began
    std::unique_ptr<Trainer> trainer;
  };

  // ---- the trainer's thread ----
  void run_terms();
  void train(const wire::State& state);
  std::optional<wire::State> wait_for_training();
  std::optional<wire::State> wait_for_group(std::optional<wire::State> state);
  bool wait_for_reason();
  // Returns those of what it declares.
  std::span<const float> own_weights() const;

  // ---- events ----
  int64_t now_ms() { return clock_.advance(cluster_.clock().now_ms()); }
  wire::Stats stats() const;
  void take(const Message& message);
  void step();
  void tick();
  void send();
  void end_with(const JobEnd& end);
  void close_links();
  bool ends_with(const Error& error) override;

  Cluster& cluster_;
  const int number_;
  const Newcomer newcomer_;
  AwakeClock clock_;
  WorkerMember member_;
  uint64_t term_id_ = 0;  // of the trainer's term
  Activity activity_;
  WeightChecks checks_;
  WorkerData data_;
  Trace trace_{""};
  WorkerLinks* links_ = nullptr;  // of the trainer; null between terms
  WorkerGroup* group_ = nullptr;  // of the trainer; null between terms
  PeerInbox peer_inbox_;
  int64_t group_silent_until_ms_ = 0;
  bool stalls_ = false;
  int control_;
  int peer_router_;
  std::optional<int> exit_code_;
  TrainerThread thread_;
  WorkerModel model_;
  std::vector<std::unique_ptr<Term>> terms_;
};

}  // namespace sim
}  // namespace pushpull
