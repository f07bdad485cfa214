// Computes the progress of a run for users: its moments and its summary, from the coordinator's
// records. Does no I/O and reads no clock. Used by the coordinator's thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ps/report/run_figures.h"
#include "ps/report/term_file.h"
#include "ps/run/coordinator.h"
#include "ps/run/job_effects.h"

namespace pushpull {

class ServedData;

class RunSummary : public TrainingListener {
 public:
  // Borrows both.
  RunSummary(const CoordinatorOptions& options, const RunHistory& history)
      : options_(options), history_(history) {}

  // Starts a term.
  //   samples: counted so far. start: its hash of the initial weights is known if an earlier process
  //   of the coordinator knew it.
  void begin_term(int64_t now_ms, int64_t samples, const StartPoint& start);
  // Ends the term.
  //   lost: its members that no moment has named.
  void end_term(const std::vector<std::string>& lost);
  // Notes that a later term starts from the checkpoint of this step.
  void went_back(int64_t step);
  // Notes that the first weights exist.
  void training_began(int64_t now_ms) {
    if (began_ms_ < 0) began_ms_ = now_ms;
  }
  void on_barrier_open(int64_t step, int64_t samples) override { opened_now_[step] = samples; }
  void on_evaluation(const Evaluation& evaluation) override { evaluated_.push_back(evaluation); }
  // Notes when the newest barriers opened: their weights, which are evaluated, exist since then.
  //   barriers: of the running term.
  void note_barriers(int64_t now_ms, const Barriers& barriers);
  // Takes the hash of the weights at the start or the end of the run.
  void note_hash(const Barriers& barriers, int64_t step, const std::string& sha256);
  const std::string& weights_sha256() const { return weights_sha256_; }
  const std::string& initial_weights_sha256() const { return initial_weights_sha256_; }

  // Returns the moments that are due: one for each evaluation, and one each quarter of a second.
  //   of: has begun to train; its lost members are taken. own: the server in this process. last: end
  //   of training, returns a moment in any case.
  std::vector<RunFigures> moments(int64_t now_ms, Coordinator& of, const ServedData& own,
                                  bool last);
  // Returns the present figures, with the newest evaluation.
  //   own: Stats of the server in this process.
  RunFigures figures(int64_t now_ms, const Coordinator& of, const wire::Stats& own) const;
  // Returns the figures at the end. The caller adds `stopped_by` and the refusals of control messages.
  RunFigures summary(const Coordinator& of, const wire::Stats& own) const;

 private:
  struct Opened {
    int64_t at_ms = 0;
    int64_t samples = 0;  // contained in its weights
  };

  void measure_rate(int64_t now_ms, const Coordinator& of);
  void note_lost(const std::vector<std::string>& members);
  void add_evaluation(RunFigures& moment, const Evaluation& evaluation, int64_t now_ms);
  double seconds_at(int64_t ms) const;

  const CoordinatorOptions& options_;
  const RunHistory& history_;
  std::map<int64_t, int64_t> opened_now_;  // by step: samples of barriers that note_barriers takes
  std::map<int64_t, Opened> opened_;       // by step, until evaluated
  std::vector<Evaluation> evaluated_;      // since the newest moment
  std::string initial_weights_sha256_;
  std::vector<std::string> drawn_;   // of the first term, as in StartPoint
  std::vector<std::string> unused_;  // likewise
  std::string weights_sha256_;
  std::vector<std::string> lost_;        // since the newest moment
  std::optional<int64_t> back_to_step_;  // likewise
  int64_t began_ms_ = -1;
  int64_t ended_ms_ = -1;
  int64_t moment_ms_ = 0;
  int64_t moment_samples_ = 0;
  RunTotals moment_totals_;
  double rate_ = 0.0;  // samples per second
};

}  // namespace pushpull
