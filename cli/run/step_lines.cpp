#include "cli/run/step_lines.h"

namespace pushpull {

StepLines::Reading StepLines::take(const std::string& text) {
  Reading reading;
  reading.of_task = is_line_of_task(text);
  if (reading.of_task) {
    const int signal = told_to_end(text);
    if (launcher_.signals_are_for_the_job()) reading.signal = signal;
    reading.show = reading.signal == 0;
    return reading;
  }
  if (refused_ || text.find_first_not_of("- ") == std::string::npos) return reading;
  reading.refusal = launcher_.refusal(text);
  refused_ = !reading.refusal.empty();
  reading.show = !refused_;
  return reading;
}

}  // namespace pushpull
