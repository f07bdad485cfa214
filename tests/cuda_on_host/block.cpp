#include "tests/cuda_on_host/block.h"

#include <array>
#include <cstdio>
#include <cstring>
#include <memory>
#include <numeric>
#include <vector>

#include "tests/cuda_on_host/fiber.h"
#include "tests/cuda_on_host/order.h"
#include "tests/cuda_on_host/shared_memory.h"

// NOLINTBEGIN(readability-identifier-naming): CUDA's names
uint3 threadIdx;
uint3 blockIdx;
dim3 blockDim;
dim3 gridDim;
// NOLINTEND(readability-identifier-naming)

namespace cuda_on_host {

namespace {

constexpr size_t kMaxBytes = 16;  // bytes that a shuffle moves at most

enum class Waits { kNot, kBarrier, kShuffle };

// A thread of the block and the fiber that runs it.
struct Runner {
  std::unique_ptr<Fiber> fiber;
  unsigned thread = 0;
  Waits waits = Waits::kNot;
  Site site{};
  uint32_t mask = 0;
  uint32_t reach = 0;
  size_t bytes = 0;
  bool any = false;                          // the barrier's result
  alignas(16) std::byte value[kMaxBytes]{};  // sent and received in a shuffle
};

bool same(const Site& a, const Site& b) {
  return a.line == b.line && (a.file == b.file || std::strcmp(a.file, b.file) == 0);
}

std::string text_of(const Site& site) {
  return std::string(site.file) + ":" + std::to_string(site.line);
}

class BlockRun {
 public:
  // Runs the launch. Returns "" or a description of its fault.
  std::string run(const Launch& launch, Order& order) {
    launch_ = &launch;
    order_ = &order;
    threads_ = launch.block.x * launch.block.y * launch.block.z;
    started_ = finished_ = at_barrier_ = 0;
    any_ = false;
    runs_ahead_ = order.below(2) == 0;
    shuffling_.fill(0);
    fault_.clear();
    ready_.clear();
    unstarted_.resize(threads_);
    std::iota(unstarted_.begin(), unstarted_.end(), 0U);
    order.shuffle(unstarted_);
    shared_memory().begin(launch.shared_bytes);
    while (finished_ < threads_ && fault_.empty()) {
      current_ = next();
      if (current_ == nullptr) {
        fault_ = stuck();
        break;
      }
      resume_current(main_);
    }
    if (fault_.empty()) fault_ = shared_memory().check();
    if (!fault_.empty()) abandon();
    return fault_;
  }

  bool wait_at_barrier(Site site, bool predicate) {
    Runner& me = *current_;
    any_ |= predicate;
    wait(me, Waits::kBarrier, site);
    if (++at_barrier_ == threads_) release_barrier();
    give_way();
    return me.any;
  }

  void wait_for_exchange(Site site, uint32_t mask, uint32_t reach, void* value, size_t bytes) {
    Runner& me = *current_;
    std::memcpy(me.value, value, bytes);
    me.mask = mask;
    me.reach = reach;
    me.bytes = bytes;
    wait(me, Waits::kShuffle, site);
    release_shuffle(me.thread / kWarpThreads);
    give_way();
    std::memcpy(value, me.value, bytes);
  }

  // Ends the block because of a fault of the current thread.
  void fail(std::string why) {
    fault_ = "thread " + std::to_string(current_->thread) + " " + std::move(why);
    _longjmp(main_, 1);
  }

  // The body of each fiber: runs threads that have not begun.
  [[noreturn]] void serve() {
    for (;;) {
      Runner* const me = current_;
      launch_->thread();
      ++finished_;
      running_[me->thread] = nullptr;
      if (started_ < threads_) {
        take(*me);
        continue;
      }
      idle_.push_back(me);
      give_way();
    }
  }

 private:
  void wait(Runner& me, Waits what, Site site) {
    me.waits = what;
    me.site = site;
  }

