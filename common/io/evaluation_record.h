// The best value of one measure over the evaluations of a run so far. Each checkpoint contains it, so
// that a resumed run goes on with it. Plain data.
#pragma once

#include <cstdint>
#include <string>

namespace pushpull {

struct EvaluationRecord {
  std::string measure;     // as StopWhen::measure; "" if the job follows none
  int64_t step = 0;        // of the newest evaluation that counts; 0 if there is none
  int64_t best_step = 0;   // of the best one; 0 if there is none
  double best = 0.0;       // its value
  int64_t since_best = 0;  // evaluations after it

  friend bool operator==(const EvaluationRecord&, const EvaluationRecord&) = default;
};

}  // namespace pushpull
