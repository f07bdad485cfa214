// Reads the output of a step, line by line: decides what users see, and finds what the launcher and its
// tasks report. One thread.
#pragma once

#include <string>

#include "cli/over/step_launcher.h"

namespace pushpull {

class StepLines {
 public:
  struct Reading {
    bool show = false;
    bool of_task = false;  // the line begins with the name of its task
    int signal = 0;        // the batch system has sent it to the tasks: the job must stop
    std::string refusal;   // why the launcher refuses, or ""
  };

  explicit StepLines(const StepLauncher& launcher) : launcher_(launcher) {}

  // A launcher explains a refusal at length: its reason in one line takes the place of the rest.
  Reading take(const std::string& text);

 private:
  const StepLauncher& launcher_;
  bool refused_ = false;
};

}  // namespace pushpull
