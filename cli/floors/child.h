// A forked process of a floor measurement. It dies with its parent.
#pragma once

#include <sys/types.h>

#include <functional>

namespace pushpull::floors {

// Longest time that a process of a floor measurement waits for another.
constexpr int kDeadlineSeconds = 60;

class Child {
 public:
  // Forks, so the caller must have no other thread. The child runs `body` and exits with its
  // result.
  explicit Child(const std::function<int()>& body);
  // Waits for the child to exit; kills it after kDeadlineSeconds.
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

 private:
  pid_t pid_;
};

}  // namespace pushpull::floors
