#include "tests/simulation/fiber.h"

#include <sys/mman.h>

#include <cstdint>
#include <new>
#include <utility>
#include <vector>

#include "common/base/error.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace pushpull::sim {

namespace {

constexpr size_t kStackBytes = size_t{1} << 20;  // only touched pages cost memory
constexpr size_t kGuardBytes = 4096;             // unmapped, at the end: an overflow faults

// Stacks of ended fibers, for the next ones.
std::vector<void*>& spare_stacks() {
  static std::vector<void*> stacks;
  return stacks;
}

void* new_stack() {
  std::vector<void*>& spare = spare_stacks();
  if (!spare.empty()) {
    void* const stack = spare.back();
    spare.pop_back();
    return stack;
  }
  void* const stack = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (stack == MAP_FAILED || mprotect(stack, kGuardBytes, PROT_NONE) != 0) throw std::bad_alloc();
  return stack;
}

}  // namespace

Fiber::Fiber(std::function<void()> body) : body_(std::move(body)), stack_(new_stack()) {
  PP_ASSERT(getcontext(&here_) == 0);
  here_.uc_stack.ss_sp = static_cast<char*>(stack_) + kGuardBytes;
  here_.uc_stack.ss_size = kStackBytes - kGuardBytes;
  here_.uc_link = nullptr;
  const auto self = reinterpret_cast<uintptr_t>(this);  // makecontext passes only ints
  makecontext(&here_, reinterpret_cast<void (*)()>(begin), 2, static_cast<unsigned>(self >> 32U),
              static_cast<unsigned>(self & 0xffffffffU));
#if defined(__SANITIZE_THREAD__)
  tsan_fiber_ = __tsan_create_fiber(0);
#endif
}

Fiber::~Fiber() {
  abandon();
#if defined(__SANITIZE_THREAD__)
  __tsan_destroy_fiber(tsan_fiber_);
#endif
  spare_stacks().push_back(stack_);
}

void Fiber::begin(unsigned high, unsigned low) {
  reinterpret_cast<Fiber*>(uintptr_t{high} << 32U | low)->run();
}

// Never returns: the last context switch leaves the stack.
void Fiber::run() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, &caller_stack_, &caller_bytes_);
#endif
  try {
    body_();
  } catch (const Abandoned&) {
  } catch (...) {
    thrown_ = std::current_exception();
  }
  body_ = nullptr;
  done_ = true;
  leave(true);
}

void Fiber::enter() {
#if defined(__SANITIZE_ADDRESS__)
  void* fake_stack = nullptr;
  __sanitizer_start_switch_fiber(&fake_stack, here_.uc_stack.ss_sp, here_.uc_stack.ss_size);
#endif
#if defined(__SANITIZE_THREAD__)
  tsan_caller_ = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(tsan_fiber_, 0);
#endif
  swapcontext(&there_, &here_);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fake_stack, nullptr, nullptr);
#endif
}

void Fiber::leave([[maybe_unused]] bool for_good) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(for_good ? nullptr : &fake_stack_, caller_stack_, caller_bytes_);
#endif
#if defined(__SANITIZE_THREAD__)
  __tsan_switch_to_fiber(tsan_caller_, 0);
#endif
  swapcontext(&here_, &there_);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fake_stack_, &caller_stack_, &caller_bytes_);
#endif
}

void Fiber::resume() {
  PP_ASSERT(!done_);
  started_ = true;
  enter();
  if (thrown_) std::rethrow_exception(std::exchange(thrown_, nullptr));
}

void Fiber::suspend() {
  leave(false);
  if (abandoned_) throw Abandoned{};
}

void Fiber::abandon() {
  if (done_ || !started_) return;
  abandoned_ = true;
  enter();
  PP_ASSERT(done_);
}

}  // namespace pushpull::sim