  void take(Runner& runner) {
    runner.thread = unstarted_[started_++];
    runner.waits = Waits::kNot;
    running_[runner.thread] = &runner;
    place(runner);
  }

  void place(const Runner& runner) const {
    const dim3& block = launch_->block;
    threadIdx.x = runner.thread % block.x;
    threadIdx.y = runner.thread / block.x % block.y;
    threadIdx.z = runner.thread / (block.x * block.y);
  }

  // Returns the thread to run next: one that is ready, or one that has not begun. Null if there is
  // none.
  Runner* next() {
    const bool can_begin = started_ < threads_;
    if (!ready_.empty() && (!can_begin || order_->below(2) == 0)) {
      if (!runs_ahead_) std::swap(ready_[order_->below(ready_.size())], ready_.back());
      Runner* const runner = ready_.back();
      ready_.pop_back();
      place(*runner);
      return runner;
    }
    if (!can_begin) return nullptr;
    if (idle_.empty()) {
      all_.push_back(std::make_unique<Runner>());
      all_.back()->fiber = std::make_unique<Fiber>(serve_block);
      idle_.push_back(all_.back().get());
    }
    Runner* const runner = idle_.back();
    idle_.pop_back();
    take(*runner);
    return runner;
  }

  // Switches to the next thread, or to `run` if there is none.
  void give_way() {
    Runner* const me = current_;
    Runner* const other = next();
    if (other == me) return;
    current_ = other;
    if (other != nullptr) {
      resume_current(me->fiber->at());
    } else if (_setjmp(me->fiber->at()) == 0) {
      _longjmp(main_, 1);
    }
  }
  void resume_current(jmp_buf& here) { current_->fiber->resume(here); }

  void release_barrier() {
    for (unsigned t = 0; t < threads_; ++t) {
      if (!same(running_[t]->site, current_->site)) {
        return fail("waits at " + text_of(current_->site) + " and thread " + std::to_string(t) +
                    " at " + text_of(running_[t]->site));
      }
    }
    const auto first = static_cast<unsigned>(order_->below(threads_));
    for (unsigned i = 0; i < threads_; ++i) {
      Runner& runner = *running_[(first + i) % threads_];
      runner.any = any_;
      make_ready(runner);
    }
    at_barrier_ = 0;
    any_ = false;
  }

  void make_ready(Runner& runner) {
    runner.waits = Waits::kNot;
    ready_.push_back(&runner);
  }

  void release_shuffle(unsigned warp) {
    const Runner& me = *current_;
    uint32_t& shuffling = shuffling_[warp];
    shuffling |= 1U << me.thread % kWarpThreads;
    if (shuffling != me.mask) return;
    shuffling = 0;
    std::array<Runner*, kWarpThreads> lanes{};
    std::array<std::array<std::byte, kMaxBytes>, kWarpThreads> values;
    for (unsigned lane = 0; lane < kWarpThreads; ++lane) {
      if (((me.mask >> lane) & 1U) == 0) continue;
      const unsigned t = warp * kWarpThreads + lane;
      Runner* const other = running_[t];
      if (!same(other->site, me.site) || other->mask != me.mask || other->reach != me.reach) {
        return fail("shuffles at " + text_of(me.site) + " and thread " + std::to_string(t) +
                    " at " + text_of(other->site));
      }
      lanes[lane] = other;
      std::memcpy(values[lane].data(), other->value, kMaxBytes);
    }
    for (unsigned lane = 0; lane < kWarpThreads; ++lane) {
      if (lanes[lane] == nullptr) continue;
      const unsigned from = lane ^ me.reach;
      if (from >= kWarpThreads || lanes[from] == nullptr) {
        return fail("shuffles at " + text_of(me.site) + " with a lane that is not in the mask");
      }
      std::memcpy(lanes[lane]->value, values[from].data(), me.bytes);
      make_ready(*lanes[lane]);
    }
  }

