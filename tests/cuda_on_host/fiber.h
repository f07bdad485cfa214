// A function on a stack of its own that can suspend itself. ucontext makes the stack's context, and
// _setjmp switches between contexts: swapcontext would ask the kernel for the signal mask each
// time.
#pragma once

#include <setjmp.h>
#include <ucontext.h>

#include <cstddef>

namespace cuda_on_host {

class Fiber {
 public:
  // body: never returns; called by the first resume.
  explicit Fiber(void (*body)());
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Continues the fiber. Saves the caller's context in `here`.
  void resume(jmp_buf& here) {
    if (_setjmp(here) == 0) _longjmp(at_, 1);
  }
  jmp_buf& at() { return at_; }

 private:
  static void begin();

  void (*body_)();
  void* stack_;
  jmp_buf at_;
  ucontext_t made_;
  ucontext_t maker_;
};

}  // namespace cuda_on_host
