// A process of a floor. It dies with its parent; whoever owns it waits for its end.
#pragma once

#include <sys/types.h>

#include <functional>

namespace pushpull::floors {

// The processes of a floor wait for each other at most so long.
constexpr int kDeadlineSeconds = 60;

class Child {
 public:
  // Forks (so no other thread may be running) and ends with what `body` returns.
  explicit Child(const std::function<int()>& body);
  // Waits for the end, kills after the deadline.
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

 private:
  pid_t pid_;
};

}  // namespace pushpull::floors
