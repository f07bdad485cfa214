// The life of a simulated process: it runs its events until it is gone, and delays them while it is
// frozen.
#pragma once

#include <deque>
#include <functional>
#include <string>
#include <utility>

#include "common/base/error.h"
#include "tests/simulation/cluster.h"

namespace pushpull::sim {

class Process {
 public:
  // cluster: borrowed. name: for messages.
  Process(Cluster& cluster, std::string name) : cluster_(cluster), name_(std::move(name)) {}
  virtual ~Process() = default;
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  // Runs the event unless the process is gone. A frozen process runs it later.
  void happen(std::function<void()> event);
  void later(int64_t delay_us, std::function<void()> event);
  // Stops all events of the process for so long. Its messages wait.
  void freeze(int64_t ms);
  bool has_ended() const { return ended_; }

 protected:
  void mark_ended() { ended_ = true; }
  const std::string& name() const { return name_; }
  // Ends the process with an Error that an event threw. Returns false if that must not happen.
  virtual bool ends_with(const Error& /*error*/) { return false; }

 private:
  Cluster& cluster_;
  const std::string name_;
  bool ended_ = false;
  int64_t frozen_until_us_ = 0;
  std::deque<std::function<void()>> frozen_;
};

}  // namespace pushpull::sim
