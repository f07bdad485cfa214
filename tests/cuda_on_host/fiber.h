// A stack of its own on which a function runs that gives way to others. ucontext makes it, and
// _setjmp changes from one to another: swapcontext would ask the kernel for the signal mask each
// time.
#pragma once

#include <setjmp.h>
#include <ucontext.h>

#include <cstddef>

namespace cuda_on_host {

class Fiber {
 public:
  // body: never returns. It is called at the first resume.
  explicit Fiber(void (*body)());
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // From `here`, which is where the caller's own way on is kept.
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
