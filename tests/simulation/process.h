// The life of a simulated process: its events happen until it is gone, later while it is frozen.
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

  // Runs the event unless this process is gone, later when it is frozen.
  void happen(std::function<void()> event);
  void later(int64_t delay_us, std::function<void()> event);
  // Nothing of this process happens for so long; messages wait.
  void freeze(int64_t ms);
  bool gone() const { return gone_; }

 protected:
  void go() { gone_ = true; }
  const std::string& name() const { return name_; }
  // Ends the process with an Error that came out of an event; false: no process may end so.
  virtual bool ends_with(const Error& /*error*/) { return false; }

 private:
  Cluster& cluster_;
  const std::string name_;
  bool gone_ = false;
  int64_t frozen_until_us_ = 0;
  std::deque<std::function<void()>> frozen_;
};

}  // namespace pushpull::sim
