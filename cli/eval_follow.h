// Decides what `pushpull eval --follow` does next: which checkpoint of a running job it evaluates, and
// when it ends. A state machine: takes the state of the folder and the time. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace pushpull {

class EvalFollow {
 public:
  // The output folder at one time.
  struct Sight {
    std::map<int64_t, std::string> checkpoints;  // whole ones: step -> path
    bool running = false;                        // OUT/term.json exists: the run has not ended
    bool summary = false;                        // OUT/summary.json exists: a run has ended
  };
  enum class Do { kEvaluate, kWait, kEnd, kGiveUp };
  struct Next {
    Do what = Do::kWait;
    int64_t step = 0;       // to evaluate
    std::string path = {};  // of its checkpoint
  };

  //   timeout_ms: without a new checkpoint and without the run's end.
  EvalFollow(int64_t timeout_ms, int64_t now_ms) : timeout_ms_(timeout_ms), since_ms_(now_ms) {}

  // Evaluates each checkpoint once, in the order of steps, and ends after those of a run that has
  // ended. A run that begins again at an earlier step is another one: its checkpoints are new.
  Next next(const Sight& sight, int64_t now_ms);
  // The checkpoint that `next` has named was evaluated, or has been deleted meanwhile.
  void done(int64_t step, int64_t now_ms);
  bool saw_run() const { return saw_run_; }

 private:
  const int64_t timeout_ms_;
  int64_t since_ms_;               // the newest checkpoint, or the begin
  std::optional<int64_t> newest_;  // step that was evaluated last
  bool saw_run_ = false;
};

inline EvalFollow::Next EvalFollow::next(const Sight& sight, int64_t now_ms) {
  saw_run_ = saw_run_ || sight.running;
  if (newest_ && !sight.checkpoints.empty() && sight.checkpoints.rbegin()->first < *newest_) {
    newest_.reset();
  }
  const auto first = newest_ ? sight.checkpoints.upper_bound(*newest_) : sight.checkpoints.begin();
  if (first != sight.checkpoints.end()) return {Do::kEvaluate, first->first, first->second};
  if (!sight.running && (saw_run_ || sight.summary)) return {.what = Do::kEnd};
  if (now_ms >= since_ms_ + timeout_ms_) return {.what = Do::kGiveUp};
  return {.what = Do::kWait};
}

inline void EvalFollow::done(int64_t step, int64_t now_ms) {
  newest_ = step;
  since_ms_ = now_ms;
}

}  // namespace pushpull
