#include "tests/simulation/worker_terms.h"

namespace pushpull::sim {

namespace {

constexpr int64_t kReasonMs = 5000;  // as in worker/member/control.cpp

}  // namespace

WorkerTerms::WorkerTerms(Cluster& cluster, WorkerNode& self, int number, const Newcomer& newcomer)
    : Process(cluster, "worker " + std::to_string(number)),
      cluster_(cluster),
      newcomer_(newcomer),
      member_(cluster.join_options(wire::ROLE_WORKER, number),
              [this] { return trainer_->stats(); }),
      trainer_(std::make_unique<WorkerTrainer>(cluster, self, number)) {}

// Ends the computation of the previous term.
void WorkerTerms::take_term() {
  if (!member_.joined() || run_ == member_.run()) return;
  if (run_ != 0) {
    trainer_->stop();
    trainer_->close_links();
    retired_.push_back(std::move(trainer_));
    trainer_ = retired_.back()->next();
  }
  run_ = member_.run();
  prepared_ = false;
  prepare();
}

// Reads the data, which takes time, like the end of a computation.
void WorkerTerms::prepare() {
  later(cluster_.dice().between(0, 50'000), [this, run = run_] {
    if (run != run_) return;  // a newer term has begun
    prepared_ = true;
    member_.declare(run, cluster_.declaration(newcomer_.digest));
    member_.offer_weights(cluster_.toy().own_weights());
    send();
  });
}

void WorkerTerms::stop_and_wait_for_reason(const Error& error) {
  trainer_->stop();
  wait_for_reason(error, run_);
}

// Same as Control::wait_for_reason.
void WorkerTerms::wait_for_reason(const Error& error, uint64_t run) {
  later(kReasonMs * 1000, [this, error, run] {
    if (member_.run() != run) return;
    if (member_.misses_coordinator(now_ms())) return wait_for_reason(error, run);
    member_.leave(static_cast<int>(error.code()), error.what());
    end({false, error.code(), error.what(), 0});
  });
}

}  // namespace pushpull::sim