  std::string stuck() const {
    for (unsigned t = 0; t < threads_; ++t) {
      const Runner* const waiting = running_[t];
      if (waiting == nullptr) continue;
      const char* what = waiting->waits == Waits::kBarrier ? "the barrier" : "the shuffle";
      return "thread " + std::to_string(t) + " waits at " + what + " of " + text_of(waiting->site) +
             ", and others never come: " + std::to_string(finished_) + " of " +
             std::to_string(threads_) + " threads have ended, " + std::to_string(at_barrier_) +
             " are at barriers";
    }
    return "no thread can go on";
  }

  // Drops fibers that are suspended in the middle of a thread; they cannot be reused.
  void abandon() {
    idle_.clear();
    all_.clear();
    running_.fill(nullptr);
    current_ = nullptr;
  }

  static void serve_block();

  const Launch* launch_ = nullptr;
  Order* order_ = nullptr;
  unsigned threads_ = 0;
  unsigned started_ = 0;
  unsigned finished_ = 0;
  unsigned at_barrier_ = 0;
  bool any_ = false;
  bool runs_ahead_ = false;  // run each warp as far as possible; else interleave all threads
  std::array<uint32_t, kMaxThreads / kWarpThreads> shuffling_{};  // lanes that wait, by warp
  std::string fault_;
  Runner* current_ = nullptr;
  std::vector<unsigned> unstarted_;
  std::vector<Runner*> ready_;
  std::vector<Runner*> idle_;
  std::array<Runner*, kMaxThreads> running_{};  // by thread; null if it has not begun or has ended
  std::vector<std::unique_ptr<Runner>> all_;
  jmp_buf main_;
};

BlockRun& block_run() {
  static auto* const run = new BlockRun;
  return *run;
}

void BlockRun::serve_block() { block_run().serve(); }

const Launch* running = nullptr;

}  // namespace

std::string text_of(const Place& place) {
  return std::string(place.kernel) + " (" + place.file + ":" + std::to_string(place.line) + ")";
}

std::string run(const Launch& launch, uint64_t seed) {
  Order order(seed);
  running = &launch;
  blockDim = launch.block;
  gridDim = launch.grid;
  const uint64_t blocks = uint64_t{launch.grid.x} * launch.grid.y * launch.grid.z;
  const Stride stride(blocks, order);
  std::string fault;
  for (uint64_t i = 0; i < blocks && fault.empty(); ++i) {
    const uint64_t index = stride.at(i);
    blockIdx.x = static_cast<unsigned>(index % launch.grid.x);
    blockIdx.y = static_cast<unsigned>(index / launch.grid.x % launch.grid.y);
    blockIdx.z = static_cast<unsigned>(index / launch.grid.x / launch.grid.y);
    fault = block_run().run(launch, order);
  }
  if (!fault.empty()) fault = std::string(running_now()) + ": " + fault;
  running = nullptr;
  return fault;
}

const char* running_now() {
  static char text[256];
  if (running == nullptr) return "";
  const Place& place = running->place;
  std::snprintf(text, sizeof text, "%s (%s:%d), block %u,%u,%u", place.kernel, place.file,
                place.line, blockIdx.x, blockIdx.y, blockIdx.z);
  return text;
}

bool barrier(Site site, bool predicate) { return block_run().wait_at_barrier(site, predicate); }

void exchange(Site site, uint32_t mask, uint32_t reach, void* value, size_t bytes) {
  block_run().wait_for_exchange(site, mask, reach, value, bytes);
}

void* shared_variable(const char* function, int line, size_t bytes, size_t align) {
  void* const found = shared_memory().variable(function, line, bytes, align);
  if (found == nullptr) block_run().fail("asks for more shared memory than a block may have");
  return found;
}

void* shared_of_launch(size_t /*align*/) { return shared_memory().of_launch(); }

}  // namespace cuda_on_host
