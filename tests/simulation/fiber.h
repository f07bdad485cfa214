// A function on a stack of its own that can suspend itself: code that waits then runs as events of a
// simulation. Sanitizers know the stacks.
#pragma once

#include <ucontext.h>

#include <cstddef>
#include <exception>
#include <functional>

namespace pushpull::sim {

// Used on one thread.
class Fiber {
 public:
  // Unwinds the body of a fiber that goes. The body must not catch it.
  struct Abandoned {};

  explicit Fiber(std::function<void()> body);
  // Abandons a suspended body.
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Runs the body until it suspends itself or ends. Throws what the body has thrown. Must not be
  // called by a fiber.
  void resume();
  // Called by the body: returns with the next resume. Throws Abandoned if the fiber goes, so it must
  // not be called by a destructor or in a catch block.
  void suspend();
  // Ends the body if it is suspended: it continues with an exception.
  void abandon();
  // Returns true if the body has ended.
  bool done() const { return done_; }

 private:
  static void begin(unsigned high, unsigned low);
  void run();
  void enter();
  void leave(bool for_good);

  std::function<void()> body_;
  void* stack_;
  ucontext_t here_{};   // of the fiber
  ucontext_t there_{};  // of its caller
  bool started_ = false;
  bool done_ = false;
  bool abandoned_ = false;
  std::exception_ptr thrown_;
  // for the sanitizers
  void* tsan_fiber_ = nullptr;
  void* tsan_caller_ = nullptr;
  void* fake_stack_ = nullptr;
  const void* caller_stack_ = nullptr;
  size_t caller_bytes_ = 0;
};

}  // namespace pushpull::sim
