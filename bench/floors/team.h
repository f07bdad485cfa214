// One or two threads that do the parts of a pass at the same time, again and again: a thread that
// is started for each pass would cost more than a small pass itself.
#pragma once

#include <barrier>
#include <functional>
#include <thread>

namespace pushpull::floors {

class Team {
 public:
  // threads: 1 or 2.
  explicit Team(int threads) : threads_(threads), meet_(2) {
    if (threads_ == 2) helper_ = std::jthread([this] { help(); });
  }
  ~Team() {
    part_ = nullptr;
    if (threads_ == 2) meet_.arrive_and_wait();
  }
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  // Calls part(i) for i = 0 .. threads - 1; returns when all are done.
  void run(const std::function<void(int)>& part) {
    if (threads_ == 1) return part(0);
    part_ = &part;
    meet_.arrive_and_wait();
    part(0);
    meet_.arrive_and_wait();
  }

 private:
  void help() {
    while (true) {
      meet_.arrive_and_wait();
      if (part_ == nullptr) return;
      (*part_)(1);
      meet_.arrive_and_wait();
    }
  }

  int threads_;
  std::barrier<> meet_;
  const std::function<void(int)>* part_ = nullptr;  // read behind the barrier
  std::jthread helper_;
};

}  // namespace pushpull::floors
