#include "tests/cuda_on_host/fiber.h"

#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>

namespace cuda_on_host {

namespace {

constexpr size_t kStackBytes = size_t{128} << 10;
constexpr size_t kGuardBytes = 4096;  // unmapped, below the stack: an overflow faults

// Stacks that all begin at the same offset in a page would share a few cache lines.
constexpr size_t kStagger = 1088;
constexpr size_t kStaggered = 61;  // stacks until the offset repeats

Fiber* beginning = nullptr;  // fibers are made one at a time
size_t made = 0;

}  // namespace

void Fiber::begin() {
  Fiber* const me = beginning;
  // saves the context for the first resume and returns to the constructor
  if (_setjmp(me->at_) == 0) setcontext(&me->maker_);
  me->body_();
  std::abort();
}

Fiber::Fiber(void (*body)())
    : body_(body),
      stack_(mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {
  if (stack_ == MAP_FAILED || mprotect(stack_, kGuardBytes, PROT_NONE) != 0 ||
      getcontext(&made_) != 0) {
    std::perror("cuda_on_host: a fiber");
    std::abort();
  }
  made_.uc_stack.ss_sp = stack_;
  made_.uc_stack.ss_size = kStackBytes - made++ % kStaggered * kStagger;
  made_.uc_link = nullptr;
  makecontext(&made_, begin, 0);
  beginning = this;
  swapcontext(&maker_, &made_);
}

Fiber::~Fiber() { munmap(stack_, kStackBytes); }

}  // namespace cuda_on_host
