// The thread of a simulated worker's trainer: a fiber whose waits are events of its process.
#pragma once

#include <cstdint>
#include <functional>

#include "tests/simulation/fiber.h"
#include "tests/simulation/process.h"

namespace pushpull::sim {

class TrainerThread {
 public:
  // Borrows `process`.
  TrainerThread(Process& process, std::function<void()> body)
      : process_(process), fiber_(std::move(body)) {}

  // ---- on the thread ----
  // Lets time pass; wakes change nothing.
  void sleep(int64_t us);
  // Waits for the next wake.
  void wait();

  // ---- events of the process ----
  // Continues a thread that waits, and starts it the first time.
  void wake();
  // Lets the thread continue no more, though the process lives.
  void stop() { stopped_ = true; }
  // Call when the process has ended.
  void abandon() { fiber_.abandon(); }
  bool sleeps() const { return sleeps_; }

 private:
  void go_on();

  Process& process_;
  Fiber fiber_;
  bool sleeps_ = false;
  bool stopped_ = false;
};

}  // namespace pushpull::sim
