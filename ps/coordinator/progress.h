// How far a run is, in numbers for people: its moments and its summary. Plain computing over the
// coordinator's records; knows no file and no clock. The coordinator's thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "ps/coordinator/coordinator.h"
#include "ps/files/report.h"
#include "ps/files/run_history.h"
#include "ps/status/job_facts.h"

namespace pushpull {

class ServedData;

class Progress {
 public:
  // Borrowed: options, which outlive this, and `history`.
  Progress(const CoordinatorOptions& options, const RunHistory& history)
      : options_(options), history_(history) {}

  // A term is set up. Borrowed, until the next one. initial_weights_sha256: of the run, where an
  // earlier life of the coordinator knew it.
  void begin_term(int64_t now_ms, Coordinator& coordinator,
                  const std::string& initial_weights_sha256);
  // It is over, and the coordinator goes.
  void end_term() { coordinator_ = nullptr; }
  // The first weights exist.
  void training_began(int64_t now_ms) {
    if (began_ms_ < 0) began_ms_ = now_ms;
  }
  // Barriers that have opened: the weights that are evaluated there exist since then.
  void note_barriers(int64_t now_ms);
  // Hashes of the weights that the run began and ended with.
  void note_hash(int64_t step, const std::string& sha256);
  const std::string& weights_sha256() const { return weights_sha256_; }
  const std::string& initial_weights_sha256() const { return initial_weights_sha256_; }

  // Moments that are due: one for each evaluation, one for each quarter of a second. own: the
  // server in this process. last: in any case, the end of training.
  std::vector<Moment> moments(int64_t now_ms, const ServedData& own, bool last);
  // One without an evaluation. own: of the server in this process.
  Moment now(int64_t now_ms, const wire::Stats& own) const;
  // For whoever asks how the job is.
  JobFacts facts(int64_t now_ms, const Coordinator& of, const wire::Stats& own) const;
  // All but what files know: from which step the run was resumed.
  Summary summary(const wire::Stats& own) const;

 private:
  struct Opened {
    int64_t at_ms = 0;
    int64_t samples = 0;  // in its weights
  };

  void measure_rate(int64_t now_ms);
  void add_evaluation(Moment& m, const Evaluation& evaluation, int64_t now_ms);
  std::map<int64_t, int64_t> staleness(const wire::Stats& own) const;

  Coordinator& coordinator() { return *coordinator_; }
  const Coordinator& coordinator() const { return *coordinator_; }
  double seconds_at(int64_t ms) const;

  const CoordinatorOptions& options_;
  const RunHistory& history_;
  Coordinator* coordinator_ = nullptr;  // null between two terms
  std::map<int64_t, Opened> opened_;    // by step, until they are evaluated
  std::string initial_weights_sha256_;
  std::string weights_sha256_;
  int64_t began_ms_ = -1;
  int64_t ended_ms_ = -1;
  int64_t moment_ms_ = 0;
  int64_t moment_samples_ = 0;
  double rate_ = 0.0;  // samples per second
};

}  // namespace pushpull
