// The terms of a simulated worker: each term has its own trainer, which replaces the previous one.
#pragma once

#include <memory>
#include <vector>

#include "common/base/process.h"
#include "tests/simulation/process.h"
#include "tests/simulation/worker_trainer.h"
#include "worker/member/worker_member.h"

namespace pushpull::sim {

class WorkerTerms : public Process {
 public:
  // self: the process that contains this object.
  WorkerTerms(Cluster& cluster, WorkerNode& self, int number, const Newcomer& newcomer);

  void stop_trainer() { trainer_->stop(); }
  // Delivers nothing on the data connections to this server until then.
  void silence_links(int server, int64_t until_ms) { trainer_->silence_links(server, until_ms); }
  const WorkerMember& member() const { return member_; }
  bool prepared() const { return prepared_; }

 protected:
  int64_t now_ms() { return clock_.advance(cluster_.clock().now_ms()); }
  // Starts a term that the member has joined.
  void take_term();
  // Ends the worker unless the coordinator announces a new term soon.
  void stop_and_wait_for_reason(const Error& error);
  virtual void send() = 0;
  virtual void end(const JobEnd& end) = 0;

 private:
  Cluster& cluster_;

 protected:
  const Newcomer newcomer_;
  AwakeClock clock_;
  WorkerMember member_;
  std::unique_ptr<WorkerTrainer> trainer_;
  uint64_t run_ = 0;  // of the trainer's term

 private:
  void prepare();
  void wait_for_reason(const Error& error, uint64_t run);

  std::vector<std::unique_ptr<WorkerTrainer>> retired_;  // their events may still be queued
  bool prepared_ = false;
};

}  // namespace pushpull::sim
